"""The fleet's keys as a process with calls sees them: chosen here, kept and renewed in one place for all.

Where a provider's only key is in the environment nobody is asked and nothing is waited for. Otherwise the pool is asked
for, and believed for a few seconds; what is refused meanwhile is known at once here, and to the others after that.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar, cast

from ..actors.calls.environment_keys import EnvironmentKeys
from ..actors.keys.pool import NoneFree, Pool
from ..actors.keys.rests import rest_for
from ..actors.ports import Key
from ..protocol.destination import fingerprint
from ..protocol.errors import CoveyError, LinkFull, NoKey
from ..protocol.fault_kinds import Fault
from ..protocol.messages.base import Wire
from ..protocol.messages.credentials import (
    KeyRenewed,
    KeysOffered,
    KeysQuery,
    KeyTrouble,
    OfferedKey,
    RenewKey,
)
from ..protocol.settings import ProviderSettings
from .credential_file import CredentialFile, CredentialProblem, Signature
from .home import Home

FRESH_S: Final = 3.0
"""How long a pool is believed without asking: a key that was added is used by everybody after it."""

LOOK_S: Final = 1.0
"""How often the file is looked at, for whether it has anything for a provider."""

KNOWN_S: Final = 2.0
"""How long an answer is waited for where the pool is known and merely old."""

OFFER_S: Final = 30.0
RENEW_S: Final = 90.0
"""Longer than waiting for the file's lock, one request and a disk that is slow; the fleet answers before."""

T = TypeVar("T")


class Asking(Protocol):
    """What is needed of the link to the broker."""

    async def ask(self, message: Wire, *, timeout_s: float | None) -> Wire:
        """The answer."""
        ...

    def post(self, message: Wire) -> None:
        """Say it, and have it repeated until it was heard."""
        ...


@dataclass(slots=True)
class _Known:
    """A provider's pool as it was told, and as it was used since."""

    pool: Pool
    keys: Mapping[str, OfferedKey]
    problem: str | None
    old_at: float


