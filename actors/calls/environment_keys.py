"""Keys that come from the environment alone: one for each provider, in the variable its `api_key_env` names.

They are read at every call, never rest and cannot be renewed.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.destination import fingerprint
from ...protocol.errors import NoKey
from ...protocol.fault_kinds import Fault
from ...protocol.settings import ProviderSettings
from ..ports import Key


class EnvironmentKeys:
    """See `actors.ports.Keys`. Waits for nothing."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    async def choose(self, provider: ProviderSettings, *, avoid: frozenset[str] = frozenset()) -> Key:
        """The provider's key; the one without a secret where it needs none. Raises `NoKey`."""
        key = self._key_of(provider)
        if key.fingerprint is not None and key.fingerprint in avoid:
            raise NoKey(provider.name, "its only key was refused")
        return key

    async def renew(self, provider: ProviderSettings, stale: Key) -> Key | None:
        """None: what an environment says does not change."""
        return None

    def trouble(self, provider: ProviderSettings, key: Key, fault: Fault) -> None:
        """Nothing: there is no other key to choose."""

    def _key_of(self, provider: ProviderSettings) -> Key:
        variable = provider.api_key_env
        if variable is None:
            return Key(secret=None, fingerprint=None, label="none")
        secret = (self._environment.get(variable) or "").strip()
        if not secret:
            raise NoKey(provider.name, f"{variable} is not set; provider {provider.name} needs its key there")
        return Key(secret=secret, fingerprint=fingerprint(secret))
