"""The broker: the one owner of every provider budget of the fleet.

A shell around `limits.Book`, which decides; this carries out. What the order of the steps guarantees:

- a grant is in the journal before its caller hears of it, so a killed broker's successor counts it;
- a lost call is with the ledger before the journal forgets its lease, so the successor reports it if we could not;
- a failing journal ends the broker: slots that nobody could account for are not given out.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final, assert_never

from ..protocol.destination import host_of
from ..protocol.errors import OutboxFull
from ..protocol.ids import BudgetKey, CallId, Incarnation
from ..protocol.messages.base import Done, Failed, Wire
from ..protocol.messages.broker import (
    Acquire,
    Answering,
    BrokerRequest,
    Budgets,
    BudgetsQuery,
    DeclareCap,
    Policy,
    PolicyQuery,
    QuotaSeen,
    Refusal,
    Release,
    ReleaseAll,
    Renew,
    Revoke,
    Unlimited,
    Unlock,
)
from ..protocol.peer import Owner
from ..protocol.settings import BudgetSettings, ProviderSettings
from ..storage.lease_journal import LeaseJournal
from ..storage.leases import Lease, LeaseEnded, LeaseGranted
from ..storage.logs import log_event
from ..storage.owners import boot_id, is_stopped
from ..storage.standings import Standing
from .holders import Holders
from .limits.accounts import Accounts
from .limits.actions import (
    Action,
    Answered,
    Asked,
    CapDeclared,
    Died,
    End,
    Event,
    GivenBack,
    Grant,
    Keep,
    Left,
    Limited,
    Lose,
    Overdue,
    Pass,
    QuotaRead,
    Refuse,
    Reject,
    Renewed,
    Revoked,
    Ticked,
    Unlocked,
    Unwatch,
    Watch,
)
from .limits.answers import claim_of, granted, lost_call, problem_with, refused, views
from .limits.book import CUT_LINGER_S, QUEUE_BOUND, REMOTE_TTL_S, Book
from .limits.caps import FLEET, period_end, problem_with_cap, stamp_of
from .ports import Ledger, PeerLeft, Request
from .runtime.actor import LoopActor, Timer
from .runtime.errors import ActorDown
from .runtime.exits import ExitReason

log = logging.getLogger(__name__)

REPORT_AGAIN_S: Final = 1.0
LEAST_TICK_S: Final = 0.001
"""Timers count in milliseconds and may come early: one that is set for less would come at once, again and again."""
FARTHEST_TICK_S: Final = 10.0
"""Timers stand still while the host sleeps and deadlines do not: so we look again in time."""

_SMALL_BYTES: Final = 1024
"""A request, without the texts in it that may be long."""

NO_BUDGET: Final = BudgetSettings()

Reply = Callable[[Wire], None]


@dataclass(frozen=True, slots=True)
class Configured:
    """The providers of the configuration, and the fleet's budget, are these from now on; leases live on."""

    providers: Mapping[str, ProviderSettings]
    budget: BudgetSettings = NO_BUDGET


@dataclass(frozen=True, slots=True)
class _OwnerDied:
    owner: Owner


class _Tick:
    """Some deadline may have passed, or the ledger may have room again."""


_TICK: Final = _Tick()


