"""Where a command has the keys of the providers from: the running fleet, or the home and the environment themselves.

A fleet is asked for everything, its environment counts and not the command's, and it renews. Without one the command
does what the fleet's credentials would do, under the same lock: whoever renews, the others find the new token.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec

from ..actors.keys.key_command import KeyCommands
from ..actors.keys.oauth import refresh
from ..actors.keys.renewal import NotRenewed, Renewer
from ..actors.keys.sources import Sources, without_keys
from ..protocol.destination import fingerprint
from ..protocol.errors import CoveyError, FleetLost
from ..protocol.ids import Incarnation
from ..protocol.messages.credentials import (
    CredentialsReply,
    KeyRenewed,
    KeysOffered,
    KeySource,
    KeysQuery,
    OfferedKey,
    RenewKey,
)
from ..protocol.peer import Peer
from ..protocol.settings import ProviderSettings
from ..storage.owners import me
from .credential_file import CredentialFile, CredentialProblem
from .doors import HomeDoor
from .home import Home, RootInfo
from .keys_port import RENEW_S
from .link import Link
from .rest_file import RestFile
from .sockets import make_context

OFFER_S: Final = 10.0

T = TypeVar("T")


class Keyring(Protocol):
    """All keys of the providers, those that rest too."""

    @property
    def at(self) -> str:
        """Where its environment is, to go behind `set NAME`."""
        ...

    async def keys(self, provider: str) -> tuple[OfferedKey, ...]:
        """The pool of a provider, in its order. Raises a `CoveyError` where that cannot be said."""
        ...

    async def fetched(self, provider: str, key: OfferedKey, *, stale: str | None) -> OfferedKey | NotRenewed:
        """The key with a secret other than the one whose fingerprint is `stale`."""
        ...


class HomeKeyring:
    """What a fleet that was started from here would have. Owned by one loop."""

    at = ""

    def __init__(
        self,
        home: Home,
        providers: Mapping[str, ProviderSettings],
        environ: Mapping[str, str],
        *,
        on_mended: Callable[[str], None],
    ) -> None:
        """Raises `CredentialProblem`. `on_mended` is told when the mode of the file had to be changed."""
        self._file = CredentialFile(home, on_mended=on_mended)
        self._sources = Sources(providers, environ, wall_ms=_now_ms)
        self._sources.kept = self._file.read()
        self._sources.rests = RestFile(home).load()
        self._renewer = Renewer(self._file, refresh, wall_ms=_now_ms)
        self._environ = without_keys(environ, providers)
        self._commands = KeyCommands()

    async def keys(self, provider: str) -> tuple[OfferedKey, ...]:
        """See `Keyring.keys`."""
        return self._sources.keys(provider)

    def is_login(self, provider: str, key: OfferedKey) -> bool:
        """Whether another token can be got for it."""
        return self._sources.login(provider, key.account) is not None

    async def fetched(self, provider: str, key: OfferedKey, *, stale: str | None) -> OfferedKey | NotRenewed:
        """See `Keyring.fetched`. A login is renewed, and the new pair on the disk, before this returns."""
        if key.source is KeySource.COMMAND:
            return await self._printed(provider, key, stale)
        login = self._sources.login(provider, key.account)
        if login is None:
            return NotRenewed("a plain key cannot be renewed", is_final=True)
        if self._sources.rest_of(provider, login.token or "") is not None:
            stale = login.token  # refused by somebody else
        renewed = await _to_its_end(self._renewer.renew(provider, key.account, stale))
        if isinstance(renewed, NotRenewed):
            return renewed
        self._sources.kept = self._file.read()
        return _with_secret(key, renewed.credential.access_token, renewed.credential.expires_ms)

    async def _printed(self, provider: str, key: OfferedKey, stale: str | None) -> OfferedKey | NotRenewed:
        try:
            got = await self._commands.fetch(self._sources.command(provider) or "", self._environ)
        except asyncio.CancelledError:
            self._commands.close()  # or the thread, which nobody can cancel, would wait for it
            raise
        if isinstance(got, str):
            return NotRenewed(got, is_final=False)
        self._sources.commanded[key.account] = got
        if fingerprint(got.secret) == stale:
            return NotRenewed("api_key_command printed the key again that was refused", is_final=False)
        return _with_secret(key, got.secret, got.until_ms)


class FleetKeyring:
    """What the running fleet has. Owned by one loop; what is asked ends with the link."""

    at = " where the fleet is started"

    def __init__(self, link: Link, problem: CredentialProblem | None, *, warn: Callable[[str], None]) -> None:
        """`problem` is what is wrong with the file now; the fleet goes on with what it read last, if it read it."""
        self._link = link
        self._problem = problem
        self._warn = warn
        self._has_warned = False

    async def keys(self, provider: str) -> tuple[OfferedKey, ...]:
        """See `Keyring.keys`. Raises `CredentialProblem` where the fleet could never read the file, either."""
        offered = cast(KeysOffered, await self._link.ask(KeysQuery(provider=provider), timeout_s=OFFER_S))
        if self._problem is None:
            return offered.keys
        if not offered.keys:
            raise self._problem
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"{self._problem}; the running fleet goes on with what it read last")
        return offered.keys

    async def fetched(self, provider: str, key: OfferedKey, *, stale: str | None) -> OfferedKey | NotRenewed:
        """See `Keyring.fetched`."""
        ask = RenewKey(provider=provider, account=key.account, stale=stale)
        try:
            renewed = cast(KeyRenewed, await self._link.ask(ask, timeout_s=RENEW_S))
        except CoveyError as error:
            return NotRenewed(f"the fleet's credentials cannot be asked: {error}", is_final=False)
        if renewed.key is None or renewed.key.secret is None:
            return NotRenewed(renewed.problem or "the fleet has no other one", is_final=False)
        return renewed.key


@asynccontextmanager
async def fleet_keyring(home: Home, info: RootInfo, *, warn: Callable[[str], None]) -> AsyncIterator[FleetKeyring]:
    """The keys of the fleet with this root; raises `NoFleet` if it has just ended. A damaged file is told to `warn`."""
    problem = _problem_of(home, warn)
    door, context = HomeDoor(home, info), make_context()
    who = Peer(
        role="client",
        name="command",
        incarnation=Incarnation(f"{os.getpid()}-{secrets.token_hex(6)}"),
        owner=me(),
    )
    link = door.link(context, "broker", me=who, replies=CredentialsReply)
    door.watch(lambda: link.fail(FleetLost(door.where, "a question about keys")))
    try:
        yield FleetKeyring(link, problem, warn=warn)
    finally:
        await door.close()
        link.close()
        context.term()


def _problem_of(home: Home, on_mended: Callable[[str], None]) -> CredentialProblem | None:
    try:
        CredentialFile(home, on_mended=on_mended).names()
    except CredentialProblem as problem:
        return problem
    return None


async def _to_its_end(renewal: Coroutine[Any, Any, T]) -> T:
    """What is begun is finished, also when the command is interrupted: the refresh token may be good once."""
    task = asyncio.ensure_future(renewal)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def _with_secret(key: OfferedKey, secret: str | None, expires_ms: int | None) -> OfferedKey:
    return msgspec.structs.replace(key, secret=secret, expires_ms=expires_ms)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