class FleetKeys:
    """Implements `actors.ports.Keys`. Owned by the loop thread; what is asked ends with the link.

    `broker_link` has to understand `BrokerReply | CredentialsReply`.
    """

    def __init__(
        self,
        broker_link: Asking,
        environ: Mapping[str, str],
        home: Home,
        *,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._link = broker_link
        self._environment = EnvironmentKeys(environ)
        self._file = CredentialFile(home)
        self._wall_ms = wall_ms
        self._clock = clock
        self._chance = chance
        self._known: dict[str, _Known] = {}
        self._asking: dict[object, asyncio.Task[Any]] = {}
        self._stored: frozenset[str] | None = frozenset()
        self._stored_as: Signature | object = _NEVER
        self._look_at = 0.0

    async def choose(self, provider: ProviderSettings, *, avoid: frozenset[str] = frozenset()) -> Key:
        """See `actors.ports.Keys.choose`."""
        if not self._is_kept(provider):
            return await self._environment.choose(provider, avoid=avoid)
        problem = None
        while True:
            known = await self._pool(provider.name)
            if not known.keys and known.problem is None:
                return await self._environment.choose(provider, avoid=avoid)
            chosen = known.pool.choose(provider.key_strategy, avoid=avoid, now_ms=self._wall_ms(), chance=self._chance)
            if isinstance(chosen, NoneFree):
                raise no_key(provider.name, chosen, problem or known.problem)
            offered = known.keys[chosen]
            if offered.secret is not None and (offered.expires_ms is None or self._wall_ms() < offered.expires_ms):
                return _key(offered)
            renewed = await self._renew(provider.name, chosen, fingerprint(offered.secret))
            if renewed.key is not None and renewed.key.secret is not None:
                return _key(renewed.key)
            # Each account is tried once: this ends.
            avoid, problem = avoid | {chosen}, renewed.problem

    async def renew(self, provider: ProviderSettings, stale: Key) -> Key | None:
        """See `actors.ports.Keys.renew`."""
        token = fingerprint(stale.secret)
        if token is None or stale.fingerprint is None or not self._is_kept(provider):
            return None
        renewed = await self._renew(provider.name, stale.fingerprint, token)
        return _key(renewed.key) if renewed.key is not None and renewed.key.secret is not None else None

    def trouble(self, provider: ProviderSettings, key: Key, fault: Fault) -> None:
        """See `actors.ports.Keys.trouble`."""
        rest = rest_for(fault, now_ms=self._wall_ms(), secret=key.secret)
        token = fingerprint(key.secret)
        if rest is None or token is None or key.fingerprint is None or not self._is_kept(provider):
            return
        with suppress(LinkFull):  # whoever calls next notices it again
            self._link.post(KeyTrouble(provider=provider.name, account=key.fingerprint, token=token, rest=rest))
        # Asked anew, behind what was just said: only the credentials know whether the account rests or one token of it.
        self._forget(provider.name)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _is_kept(self, provider: ProviderSettings) -> bool:
        """Whether there may be more to it than a variable of the environment."""
        if provider.api_key_command is not None:
            return True
        now = self._clock()
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self._look()
        # Nobody can say what a damaged file holds: the credentials know what it held last.
        return self._stored is None or provider.name in self._stored

    def _look(self) -> None:
        signature = self._file.signature()
        if signature == self._stored_as:
            return
        self._stored_as = signature
        try:
            self._stored = self._file.names()
        except CredentialProblem:
            self._stored = None
        for name in list(self._known):
            self._forget(name)

    def _forget(self, provider: str) -> None:
        """What is known of this pool is old, and so is what was asked before now."""
        if (known := self._known.get(provider)) is not None:
            known.old_at = 0.0
        self._asking.pop(provider, None)

    async def _pool(self, provider: str) -> _Known:
        known = self._known.get(provider)
        if known is not None and self._clock() < known.old_at:
            return known
        is_believed = known is not None and known.old_at > 0
        try:
            async with asyncio.timeout(KNOWN_S if is_believed else None):
                return await self._once(provider, lambda: self._ask_pool(provider))
        except (CoveyError, TimeoutError) as error:
            if known is not None:
                return known
            raise NoKey(provider, f"the fleet's credentials cannot be asked: {error}") from error

    async def _ask_pool(self, provider: str) -> _Known:
        asked_at = self._clock()
        offered = cast(KeysOffered, await self._link.ask(KeysQuery(provider=provider), timeout_s=OFFER_S))
        known = self._known.get(provider) or _Known(Pool(), {}, None, 0.0)
        known.keys = {key.account: key for key in offered.keys}
        known.pool.offer({key.account: key.rest for key in offered.keys})
        known.problem = offered.problem
        if self._asking.get(provider) is asyncio.current_task():
            known.old_at = asked_at + FRESH_S
        self._known[provider] = known
        return known

    async def _renew(self, provider: str, account: str, stale: str | None) -> KeyRenewed:
        ask = RenewKey(provider=provider, account=account, stale=stale)
        try:
            renewed = await self._once(ask, lambda: self._link.ask(ask, timeout_s=RENEW_S))
        except CoveyError as error:
            return KeyRenewed(problem=f"the fleet's credentials cannot be asked: {error}")
        self._forget(provider)
        return cast(KeyRenewed, renewed)

    async def _once(self, what: object, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Ask once for all who wait for the same; one of them that is cancelled takes nothing from the others."""
        task = self._asking.get(what)
        if task is None:
            task = self._asking[what] = asyncio.get_running_loop().create_task(ask())
            task.add_done_callback(lambda done: self._asked(what, done))
        return cast(T, await asyncio.shield(task))

    def _asked(self, what: object, task: asyncio.Task[Any]) -> None:
        if self._asking.get(what) is task:
            del self._asking[what]
        if not task.cancelled():
            task.exception()  # looked at, also where nobody waits any more


def no_key(provider: str, none: NoneFree, problem: str | None) -> NoKey:
    """The error that says why there is none, and until when; `problem` is why one that was free was not to be had."""
    if none.until_ms is None:
        return NoKey(provider, problem or none.reason)
    at = datetime.fromtimestamp(none.until_ms / 1000).astimezone()
    return NoKey(provider, f"until {at:%Y-%m-%d %H:%M:%S %Z}, {none.reason}", until=none.until_ms / 1000)


_NEVER: Final = object()


def _key(offered: OfferedKey) -> Key:
    return Key(secret=offered.secret, fingerprint=offered.account, label=offered.label)
