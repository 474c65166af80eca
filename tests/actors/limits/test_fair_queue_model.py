"""The queue against its rules written down in the plainest way, under everything at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from covey.actors.limits.claim import Claim, Waiter
from covey.actors.limits.fair_queue import AGED_AFTER_S, AGED_PASSES, FairQueue
from covey.protocol.ids import BudgetKey, CallId, Incarnation
from covey.protocol.messages.broker import Priority
from covey.protocol.peer import Owner, Peer

MODELS = ("big", "turbo", "air")
PEER = Peer(role="client", name="c", incarnation=Incarnation("inc"), owner=Owner(pid=1, start_ticks=1, boot_id="b"))
# Powers of two, so that the strides of the queue, whole numbers, are exact fractions.
WEIGHTS = st.fixed_dictionaries({priority: st.sampled_from([1, 2, 4, 16]) for priority in Priority})
CLOSED = st.sets(st.sampled_from(MODELS))


class PlainQueue:
    """The same rules over one list, each looked up anew every time."""

    def __init__(self, weights: Mapping[Priority, int]) -> None:
        self.waiting: list[Waiter] = []
        self.rounds: dict[Priority, list[str]] = {priority: [] for priority in Priority}
        self.weights = dict(weights)
        self.last = dict.fromkeys(Priority, Fraction(0))
        self.clock = Fraction(0)
        self.limited: frozenset[str] = frozenset()
        self.passes: dict[str | None, int] = {}

    def push(self, one: Waiter) -> None:
        self.waiting.append(one)
        self.waiting.sort(key=lambda other: other.since)
        if one.claim.tree not in self.rounds[one.claim.rank]:
            self.rounds[one.claim.rank].append(one.claim.tree)

    def remove(self, one: Waiter) -> None:
        self.waiting.remove(one)
        rank, tree = one.claim.rank, one.claim.tree
        if not any((other.claim.rank, other.claim.tree) == (rank, tree) for other in self.waiting):
            self.rounds[rank].remove(tree)

    def pop(self, now: float, closed: Collection[str]) -> Waiter | None:
        able = [one for one in self.waiting if one.claim.model not in closed]
        if not able:
            return None
        ready = [priority for priority in Priority if any(one.claim.rank is priority for one in able)]
        rank = min(ready, key=self.due)
        of_class = [one for one in able if one.claim.rank is rank]
        tree = next(tree for tree in self.rounds[rank] if any(one.claim.tree == tree for one in of_class))
        head = min((one for one in of_class if one.claim.tree == tree), key=self.place)
        fronts = self.fronts(able)
        old = [one for one in able if one.waited_s(now) >= AGED_AFTER_S and one in fronts.values()]
        got = next((one for one in old if self.passes.get(self.section(one), 0) >= AGED_PASSES), head)
        for section, one in fronts.items():
            was_passed = able.index(one) < able.index(got)
            self.passes[section] = self.passes.get(section, 0) + 1 if was_passed else 0
        if got is head:
            self.last[rank] = self.due(rank)
            self.clock = max(self.clock, self.last[rank])
            soonest = self.clock - min(Fraction(1, weight) for weight in self.weights.values())
            self.last.update({other: max(self.last[other], soonest) for other in Priority if other not in ready})
        self.remove(got)
        trees = self.rounds[got.claim.rank]
        if got.claim.tree in trees:
            trees.remove(got.claim.tree)
            trees.append(got.claim.tree)
        return got

    def configure(self, limited: Collection[str], weights: Mapping[Priority, int]) -> None:
        self.weights = dict(weights)
        if frozenset(limited) != self.limited:
            self.limited = frozenset(limited)
            self.passes = dict.fromkeys((None, *limited), max(self.passes.values(), default=0))

    def section(self, one: Waiter) -> str | None:
        return one.claim.model if one.claim.model in self.limited else None

    def fronts(self, able: list[Waiter]) -> dict[str | None, Waiter]:
        fronts: dict[str | None, Waiter] = {}
        for one in able:
            fronts.setdefault(self.section(one), one)
        return fronts

    def due(self, priority: Priority) -> Fraction:
        return self.last[priority] + Fraction(1, self.weights[priority])

    def place(self, one: Waiter) -> tuple[int, bool, int]:
        return -one.claim.waiting_above, one.claim.attempt == 1, self.waiting.index(one)


class QueueMachine(RuleBasedStateMachine):
    """Both queues hear the same. Beside that, nobody is passed over too often."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.made = 0
        self.aside: list[Waiter] = []
        self.limited: frozenset[str] = frozenset({"turbo"})
        weights = {Priority.INTERACTIVE: 16, Priority.AGENT: 4, Priority.SUBAGENT: 2, Priority.AUXILIARY: 1}
        self.queue = FairQueue(self.limited, weights)
        self.plain = PlainQueue(weights)
        self.plain.limited = self.limited
        self.turns_left: dict[CallId, int] = {}
        self.trees_ahead: dict[tuple[Priority, str], int] = {}

    @rule(
        asks=st.lists(
            st.tuples(
                st.sampled_from(Priority),
                st.sampled_from("abcd"),
                st.sampled_from(MODELS),
                st.integers(0, 3),
                st.integers(1, 3),
            ),
            min_size=1,
            max_size=6,
        )
    )
    def push(self, asks: list[tuple[Priority, str, str, int, int]]) -> None:
        for ask in asks:
            self._ask(*ask)

    def _ask(self, priority: Priority, tree: str, model: str, above: int, attempt: int) -> None:
        self.made += 1
        claim = Claim(
            call=CallId(f"c{self.made}"),
            budget=BudgetKey("zai"),
            provider="zai",
            base_url="https://example.org",
            model=model,
            holder=PEER,
            tree=tree,
            priority=priority,
            timeout_s=None,
            hold_s=60.0,
            asked_at_ms=0,
            waiting_above=above,
            attempt=attempt,
        )
        self._push(Waiter(claim=claim, since=self.now))

    @rule(turns=st.integers(1, 6), closed=CLOSED)
    def pop(self, turns: int, closed: set[str]) -> None:
        closed &= self.limited
        for _ in range(turns):
            able = [one for one in self.plain.waiting if one.claim.model not in closed]
            for place, one in enumerate(self.plain.waiting):
                if one.waited_s(self.now) >= AGED_AFTER_S:
                    self.turns_left.setdefault(one.claim.call, (AGED_PASSES + 1) * (place + 1))
            last = dict(self.plain.last)
            shown = self.queue.peek(self.now, closed)
            got = self.queue.pop(self.now, closed)

            assert got == shown == self.plain.pop(self.now, closed)
            if got is not None:
                self._count(got, able, was_aged=last == self.plain.last)

    @rule(number=st.integers(0, 400))
    def withdraw(self, number: int) -> None:
        if self.plain.waiting:
            one = self.plain.waiting[number % len(self.plain.waiting)]
            self.plain.remove(one)
            assert self.queue.remove(one.claim.call) == one
            self._forget(one)
        assert self.queue.remove(CallId("nobody")) is None

    @rule(number=st.integers(0, 400))
    def stand_aside(self, number: int) -> None:
        if self.plain.waiting:
            self.aside.append(self.plain.waiting[number % len(self.plain.waiting)])
            self.withdraw(number)

    @rule()
    def come_back(self) -> None:
        for one in self.aside:
            self._push(one)
        self.aside.clear()

    @rule(dt=st.sampled_from([0.5, 10.0, AGED_AFTER_S]))
    def pass_time(self, dt: float) -> None:
        self.now += dt

    @rule(weights=WEIGHTS, limited=CLOSED)
    def configure(self, weights: dict[Priority, int], limited: set[str]) -> None:
        self.limited = frozenset(limited)
        self.plain.configure(limited, weights)
        self.queue.configure(limited, weights)

    @rule(closed=CLOSED, count=st.integers(1, 5))
    def show(self, closed: set[str], count: int) -> None:
        closed &= self.limited
        shown = self.queue.in_order(self.now, closed=closed, count=count)
        able = [one for one in self.plain.waiting if one.claim.model not in closed]

        assert len(shown) == min(count, len(self.plain.waiting))
        assert [one.claim.model in closed for one in shown] == [place >= len(able) for place in range(len(shown))]
        if able:
            assert shown[0] == self.queue.peek(self.now, closed)

    @invariant()
    def nobody_is_lost(self) -> None:
        assert {one.claim.call for one in self.queue} == {one.claim.call for one in self.plain.waiting}
        assert len(self.queue) == len(self.plain.waiting)
        for model in self.limited:
            assert self.queue.queued(model) == sum(one.claim.model == model for one in self.plain.waiting)

    def teardown(self) -> None:
        shown = self.queue.in_order(self.now)
        assert [self.queue.pop(self.now) for _ in range(len(shown))] == shown
        assert self.queue.pop(self.now) is None
        assert not len(self.queue)

    def _push(self, one: Waiter) -> None:
        rank = one.claim.rank
        self.trees_ahead.setdefault((rank, one.claim.tree), len(self.plain.rounds[rank]))
        if any(other.since > one.since for other in self.plain.waiting):
            self.turns_left.clear()  # it is older than some whose turns were counted
        self.queue.push(one)
        self.plain.push(one)

    def _count(self, got: Waiter, able: list[Waiter], *, was_aged: bool) -> None:
        line = got.claim.rank, got.claim.tree
        passed = {(one.claim.rank, one.claim.tree) for one in able} - {line}
        for other in passed:
            if other[0] is got.claim.rank and not was_aged:
                self.trees_ahead[other] -= 1
                assert self.trees_ahead[other] >= 0, "a tree was passed by more trees than stood before it"
        self.trees_ahead[line] = len(self.plain.rounds[got.claim.rank]) - 1
        self._forget(got)
        for one in able:
            if one is not got and one.claim.call in self.turns_left:
                self.turns_left[one.claim.call] -= 1
                assert self.turns_left[one.claim.call] > 0, "somebody was passed over too often"

    def _forget(self, gone: Waiter) -> None:
        self.turns_left.pop(gone.claim.call, None)
        if gone.claim.tree not in self.plain.rounds[gone.claim.rank]:
            self.trees_ahead.pop((gone.claim.rank, gone.claim.tree), None)


QueueMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestFairQueue = QueueMachine.TestCase
