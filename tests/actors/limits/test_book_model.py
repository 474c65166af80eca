"""The broker's rules under everything at once: random asks, copies, releases, deaths, limits and time."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from covey.actors.limits.actions import (
    Action,
    Asked,
    Died,
    End,
    Event,
    GivenBack,
    Grant,
    Left,
    Limited,
    Lose,
    Overdue,
    Pass,
    Refuse,
    Reject,
    Renewed,
    Ticked,
    Unwatch,
    Watch,
)
from covey.actors.limits.book import CUT_LINGER_S, REMOTE_TTL_S, Book
from covey.actors.limits.claim import Claim
from covey.protocol.ids import BudgetKey, CallId, Incarnation
from covey.protocol.messages.broker import Priority, Refusal
from covey.protocol.peer import REMOTE, Owner, Peer
from covey.storage.leases import LeaseEnded, LeaseGranted, LifeBegan, Outstanding

QUEUE_BOUND = 6
PROVIDERS = ("zai", "other")


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
        self.book = Book(self.limits, queue_bound=QUEUE_BOUND)
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
    )
    def ask(  # noqa: PLR0917 - hypothesis passes them by name
        self, peer: Peer, provider: str, priority: Priority, tree: str, timeout_s: float | None, hold_s: float
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
        )
        self._ask(claim)
        return claim

    @rule(claim=asks)
    def ask_again(self, claim: Claim) -> None:
        was_held, was_waiting = claim.call in self.held, claim.call in self.waiting
        before = self.book.budgets[claim.budget].granted if claim.budget in self.book.budgets else 0
        deadline = self.book._deadlines._at.get(claim.call, self.now + 1)

        actions = self._ask(claim)

        if was_held and deadline > self.now:
            assert [type(action) for action in actions] == [Grant]
            assert self.book.budgets[claim.budget].granted == before
        elif was_waiting and deadline > self.now:
            assert actions == []

    @rule(claim=asks, was_cut=st.booleans())
    def give_back(self, claim: Claim, was_cut: bool) -> None:
        was_held = claim.call in self.held
        self._decide(GivenBack(claim.call, was_cut), cut={claim.call} if was_cut and was_held else set())

        assert claim.call not in self.held
        assert claim.call not in self.waiting
        assert claim.call not in self.book._where._place

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
        self._decide(Limited(self.limits))

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
        self.book = Book(self.limits, queue_bound=QUEUE_BOUND)
        self._carry_out(self.book.restore(self.journal, self.now))
        self.believed = {one.holder.owner: self.now + REMOTE_TTL_S for one in self.held.values() if _is_far(one)}
        self._tell_deaths()
        for claim in resent:
            if claim.holder.owner not in self.dead:
                self._ask(claim)

    # --- promises ----------------------------------------------------------------------------------------------------

    @invariant()
    def no_slot_is_free_while_somebody_waits_for_it(self) -> None:
        for budget in self.book.budgets.values():
            assert not len(budget.queue) or not budget.has_room

    @invariant()
    def the_book_and_the_world_agree(self) -> None:
        leases = {call for budget in self.book.budgets.values() for call in budget.leases}
        queued = {waiter.claim.call for budget in self.book.budgets.values() for waiter in budget.queue}
        assert leases == set(self.held)
        assert queued == set(self.waiting)
        assert set(self.book._where._place) == leases | queued
        assert len(queued) <= QUEUE_BOUND

    @invariant()
    def the_journal_says_what_the_book_says(self) -> None:
        assert set(self.journal.leases) == set(self.held)
        for key, totals in self.journal.totals.items():
            budget = self.book.budgets[key]
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
        assert len(self.book._distant) == len(far)

    @invariant()
    def the_next_deadline_lies_ahead(self) -> None:
        next_at = self.book.next_deadline()
        assert next_at is None or next_at > self.now

    def teardown(self) -> None:
        """Whoever still waits is served, once holders give back what they hold."""
        for _ in range(1000):
            self.now += CUT_LINGER_S
            self._decide(Ticked())
            if not self.held:
                break
            self._decide(GivenBack(next(iter(self.held))))
        assert not self.waiting
        assert not self.held
        assert self.book.next_deadline() is None
        assert len(self.book._where) == 0

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
        actions = self.book.decide(event, self.now)
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
                    self.journal.apply(LeaseEnded(call=lease.call))
                    if isinstance(action, Lose) or (isinstance(action, End) and lease.call in cut):
                        self.lingering[lease.call] = (lease.budget, self.now + CUT_LINGER_S)
                case Watch(owner=owner):
                    assert not owner.is_remote
                    assert owner not in self.watched
                    self.watched.add(owner)
                case Unwatch(owner=owner):
                    self.watched.remove(owner)
                case Reject():
                    raise AssertionError("every call has one owner here")

    def _granted(self, action: Grant) -> None:
        claim = self.waiting[action.lease.call]
        # The dict is in the order of asking: first come, first served within class and tree.
        assert claim.call == next(call for call, other in self.waiting.items() if _line(other) == _line(claim))
        del self.waiting[claim.call]
        assert action.in_flight <= action.limit == self.limits[claim.provider]
        assert not action.lease.waited_s or claim.timeout_s is None or action.lease.waited_s < claim.timeout_s
        self.held[claim.call] = claim
        lingers = sum(key == claim.budget and until > self.now for key, until in self.lingering.values())
        assert sum(other.budget == claim.budget for other in self.held.values()) + lingers == action.in_flight

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
