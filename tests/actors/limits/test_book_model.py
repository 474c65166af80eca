"""The broker's rules under everything at once: random asks, copies, releases, deaths, limits and time."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from covey.actors.limits.account import Aside
from covey.actors.limits.actions import (
    Action,
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
    Ticked,
    Unlocked,
    Unwatch,
    Watch,
)
from covey.actors.limits.book import CUT_LINGER_S, REMOTE_TTL_S, Book
from covey.actors.limits.claim import Claim
from covey.actors.limits.terms import NO_LIMIT, Terms
from covey.protocol.faults import FaultKind, fault_named
from covey.protocol.ids import BudgetKey, CallId, Incarnation
from covey.protocol.messages.broker import BudgetState, Outcome, Priority, QuotaWindow, Refusal
from covey.protocol.peer import REMOTE, Owner, Peer
from covey.storage.leases import LeaseEnded, LeaseGranted, LifeBegan, Outstanding

QUEUE_BOUND = 6
PROVIDERS = ("zai", "other")
TROUBLES = (FaultKind.CONCURRENCY, FaultKind.OVERLOADED, FaultKind.QUOTA, FaultKind.LOCKED, FaultKind.SERVER_ERROR)


def terms(limits: dict[str, int]) -> dict[str, Terms]:
    return {provider: Terms(limit=limit) for provider, limit in limits.items()}


class BookMachine(RuleBasedStateMachine):
    """Carries out what the book decides, as the broker would, and holds the book to its promises.

    `calls` says what the world knows of each call: waiting, held, or over.
    """

    asks = Bundle("asks")
    peers = Bundle("peers")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.limits = {"zai": 2, "other": 1}
        self.book = Book(terms(self.limits), queue_bound=QUEUE_BOUND)
        self.journal = Outstanding()
        self.journal.apply(LifeBegan(life="life"))
        self.waiting: dict[CallId, Claim] = {}
        self.held: dict[CallId, Claim] = {}
        self.lingering: dict[CallId, tuple[BudgetKey, float]] = {}
        self.watched: set[Owner] = set()
        self.dead: set[Owner] = set()
        self.believed: dict[Owner, float] = {}
        self.fresh: set[CallId] = set()
        self.made = 0
        self.had_trouble = False

    # --- the world ---------------------------------------------------------------------------------------------------

    @initialize(target=peers)
    def begin(self) -> object:
        far = (self._peer(number, boot=f"{REMOTE}desk:boot") for number in (90, 91))
        return multiple(*(self._peer(number) for number in range(3)), *far)

    @rule(target=peers)
    def connect(self) -> Peer:
        self.made += 1
        return self._peer(100 + self.made)

    @rule(target=peers)
    def connect_from_afar(self) -> Peer:
        self.made += 1
        return self._peer(100 + self.made, boot=f"{REMOTE}laptop:boot")

    @rule(
        target=asks,
        peer=peers,
        provider=st.sampled_from(PROVIDERS),
        priority=st.sampled_from(Priority),
        tree=st.sampled_from("ab"),
        timeout_s=st.sampled_from([None, None, 0.0, 5.0, 50.0]),
        hold_s=st.sampled_from([20.0, 1000.0]),
        extra=st.sampled_from([(None, None), ("swarm", None), ("swarm", 8), (None, 30)]),
        work=st.sampled_from(["w1", "w2"]),
    )
    def ask(  # noqa: PLR0917 - hypothesis passes them by name
        self,
        peer: Peer,
        provider: str,
        priority: Priority,
        tree: str,
        timeout_s: float | None,
        hold_s: float,
        extra: tuple[str | None, int | None],
        work: str,
    ) -> Claim:
        self.made += 1
        claim = Claim(
            call=CallId(f"c{self.made}"),
            budget=BudgetKey(provider),
            provider=provider,
            base_url="https://example.org",
            model="m",
            holder=peer,
            tree=tree,
            priority=priority,
            timeout_s=timeout_s,
            hold_s=hold_s,
            asked_at_ms=0,
            cap=extra[0],
            estimated_tokens=extra[1],
            work=work,
        )
        self._ask(claim)
        return claim

    @rule(claim=asks)
    def ask_again(self, claim: Claim) -> None:
        was_held, was_waiting = claim.call in self.held, claim.call in self.waiting
        before = self.book.accounts[claim.budget].budget.granted if claim.budget in self.book.accounts else 0
        deadline = self.book._roll._deadlines._at.get(claim.call, self.now + 1)

        actions = self._ask(claim)

        if was_held and deadline > self.now:
            assert [type(action) for action in actions] == [Grant]
            assert self.book.accounts[claim.budget].budget.granted == before
        elif was_waiting and deadline > self.now:
            assert actions == []

    @rule(claim=asks, was_cut=st.booleans())
    def give_back(self, claim: Claim, was_cut: bool) -> None:
        was_held = claim.call in self.held
        self._decide(GivenBack(claim.call, was_cut), cut={claim.call} if was_cut and was_held else set())

        assert claim.call not in self.held
        assert claim.call not in self.waiting
        assert claim.call not in self.book._roll._where._place

    @rule(claim=asks, kind=st.sampled_from([None, *TROUBLES]), chance=st.floats(0, 1))
    def end(self, claim: Claim, kind: FaultKind | None, chance: float) -> None:
        """The provider answered, or was in some trouble."""
        self.had_trouble |= kind is not None
        fault = None if kind is None else fault_named(kind, "trouble")
        self._decide(GivenBack(claim.call, outcome=Outcome(fault=fault, tokens=5), chance=chance))

        assert claim.call not in self._calls()

    @rule(provider=st.sampled_from(PROVIDERS))
    def unlock(self, provider: str) -> None:
        self._decide(Unlocked(BudgetKey(provider)))

    @rule(percent=st.sampled_from([50.0, 100.0]), resets=st.sampled_from([None, 40.0]))
    def read_quota(self, percent: float, resets: float | None) -> None:
        at = None if resets is None else round((self.now + resets) * 1000)
        window = QuotaWindow(name="5 h", used_percent=percent, resets_at_ms=at)
        self._decide(QuotaRead(BudgetKey("zai"), (window,)))

    @rule(limit=st.sampled_from([None, 0, 12, 40]))
    def declare(self, limit: int | None) -> None:
        self._decide(CapDeclared("swarm", limit, None))

    @rule(peer=peers)
    def leave(self, peer: Peer) -> None:
        self._decide(Left(peer), cut={call for call, claim in self.held.items() if claim.holder == peer})

        assert not [c for c in (*self.held.values(), *self.waiting.values()) if c.holder == peer]

    @rule(peer=peers)
    def renew(self, peer: Peer) -> None:
        self._decide(Renewed(peer.owner))
        if peer.owner in self.believed:
            self.believed[peer.owner] = self.now + REMOTE_TTL_S

    @rule(peer=peers)
    def die(self, peer: Peer) -> None:
        self.dead.add(peer.owner)
        self._tell_deaths()

    @rule(provider=st.sampled_from(PROVIDERS), limit=st.integers(0, 4))
    def limit(self, provider: str, limit: int) -> None:
        self.limits = {**self.limits, provider: limit}
        if limit == 0:
            del self.limits[provider]
        self._decide(Limited(terms(self.limits)))

    @rule(dt=st.sampled_from([0.0, CUT_LINGER_S, 1.0, 5.0, 20.0, 60.0]))
    def pass_time(self, dt: float) -> None:
        self.now += dt
        self._decide(Ticked())

    @rule()
    def replace_the_broker(self) -> None:
        """The broker is killed; waiters ask its successor again, in any case after it read the journal."""
        resent = list(self.waiting.values())
        self.now += CUT_LINGER_S  # the successor waits that long: it knows of no slot that lingers
        self.waiting.clear()
        self.watched.clear()
        self.book = Book(terms(self.limits), queue_bound=QUEUE_BOUND)
        self._carry_out(self.book.restore(self.journal, self.now))
        self.believed = {one.holder.owner: self.now + REMOTE_TTL_S for one in self.held.values() if _is_far(one)}
        self._tell_deaths()
        for claim in resent:
            if claim.holder.owner not in self.dead:
                self._ask(claim)

    # --- promises ----------------------------------------------------------------------------------------------------

    @invariant()
    def no_slot_is_free_while_somebody_waits_for_it(self) -> None:
        for account in self.book.accounts.values():
            if account.regime.admits(in_flight=account.budget.in_flight, now=self.now):
                assert not len(account.budget.queue) or not account.budget.has_room
                assert not [one for one, why in account.aside.values() if why is Aside.DOUBT]

    @invariant()
    def a_closed_account_has_one_probe_and_a_locked_one_nobody_who_waits(self) -> None:
        for account in self.book.accounts.values():
            view = account.regime.view(now=self.now, wall_ms=0)
            assert view.probing is None or view.probing in self.held
            assert 1 <= view.limit <= max(1, view.configured)
            assert view.state is not BudgetState.LOCKED or not account.queued

    @invariant()
    def the_book_and_the_world_agree(self) -> None:
        leases = {call for account in self.book.accounts.values() for call in account.budget.leases}
        queued = {waiter.claim.call for account in self.book.accounts.values() for waiter in account.waiters()}
        assert leases == set(self.held)
        assert queued == set(self.waiting)
        assert set(self.book._roll._where._place) == leases | queued
        assert len(queued) <= QUEUE_BOUND

    @invariant()
    def the_journal_says_what_the_book_says(self) -> None:
        assert set(self.journal.leases) == set(self.held)
        for key, totals in self.journal.totals.items():
            budget = self.book.accounts[key].budget
            assert (totals.granted, totals.peak_in_flight) == (budget.granted, budget.peak_in_flight)

    @invariant()
    def everybody_who_has_something_is_watched(self) -> None:
        near = [claim for claim in (*self.held.values(), *self.waiting.values()) if not _is_far(claim)]
        assert {claim.holder.owner for claim in near} <= self.watched

    @invariant()
    def everybody_from_afar_who_has_something_was_heard_lately(self) -> None:
        far = {claim.holder.owner for claim in (*self.held.values(), *self.waiting.values()) if _is_far(claim)}
        assert far == set(self.believed)
        assert all(end > self.now for end in self.believed.values())
        assert len(self.book._roll._distant) == len(far)

    @invariant()
    def the_next_deadline_lies_ahead(self) -> None:
        next_at = self.book.next_deadline()
        assert next_at is None or next_at > self.now

    def teardown(self) -> None:
        """Whoever still waits is served, once holders give back what they hold, and accounts are well again."""
        self._decide(CapDeclared("swarm", None, None))
        for key in list(self.book.accounts):
            self._decide(Unlocked(key))
        for _ in range(1000):
            self.now += 5.0
            self._decide(Ticked())
            if not self._calls():
                break
            for call in list(self.held):
                self._decide(GivenBack(call, outcome=Outcome()))
        assert not self.waiting
        assert not self.held
        self.now += 5.0  # slots of those who died at the last tick lingered
        self._decide(Ticked())
        assert self.book.next_deadline() is None
        assert len(self.book._roll._where) == 0

    # --- the broker's hands ------------------------------------------------------------------------------------------

    def _ask(self, claim: Claim) -> list[Action]:
        is_known = claim.call in self.held or claim.call in self.waiting
        if not is_known:
            self.waiting[claim.call] = claim
            self.fresh.add(claim.call)
        actions = self._decide(Asked(claim))
        self._tell_deaths()
        return actions

    def _decide(self, event: Event, *, cut: Collection[CallId] = ()) -> list[Action]:
        actions = self.book.decide(event, self.now, round(self.now * 1000))
        self._carry_out(actions, cut)
        self._keep_believing(event)
        return actions

    def _keep_believing(self, event: Event) -> None:
        """Who asks for something new is heard; who has nothing is of no interest."""
        far = {claim.holder.owner for claim in (*self.held.values(), *self.waiting.values()) if _is_far(claim)}
        if isinstance(event, Asked) and _is_far(event.claim) and event.claim.call in self.fresh & self._calls():
            self.believed[event.claim.holder.owner] = self.now + REMOTE_TTL_S
        self.fresh.clear()
        self.believed = {owner: end for owner, end in self.believed.items() if owner in far}

    def _calls(self) -> set[CallId]:
        return self.held.keys() | self.waiting.keys()

    def _carry_out(self, actions: list[Action], cut: Collection[CallId] = ()) -> None:
        for action in actions:
            match action:
                case Grant(lease=lease, is_new=True):
                    self._granted(action)
                    self.journal.apply(LeaseGranted(lease=lease, in_flight=action.in_flight))
                case Grant(lease=lease):
                    assert lease.call in self.held
                case Refuse(call=call) | Pass(call=call):
                    claim = self.waiting.pop(call)
                    if isinstance(action, Refuse) and action.reason is Refusal.TIMEOUT:
                        assert claim.timeout_s is not None
                case End(lease=lease) | Overdue(lease=lease) | Lose(lease=lease):
                    claim = self.held.pop(lease.call)
                    assert not isinstance(action, Overdue) or lease.expires_at <= self.now
                    assert not isinstance(action, Lose) or self._is_gone(claim.holder.owner)
                    self.journal.apply(LeaseEnded(call=lease.call, caps=action.spent))
                    if isinstance(action, Lose) or (isinstance(action, End) and lease.call in cut):
                        self.lingering[lease.call] = (lease.budget, self.now + CUT_LINGER_S)
                case Watch(owner=owner):
                    assert not owner.is_remote
                    assert owner not in self.watched
                    self.watched.add(owner)
                case Unwatch(owner=owner):
                    self.watched.remove(owner)
                case Keep(record=record):
                    self.journal.apply(record)
                case Reject():
                    raise AssertionError("every call has one owner here")

    def _granted(self, action: Grant) -> None:
        claim = self.waiting[action.lease.call]
        # The dict is in the order of asking: first come, first served within class and tree, among those whom no cap
        # and no doubt holds up.
        if claim.cap is None and not self.had_trouble:
            line = [call for call, other in self.waiting.items() if _line(other) == _line(claim) and other.cap is None]
            assert claim.call == line[0]
        del self.waiting[claim.call]
        assert action.in_flight <= action.limit <= self.limits.get(claim.provider, NO_LIMIT)
        assert not action.lease.waited_s or claim.timeout_s is None or action.lease.waited_s < claim.timeout_s
        self.held[claim.call] = claim
        lingers = sum(key == claim.budget and until > self.now for key, until in self.lingering.values())
        # A learned release lag lets more of them linger, and longer.
        assert sum(other.budget == claim.budget for other in self.held.values()) + lingers <= action.in_flight

    def _tell_deaths(self) -> None:
        for owner in sorted(self.dead & self.watched, key=lambda owner: owner.pid):
            self.watched.discard(owner)
            self._decide(Died(owner))

    def _is_gone(self, owner: Owner) -> bool:
        return self.believed.get(owner, self.now) <= self.now if owner.is_remote else owner in self.dead

    def _peer(self, number: int, *, boot: str = "boot") -> Peer:
        owner = Owner(pid=number, start_ticks=1, boot_id=boot)
        return Peer(role="client", name=f"p{number}", incarnation=Incarnation(f"inc{number}"), owner=owner)


def _is_far(claim: Claim) -> bool:
    return claim.holder.owner.is_remote


def _line(claim: Claim) -> tuple[BudgetKey, Priority, str]:
    return claim.budget, claim.priority, claim.tree


BookMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestBook = BookMachine.TestCase
