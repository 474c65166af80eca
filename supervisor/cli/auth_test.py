"""`covey auth test`: whether a provider takes each of its keys: one small request a key, which costs no tokens."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...actors.http.clients import Clients
from ...actors.keys.renewal import NotRenewed
from ...actors.quota_reading import Got
from ...protocol.destination import fingerprint
from ...protocol.errors import CoveyError, UsageError
from ...protocol.faults import classify
from ...protocol.messages.credentials import KeySource, OfferedKey
from ..keyrings import HomeKeyring, fleet_keyring
from ..models_request import ask_models_at, models_url, without
from ..running import running_root
from .auth import rests_no_more
from .budget_words import printable
from .output import print_json, print_line, warn

if TYPE_CHECKING:
    from ...protocol.settings import ProviderSettings
    from ..home import Home

_REFUSED: Final = (401, 403)


@dataclass(frozen=True, slots=True)
class Tested:
    """What one key got. `state` is `ok`, `refused`, `unclear` or `unreachable`."""

    key: OfferedKey
    state: str
    says: str
    status: int | None = None


def test(
    home: Home,
    providers: Mapping[str, ProviderSettings],
    provider: ProviderSettings,
    name: str | None,
    *,
    as_json: bool,
) -> int:
    """Try the keys; exit code 1 unless every one is taken."""
    tested = asyncio.run(_test(home, providers, provider, name))
    for one in tested:
        if one.state == "ok" and one.key.secret is not None:
            _wake(home, provider.name, one.key)
    if as_json:
        print_json({"provider": provider.name, "keys": [_as_json(one) for one in tested]})
    else:
        for one in tested:
            print_line(printable(f"{provider.name}: {_name(one.key)} {one.says}"))
    return 0 if all(one.state == "ok" for one in tested) else 1


async def _test(
    home: Home, providers: Mapping[str, ProviderSettings], provider: ProviderSettings, name: str | None
) -> list[Tested]:
    keyring = HomeKeyring(home, providers, os.environ, on_mended=lambda text: warn([text]))
    there = await keyring.keys(provider.name)
    there += await _of_fleet(home, provider.name, but_for={key.account for key in there})
    clients = Clients()
    try:
        return await _Tester(provider, keyring, clients).test(there, name)
    finally:
        await clients.close()


async def _of_fleet(home: Home, provider: str, *, but_for: set[str]) -> tuple[OfferedKey, ...]:
    """What the running fleet has in its environment, and we have not."""
    info = running_root(home)
    if info is None:
        return ()
    try:
        async with fleet_keyring(home, info, warn=lambda text: warn([text])) as keyring:
            keys = await keyring.keys(provider)
    except CoveyError as error:
        warn([f"keys in the environment of the fleet are not tried ({error})"])
        return ()
    return tuple(key for key in keys if key.source is KeySource.ENVIRONMENT and key.account not in but_for)


class _Tester:
    """Tries the keys of one provider as a fleet that is started from here would have them.

    Also where one runs: that would not try again for a while what has failed, and somebody may just have mended it.
    """

    def __init__(self, provider: ProviderSettings, keyring: HomeKeyring, clients: Clients) -> None:
        self._provider = provider
        self._keyring = keyring
        self._clients = clients

    async def test(self, there: tuple[OfferedKey, ...], name: str | None) -> list[Tested]:
        """Each key that is there, one after the other: a pool that asks all at once would look like something else."""
        keys = [key for key in there if name is None or name in (key.label, key.account)]
        if name is not None and not keys:
            known = ", ".join(_name(key) for key in there) or "none"
            raise UsageError(f"{self._provider.name} has no key of that name; it has: {known}")
        if not keys and self._provider.api_key_env is not None:
            raise UsageError(
                f"{self._provider.name} has no key: set {self._provider.api_key_env}, "
                f"or say `covey auth add {self._provider.name}`"
            )
        nothing = OfferedKey(account="", label="no key", source=KeySource.ENVIRONMENT)
        return [await self._try(key) for key in keys] or [await self._ask(nothing)]

    async def _try(self, key: OfferedKey) -> Tested:
        found = key if key.secret is not None else await self._fetched(key, None)
        if isinstance(found, Tested):
            return found
        tested = await self._ask(found)
        if tested.state != "refused" or not self._keyring.is_login(self._provider.name, key):
            return tested
        again = await self._fetched(key, fingerprint(found.secret))
        return again if isinstance(again, Tested) else await self._ask(again)

    async def _fetched(self, key: OfferedKey, stale: str | None) -> OfferedKey | Tested:
        found = await self._keyring.fetched(self._provider.name, key, stale=stale)
        if isinstance(found, NotRenewed):
            return Tested(key, "refused" if found.is_final else "unreachable", found.reason)
        return found

    async def _ask(self, key: OfferedKey) -> Tested:
        secret = key.secret or ""
        got = await ask_models_at(self._clients, self._provider, models_url(self._provider), secret)
        return (
            Tested(key, "unreachable", f"was not tried: {got}") if isinstance(got, str) else _judged(key, got, secret)
        )


def _judged(key: OfferedKey, got: Got, secret: str) -> Tested:
    if 200 <= got.status < 300:
        return Tested(key, "ok", "is taken" if secret else "is needed: it answers", got.status)
    fault = classify(status=got.status, body=got.body, retry_after=None, now=time.time())
    said = without(fault.summary, secret)
    if got.status in _REFUSED:
        return Tested(key, "refused", f"is refused: {said}", got.status)
    says = f"is neither taken nor refused, the provider does not list its models: {said}"
    return Tested(key, "unclear", says, got.status)


def _wake(home: Home, provider: str, key: OfferedKey) -> None:
    try:
        rests_no_more(home, provider, account=key.account, token=fingerprint(key.secret) or "")
    except CoveyError as error:
        warn([f"it may go on resting ({error})"])


def _name(key: OfferedKey) -> str:
    return f"{key.label} ({key.account})" if key.account else key.label


def _as_json(tested: Tested) -> dict[str, object]:
    return {
        "label": tested.key.label,
        "fingerprint": tested.key.account or None,
        "source": tested.key.source.value if tested.key.account else None,
        "state": tested.state,
        "status": tested.status,
        "says": tested.says,
    }
