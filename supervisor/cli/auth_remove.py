"""`covey auth remove`: a key out of the file of credentials."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...protocol.errors import UsageError
from ...storage.credentials import Credential, Kept
from .auth import file_of, shown
from .output import print_json, print_line

if TYPE_CHECKING:
    from ...protocol.settings import ProviderSettings
    from ..home import Home


def remove(
    home: Home, providers: Mapping[str, ProviderSettings], provider: str, name: str | None, *, as_json: bool
) -> int:
    """Remove the one that is meant, and say what is used from now on."""
    gone: list[Credential] = []

    def take(kept: Kept) -> Kept:
        gone[:] = [_meant(kept, providers, provider, name)]
        return kept.without(provider, gone[0])

    left = file_of(home).change(take).of(provider)
    then = _then(providers.get(provider), left)
    if as_json:
        said = {"provider": provider, "label": gone[0].label, "fingerprint": gone[0].account, "then": then}
        print_json(said)
    else:
        print_line(f"{provider}: {gone[0].label} ({gone[0].account}) removed; from now on {then}")
    return 0


def _meant(kept: Kept, providers: Mapping[str, ProviderSettings], provider: str, name: str | None) -> Credential:
    there = kept.of(provider)
    if not there and provider not in providers:
        names = dict.fromkeys([*providers, *kept.providers])
        raise UsageError(f"there is no provider {shown(provider)}; there are: {', '.join(names)}")
    if not there:
        raise UsageError(f"nothing is kept for {provider}; what its variable or command says is not covey's to remove")
    labels = ", ".join(f"{one.label} ({one.account})" for one in there)
    if name is None and len(there) > 1:
        raise UsageError(f"{provider} has several; say which: {labels}")
    found = there[0] if name is None else kept.named(provider, name)
    if found is None:
        raise UsageError(f"{provider} has no credential of that name; it has: {labels}")
    return found


def _then(provider: ProviderSettings | None, left: tuple[Credential, ...]) -> str:
    """What its calls go out with after this."""
    if left:
        return "its other credentials are used" if len(left) > 1 else f"{left[0].label} is used"
    if provider is None:
        return "nothing is left of it"
    if provider.api_key_env is not None and os.environ.get(provider.api_key_env, "").strip():
        return f"the key in {provider.api_key_env} is used"
    if provider.api_key_command is not None:
        return "the key that its api_key_command prints is used"
    return "it has no key" if provider.api_key_env is not None else "it is called without a key"