def boottime() -> float:
    """Return seconds since boot, suspended time included: the same clock in every process of this boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def unix_ms() -> int:
    """Return the wall clock."""
    return time.time_ns() // 1_000_000


class Broker(LoopActor):
    """Answers `Request[BrokerRequest]`s; told of `PeerLeft` and `Configured`. All state is owned by the loop thread.

    `clock` must go on over restarts of the broker (`boottime`); the journal is closed when the broker stops.
    `queue_bound` counts all waiters of the fleet; more are refused, and told so.
    """

    # A full queue's callers may all give up in the same moment, and a release must find room.
    mailbox_limit: ClassVar[int] = 5 * QUEUE_BOUND

    def __init__(
        self,
        *,
        providers: Mapping[str, ProviderSettings],
        journal: LeaseJournal,
        ledger: Ledger,
        budget: BudgetSettings = NO_BUDGET,
        clock: Callable[[], float] = boottime,
        wall_ms: Callable[[], int] = unix_ms,
        chance: Callable[[], float] = random.random,
        queue_bound: int = QUEUE_BOUND,
        remote_ttl_s: float = REMOTE_TTL_S,
    ) -> None:
        super().__init__()
        self._accounts = Accounts(providers.values())
        self._book = Book(self._accounts.terms, boot=boot_id(), queue_bound=queue_bound, remote_ttl_s=remote_ttl_s)
        self._budget = budget
        self._period_ends_ms = math.inf
        self._remote_ttl_s = remote_ttl_s
        self._journal = journal
        self._ledger = ledger
        self._clock = clock
        self._wall_ms = wall_ms
        self._chance = chance
        self._replies: dict[tuple[CallId, Incarnation], Reply] = {}
        self._unreported: deque[Lose] = deque()
        self._holders = Holders(self._owner_died)
        self._tick_at = math.inf
        self._timer: Timer | None = None

    async def on_start(self) -> None:  # type: ignore[override] # pykka's own is not awaited
        """Take over every lease that is outstanding; nothing is granted before."""
        left = self._journal.state
        log_event(log, "broker_started", outstanding=len(left.leases), torn_bytes=self._journal.ignored_bytes or None)
        self._carry_out(self._book.restore(left, self._clock(), self._wall_ms()))
        self._begin_period()
        if left.totals:
            # The journal knows no slots that lingered when our predecessor died: outwait them.
            await asyncio.sleep(CUT_LINGER_S)
        self._set_timer()

    def on_receive(self, message: object) -> None:
        """Take one message."""
        match message:
            case Request():
                self._serve(message)
            case PeerLeft(peer=peer):
                self._decide(Left(peer))
            case _OwnerDied(owner=owner):
                self._decide(Died(owner))
            case _Tick():
                self._tick_at, self._timer = math.inf, None
                self._report_again()
                self._decide(Ticked())
            case Configured(providers=providers, budget=budget):
                self._accounts = Accounts(providers.values())
                self._decide(Limited(self._accounts.terms))
                self._budget = budget
                self._begin_period()
            case _:
                raise TypeError(f"the broker has no use for a {type(message).__name__}")
        self._set_timer()

    def on_stop(self, reason: ExitReason) -> None:  # type: ignore[override]  # pykka's knows no reason
        """Stop watching and close the journal; leases stay in it, waiters ask the successor again."""
        self._holders.close()
        self._journal.close()

    def message_bytes(self, message: object) -> int:
        """Count the texts of what comes all the time; looking into every field costs a tenth of serving it."""
        if isinstance(message, Request):
            match message.body:
                case Release(call=call, outcome=None):
                    return _SMALL_BYTES + len(call)
                case Acquire() as ask:
                    return _SMALL_BYTES + _text_bytes(ask)
        return super().message_bytes(message)

    # --- requests ----------------------------------------------------------------------------------------------------

    def _serve(self, request: Request[BrokerRequest]) -> None:
        match request.body:
            case Acquire():
                self._acquire(request.body, request)
            case Release(call=call, was_cut=was_cut, outcome=outcome):
                asker = request.peer.incarnation
                self._decide(GivenBack(call, was_cut, outcome, self._chance(), asker))
                request.reply(Done())
            case Answering(call=call):
                self._decide(Answered(call, request.peer.incarnation))
                request.reply(Done())
            case Unlock(budget=budget):
                self._unlock(budget, request)
            case QuotaSeen(budget=budget, windows=windows):
                self._decide(QuotaRead(budget, windows))
                request.reply(Done())
            case DeclareCap():
                self._declare(request.body, request)
            case Revoke(agents=agents):
                log_event(log, "agents_revoked", agents=len(agents))
                self._decide(Revoked(agents))
                request.reply(Done())
            case Renew():
                self._decide(Renewed(request.peer.owner))
                request.reply(Done())
            case ReleaseAll():
                self._decide(Left(request.peer))
                request.reply(Done())
            case BudgetsQuery():
                request.reply(self._budgets())
            case PolicyQuery():
                request.reply(self._policy())
            case _:
                assert_never(request.body)

    def _acquire(self, ask: Acquire, request: Request[BrokerRequest]) -> None:
        problem = problem_with(ask)
        if problem is not None:
            request.reply(Failed(kind="UsageError", message=f"acquire refused: {problem}"))
            return
        if self._wall_ms() >= self._period_ends_ms:
            self._begin_period()
        provider = self._accounts.provider_of(ask.destination)
        if provider is None and not self._book.counts(ask.cap):
            request.reply(Unlimited(call=ask.call))
            return
        provider = provider or ask.destination.provider or host_of(ask.destination.base_url) or "unknown"
        claim = claim_of(ask, request.peer, provider=provider, accounts=self._accounts, now_ms=self._wall_ms())
        self._replies[ask.call, request.peer.incarnation] = request.reply
        self._decide(Asked(claim))

    def _unlock(self, budget: BudgetKey, request: Request[BrokerRequest]) -> None:
        if budget not in self._book.accounts:
            known = ", ".join(sorted(self._book.accounts)) or "none"
            request.reply(Failed(kind="UsageError", message=f"there is no budget {budget}; there are: {known}"))
            return
        log_event(log, "budget_unlocked", budget=budget)
        self._decide(Unlocked(budget))
        request.reply(Done())

    def _declare(self, ask: DeclareCap, request: Request[BrokerRequest]) -> None:
        problem = problem_with_cap(ask.name, ask.max_tokens, ask.max_cost_usd)
        if problem is not None:
            request.reply(Failed(kind="UsageError", message=f"cap refused: {problem}"))
            return
        self._decide(CapDeclared(ask.name, ask.max_tokens, ask.max_cost_usd))
        request.reply(Done())

    def _begin_period(self) -> None:
        """Let the fleet's own cap be what is configured, in the period that now is."""
        now = datetime.fromtimestamp(self._wall_ms() / 1000).astimezone()
        ends = period_end(self._budget.period, now)
        self._period_ends_ms = math.inf if ends is None else ends.timestamp() * 1000
        stamp = stamp_of(self._budget.period, now.date(), life=self._journal.state.life or "")
        self._decide(CapDeclared(FLEET, self._budget.max_tokens, self._budget.max_cost_usd, stamp))

    def _budgets(self) -> Budgets:
        seen = views(self._book, self._accounts, self._clock(), self._wall_ms(), is_stopped=is_stopped)
        return Budgets(budgets=seen, caps=self._book.caps())

    def _policy(self) -> Policy:
        return Policy(limits=self._accounts.policy, remote_ttl_s=self._remote_ttl_s, counts_all=self._book.counts(None))

    def _answer(self, call: CallId, asker: Incarnation, answer: Wire) -> None:
        reply = self._replies.pop((call, asker), None)
        if reply is not None:
            reply(answer)

    # --- decide, then do ---------------------------------------------------------------------------------------------

    def _decide(self, event: Event) -> None:
        self._carry_out(self._book.decide(event, self._clock(), self._wall_ms()))

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            self._do(action)

    def _do(self, action: Action) -> None:
        match action:
            case Grant(lease=lease):
                self._grant(action, lease)
            case Refuse(call=call, asker=asker):
                level = logging.DEBUG if action.reason is Refusal.WITHDRAWN else logging.WARNING
                log_event(log, "slot_refused", level=level, call=call, budget=action.budget, reason=action.reason.value)
                self._answer(call, asker, refused(action))
            case Pass(call=call, asker=asker):
                self._answer(call, asker, Unlimited(call=call))
            case Reject(call=call, asker=asker):
                text = f"call {call} belongs to another process; give each call a name of its own"
                self._answer(call, asker, Failed(kind="UsageError", message=text))
            case End(lease=lease, spent=spent):
                self._journal.append(LeaseEnded(call=lease.call, caps=spent))
            case Overdue(lease=lease, spent=spent):
                _log_lease("lease_overdue", lease)
                self._journal.append(LeaseEnded(call=lease.call, caps=spent))
            case Lose(lease=lease):
                _log_lease("lease_lost", lease)
                self._lose(action)
            case Watch(owner=owner):
                self._holders.watch(owner)
            case Unwatch(owner=owner):
                self._holders.unwatch(owner)
            case Keep(record=record):
                self._journal.append(record)
                if isinstance(record, Standing):
                    if record.lock is not None:
                        self._journal.sync()  # a power cut must not open what only a person may
                    _log_standing(record)
            case _:
                assert_never(action)

    def _grant(self, action: Grant, lease: Lease) -> None:
        if action.is_new:
            self._journal.append(LeaseGranted(lease=lease, in_flight=action.in_flight))
        self._answer(lease.call, lease.holder.incarnation, granted(action))

    def _lose(self, lost: Lose) -> None:
        if lost.lease.accounted:
            try:
                self._ledger.record(lost_call(lost.lease))
            except OutboxFull:
                # What it spent goes on file now: said later, it would undo what others spent meanwhile.
                for cap in lost.spent:
                    self._journal.append(cap)
                self._unreported.append(Lose(lost.lease))
                return
        self._journal.append(LeaseEnded(call=lost.lease.call, caps=lost.spent))

    def _report_again(self) -> None:
        waiting, self._unreported = self._unreported, deque()
        for lost in waiting:
            self._lose(lost)

    # --- wake-ups ----------------------------------------------------------------------------------------------------

    def _owner_died(self, owner: Owner) -> None:
        # As a message of our own: an error in a callback of the loop would be logged and forgotten.
        with suppress(ActorDown):
            self.after(0.0, _OwnerDied(owner))

    def _set_timer(self) -> None:
        """See to it that a tick comes no later than the next deadline; an early one does no harm."""
        now = self._clock()
        deadline = self._book.next_deadline()
        at = math.inf if deadline is None else min(deadline, now + FARTHEST_TICK_S)
        if self._unreported:
            at = min(at, now + REPORT_AGAIN_S)
        if at >= self._tick_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._tick_at = at
        self._timer = self.after(max(LEAST_TICK_S, at - now), _TICK)


def _text_bytes(ask: Acquire) -> int:
    texts = (ask.call, ask.model, ask.destination.base_url, ask.session, ask.agent, ask.tree, ask.work, ask.cap)
    return sum(len(text) for text in texts if text is not None)


def _log_lease(event: str, lease: Lease) -> None:
    log_event(
        log,
        event,
        level=logging.WARNING,
        call=lease.call,
        budget=lease.budget,
        holder=lease.holder.name,
        pid=lease.holder.owner.pid,
        agent=lease.agent,
    )


def _log_standing(standing: Standing) -> None:
    closed = standing.lock or next((park.reason for park in standing.parks), None)
    hold = standing.hold
    log_event(
        log,
        "budget_standing",
        level=logging.WARNING if closed or hold else logging.INFO,
        budget=standing.budget,
        state="locked" if standing.lock else "parked" if standing.parks else hold.state.value if hold else "open",
        reason=closed,
        learned=standing.learned,
        release_lag_ms=standing.release_lag_ms or None,
    )
