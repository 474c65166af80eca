"""The credentials of the fleet: what each provider's keys are, which rest, and the one place that renews them.

Lives beside the broker, in its process, and shares its socket. What it knows is on file: a successor goes on with it,
and whoever waited asks that one again (links do). Nothing here waits in the mailbox's turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, assert_never

from ...protocol.destination import fingerprint
from ...protocol.errors import CoveyError
from ...protocol.fault_kinds import FaultKind
from ...protocol.messages.base import Done, Wire
from ...protocol.messages.credentials import (
    CredentialsQuery,
    CredentialsRequest,
    CredentialsView,
    KeyRenewed,
    KeysOffered,
    KeysQuery,
    KeyTrouble,
    KeyWorks,
    OfferedKey,
    RenewKey,
    Rest,
)
from ...protocol.settings import ProviderSettings
from ...storage.credentials import OAuthCredential
from ...storage.logs import log_event
from ..ports import Request
from ..runtime.actor import LoopActor
from ..runtime.exits import ExitReason
from .key_command import KeyCommands, unix_ms
from .oauth import refresh
from .renewal import CredentialStore, Exchange, NotRenewed, Renewer
from .rests import longer
from .sources import Account, Failure, Sources, command_account, without_keys

log = logging.getLogger(__name__)

LATER_MS: Final = 5_000
LATEST_MS: Final = 300_000
"""How long a renewal that failed is not repeated: the first, doubled each time, up to the second."""

_FORGET_MS: Final = 31 * 24 * 3_600_000

Reply = Callable[[Wire], None]


class RestStore(Protocol):
    """Which keys rest, on file, by provider and fingerprint. Blocks; `save` may lose what it got last."""

    def load(self) -> dict[str, dict[str, Rest]]:
        """What was saved; nothing where that cannot be read."""
        ...

    def save(self, rests: Mapping[str, Mapping[str, Rest]]) -> None:
        """Replace it."""
        ...


@dataclass(frozen=True, slots=True)
class Providers:
    """The providers of the configuration are these from now on."""

    providers: Mapping[str, ProviderSettings]


class Settle:
    """Answered once no renewal is under way; none is begun any more."""


@dataclass(slots=True)
class _Waiter:
    reply: Reply
    stale: str | None


class Credentials(LoopActor):
    """Answers `Request[CredentialsRequest]`s; told of `Providers`; asked to `Settle`. Owned by the loop thread."""

    def __init__(
        self,
        *,
        providers: Mapping[str, ProviderSettings],
        store: CredentialStore,
        rests: RestStore,
        environ: Mapping[str, str],
        exchange: Exchange = refresh,
        wall_ms: Callable[[], int] = unix_ms,
    ) -> None:
        super().__init__()
        self._sources = Sources(providers, environ, wall_ms=wall_ms)
        self._store = store
        self._rest_store = rests
        self._wall_ms = wall_ms
        self._renewer = Renewer(store, exchange, wall_ms=wall_ms)
        self._environ = environ
        self._commands = KeyCommands(wall_ms=wall_ms)
        self._problem: str | None = None
        self._read_as: object = _NEVER
        self._saving: asyncio.Task[None] | None = None
        self._is_unsaved = False
        self._waiting: dict[Account, list[_Waiter]] = {}
        self._settling: asyncio.Future[None] | None = None

    def on_start(self) -> None:
        """Remember who rests."""
        now_ms = self._wall_ms()
        for provider, rests in self._rest_store.load().items():
            held = {name: rest for name, rest in rests.items() if _is_worth_keeping(rest, now_ms)}
            self._sources.rests[provider] = held
        self._look()

    async def on_receive(self, message: object) -> None:
        """Take one message."""
        match message:
            case Request():
                self._serve(message)
            case Providers(providers=providers):
                self._sources.providers = providers
            case Settle():
                await self._settle()
            case _:
                raise TypeError(f"credentials have no use for a {type(message).__name__}")

    def on_stop(self, reason: ExitReason) -> None:  # type: ignore[override]  # pykka's knows no reason
        """End what runs; who waits asks the successor again."""
        self._commands.close()

    def _serve(self, request: Request[CredentialsRequest]) -> None:
        match request.body:
            case KeysQuery(provider=provider):
                request.reply(self._offered(provider))
            case RenewKey():
                self._renew(request.body, request.reply)
            case KeyTrouble():
                self._trouble(request.body)
                request.reply(Done())
            case KeyWorks(provider=provider, account=account, token=token):
                self._works(provider, account, token)
                request.reply(Done())
            case CredentialsQuery():
                request.reply(self._view())
            case _:
                assert_never(request.body)

    # --- the pools ---------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read the file again if it may have changed; what is damaged changes nothing."""
        signature = self._store.signature()
        # What is refused is looked at every time: it may be its folder that is mended.
        if signature == self._read_as and self._problem is None:
            return
        self._read_as = signature
        try:
            self._sources.kept, self._problem = self._store.read(), None
        except CoveyError as error:
            if str(error) != self._problem:
                goes_on = self._sources.kept is not None
                log_event(log, "credentials_refused", level=logging.ERROR, problem=error, last_good_holds=goes_on)
            self._problem = str(error)

    def _offered(self, name: str) -> KeysOffered:
        self._look()
        if self._sources.kept is None:
            return KeysOffered(problem=self._problem)
        keys = self._sources.keys(name)
        for login in self._sources.logins(name):
            self._renew_ahead(name, login)
        needs_one = not keys and self._sources.needs_one(name)
        return KeysOffered(keys=keys, problem=self._sources.why_none(name) if needs_one else None)

    # --- renewing ----------------------------------------------------------------------------------------------------

    def _renew(self, ask: RenewKey, reply: Reply) -> None:
        self._look()
        key = self._sources.key(ask.provider, ask.account)
        if key is not None and key.secret is not None and fingerprint(key.secret) != ask.stale:
            reply(KeyRenewed(key=key))
            return
        problem = self._cannot_renew(ask, key)
        if problem is not None:
            reply(KeyRenewed(problem=problem))
            return
        if self._settling is not None:
            return  # the successor is asked again
        self._begin(ask.provider, ask.account, ask.stale, _Waiter(reply, ask.stale))

    def _cannot_renew(self, ask: RenewKey, key: OfferedKey | None) -> str | None:
        """Why no request can bring another key now."""
        if key is None:
            return self._problem or "it was removed or replaced"
        if not self._sources.is_renewable(ask.provider, ask.account):
            return f"a plain key cannot be renewed; replace it with `covey auth add {ask.provider}`"
        blocked = self._sources.blocked(ask.provider, ask.account)
        if blocked is not None:
            return blocked.reason
        if ask.stale is not None and self._sources.is_fresh(ask.provider, ask.account, ask.stale):
            return "it was renewed just now, and refused again"
        return None

    def _renew_ahead(self, provider: str, login: OAuthCredential) -> None:
        """Begin before the token ends: no call waits for it."""
        now_ms = self._wall_ms()
        is_due = login.is_good(now_ms) and login.is_due(now_ms) and self._settling is None
        if is_due and self._sources.blocked(provider, login.account) is None:
            self._begin(provider, login.account, login.token, None)

    def _begin(self, provider: str, account: str, stale: str | None, waiter: _Waiter | None) -> None:
        """Wait for the renewal of this account that runs, or for a new one."""
        waiting = self._waiting.get((provider, account))
        if waiting is None:
            waiting = self._waiting[provider, account] = []
            self.own(self._run(provider, account, stale), name=f"renew:{provider}")
        if waiter is not None:
            waiting.append(waiter)

    async def _run(self, provider: str, account: str, stale: str | None) -> None:
        command = self._sources.command(provider)
        if command is not None and account == command_account(provider, command):
            failed = await self._fetch(provider, account, command, stale)
        else:
            failed = await self._refresh(provider, account, stale)
        if failed is None:
            self._sources.failures.pop((provider, account), None)
        elif self._settling is None:
            self._fail(provider, account, failed)
        self._answer(provider, account, failed)

    async def _refresh(self, provider: str, account: str, stale: str | None) -> NotRenewed | None:
        login = self._sources.login(provider, account)
        if login is not None and self._sources.rest_of(provider, login.token or "") is not None:
            stale = login.token  # refused by somebody else: it is not to be adopted again
        found = await self._renewer.renew(provider, account, stale)
        self._look()
        if isinstance(found, NotRenewed):
            return found
        event = "credential_renewed" if found.was_asked else "credential_adopted"
        log_event(log, event, provider=provider, account=account, label=found.credential.label)
        return None

    async def _fetch(self, provider: str, account: str, command: str, stale: str | None) -> NotRenewed | None:
        found = await self._commands.fetch(command, without_keys(self._environ, self._sources.providers))
        if isinstance(found, str):
            return NotRenewed(found, is_final=False)
        self._sources.commanded[account] = found
        token = fingerprint(found.secret) or ""
        if token == stale or self._sources.rest_of(provider, token) is not None:
            return NotRenewed("api_key_command printed the key again that was refused", is_final=False)
        log_event(log, "key_command_ran", provider=provider, account=account)
        return None

    def _fail(self, provider: str, account: str, failed: NotRenewed) -> None:
        before = self._sources.failures.get((provider, account))
        tries = before.tries + 1 if before is not None else 0
        now_ms = self._wall_ms()
        wait_ms = min(LATER_MS * 2 ** min(tries, 10), LATEST_MS)
        rest = Rest(kind=FaultKind.AUTH, reason=failed.reason, since_ms=now_ms, until_ms=now_ms + wait_ms)
        self._sources.failures[provider, account] = Failure(rest, tries)
        level = logging.ERROR if failed.is_final else logging.WARNING
        log_event(log, "credential_not_renewed", level=level, provider=provider, account=account, why=failed.reason)

    def _answer(self, provider: str, account: str, failed: NotRenewed | None) -> None:
        key = self._sources.key(provider, account)
        now = fingerprint(key.secret) if key is not None else None
        for waiter in self._waiting.pop((provider, account)):
            if now is not None and now != waiter.stale:
                waiter.reply(KeyRenewed(key=key))
            elif self._settling is None:  # or the successor is asked again
                waiter.reply(KeyRenewed(problem=failed.reason if failed is not None else "it was replaced meanwhile"))
        if not self._waiting and self._settling is not None and not self._settling.done():
            self._settling.set_result(None)

    async def _settle(self) -> None:
        self._commands.close()  # they can be run again; a refresh token may be good once
        self._settling = asyncio.get_running_loop().create_future()
        if self._waiting:
            await self._settling

    # --- rests -------------------------------------------------------------------------------------------------------

    def _trouble(self, said: KeyTrouble) -> None:
        """An account rests, or only the token that was refused, if another one can be had for it."""
        self._look()
        name = said.account
        is_of_token = said.rest.kind is FaultKind.AUTH and self._sources.is_renewable(said.provider, said.account)
        if is_of_token and not self._sources.is_fresh(said.provider, said.account, said.token):
            name = said.token
        before = self._sources.rests.get(said.provider, {}).get(name)
        after = longer(before, said.rest)
        if after is None or after == before or (before is not None and before.is_dead):
            return
        self._sources.rests.setdefault(said.provider, {})[name] = after
        log_event(
            log,
            "key_rests",
            level=logging.WARNING,
            provider=said.provider,
            account=said.account,
            kind=said.rest.kind.value,
            until_ms=said.rest.until_ms,
        )
        self._save()

    def _works(self, provider: str, account: str, token: str) -> None:
        rests = self._sources.rests.get(provider, {})
        gone = [rests.pop(name) for name in {account, token} if name in rests]
        self._sources.failures.pop((provider, account), None)
        if gone:
            log_event(log, "key_rests_no_more", provider=provider, account=account)
            self._save()

    def _save(self) -> None:
        """Write soon, one at a time; the last state always gets there."""
        self._is_unsaved = True
        if self._saving is None or self._saving.done():
            self._saving = self.own(self._write_rests(), name="save rests")

    async def _write_rests(self) -> None:
        while self._is_unsaved:
            self._is_unsaved = False
            rests = {provider: dict(by_name) for provider, by_name in self._sources.rests.items() if by_name}
            try:
                await asyncio.to_thread(self._rest_store.save, rests)
            except CoveyError as error:
                # The next change writes it all; until then a successor would try these keys once.
                log_event(log, "rests_unsaved", level=logging.WARNING, problem=error)

    # --- for people --------------------------------------------------------------------------------------------------

    def _view(self) -> CredentialsView:
        self._look()
        views = self._sources.views() if self._sources.kept is not None else ()
        return CredentialsView(credentials=views, problem=self._problem)


def _is_worth_keeping(rest: Rest, now_ms: int) -> bool:
    return rest.holds(now_ms) and now_ms - rest.since_ms < _FORGET_MS


_NEVER: Final = object()
