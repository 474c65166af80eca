"""The keys of a command that asks a provider something small: those that the fleet's calls go out with.

What one small question finds out about a key is no reason for calls to leave it alone: nothing is reported.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from ..actors.keys.pool import NoneFree, Pool
from ..actors.keys.renewal import NotRenewed
from ..actors.ports import Key
from ..protocol.destination import fingerprint
from ..protocol.errors import CoveyError, NoKey
from ..protocol.fault_kinds import Fault
from ..protocol.messages.credentials import OfferedKey
from ..protocol.settings import ProviderSettings
from .credential_file import CredentialProblem
from .home import Home
from .keyrings import HomeKeyring, Keyring, fleet_keyring
from .keys_port import no_key
from .running import running_root

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unfetched:
    """A key that is there, and is not to be had now."""

    label: str
    fingerprint: str
    reason: str


@asynccontextmanager
async def command_keys(
    home: Home,
    providers: Mapping[str, ProviderSettings],
    environ: Mapping[str, str],
    *,
    warn: Callable[[str], None],
) -> AsyncIterator[CommandKeys]:
    """The keys as the running fleet has them, or else as one that was started from here would.

    Raises `CredentialProblem` for a file of credentials that cannot be used: no other key is taken in its place. `warn`
    is told what was mended of it, and that a running fleet goes on without it.
    """
    info = running_root(home)
    if info is None:
        yield CommandKeys(HomeKeyring(home, providers, environ, on_mended=warn))
        return
    async with fleet_keyring(home, info, warn=warn) as keyring:
        yield CommandKeys(keyring)


class CommandKeys:
    """Implements `actors.ports.Keys`. Owned by one loop."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def choose(self, provider: ProviderSettings, *, avoid: frozenset[str] = frozenset()) -> Key:
        """See `actors.ports.Keys.choose`. Raises `CredentialProblem`, too: that is no lack of a key."""
        try:
            keys = await self._keyring.keys(provider.name)
        except CredentialProblem:
            raise
        except CoveyError as error:
            raise NoKey(provider.name, f"the fleet's credentials cannot be asked: {error}") from error
        if not keys:
            return self._nothing(provider)
        by_account, pool = {key.account: key for key in keys}, Pool()
        pool.offer({key.account: key.rest for key in keys})
        problem = None
        while True:
            chosen = pool.choose(provider.key_strategy, avoid=avoid, now_ms=_now_ms(), chance=random.random)
            if isinstance(chosen, NoneFree):
                raise no_key(provider.name, chosen, problem)
            found = await self._had(provider.name, by_account[chosen])
            if isinstance(found, Key):
                return found
            # Each account is tried once: this ends.
            avoid, problem = avoid | {chosen}, found.reason

    async def every(self, provider: ProviderSettings) -> tuple[Key | Unfetched, ...]:
        """All keys, those that rest too, for questions about the keys themselves. None where none are configured.

        Raises a `CoveyError` where that cannot be said.
        """
        return tuple([await self._had(provider.name, key) for key in await self._keyring.keys(provider.name)])

    async def renew(self, provider: ProviderSettings, stale: Key) -> Key | None:
        """See `actors.ports.Keys.renew`."""
        token = fingerprint(stale.secret)
        try:
            keys = await self._keyring.keys(provider.name)
        except CoveyError:
            return None  # what is known is that the old one was refused
        key = next((one for one in keys if one.account == stale.fingerprint), None)
        if token is None or key is None:
            return None
        renewed = await self._keyring.fetched(provider.name, key, stale=token)
        return None if isinstance(renewed, NotRenewed) else _key(renewed)

    async def asked(
        self,
        provider: ProviderSettings,
        key: Key,
        ask: Callable[[str], Awaitable[T]],
        *,
        is_refused: Callable[[T], bool],
    ) -> T:
        """What `ask` gets with the key, or with the one that takes its place if it is refused."""
        found = await ask(key.secret or "")
        if not is_refused(found) or (renewed := await self.renew(provider, key)) is None:
            return found
        return await ask(renewed.secret or "")

    def trouble(self, provider: ProviderSettings, key: Key, fault: Fault) -> None:
        """Nothing."""

    def why_none(self, provider: ProviderSettings) -> str:
        """What to do for a provider without a key."""
        if provider.api_key_env is None:
            return f"add one with `covey auth add {provider.name}`"
        return f"set {provider.api_key_env}{self._keyring.at}, or say `covey auth add {provider.name}`"

    def _nothing(self, provider: ProviderSettings) -> Key:
        if provider.api_key_env is None and provider.api_key_command is None:
            return Key(secret=None, fingerprint=None, label="none")
        raise NoKey(provider.name, self.why_none(provider))

    async def _had(self, provider: str, key: OfferedKey) -> Key | Unfetched:
        if key.secret is not None and (key.expires_ms is None or _now_ms() < key.expires_ms):
            return _key(key)
        found = await self._keyring.fetched(provider, key, stale=fingerprint(key.secret))
        return Unfetched(key.label, key.account, found.reason) if isinstance(found, NotRenewed) else _key(found)


def _key(key: OfferedKey) -> Key:
    return Key(secret=key.secret, fingerprint=key.account, label=key.label)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
