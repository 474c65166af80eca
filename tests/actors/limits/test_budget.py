"""Slots, models' own limits and lingering; what fairness and room for ten thousand come to."""

from __future__ import annotations

import gc
import random
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.actors.limits.actions import Asked
from covey.actors.limits.book import Book
from covey.actors.limits.budget import SHOWN, Budget
from covey.actors.limits.claim import Claim, Waiter, WaitReason, shared
from covey.actors.limits.terms import Terms
from covey.protocol.ids import AgentId, BudgetKey, CallId, Incarnation, SessionId
from covey.protocol.messages.broker import Priority
from covey.protocol.peer import Owner, Peer
from covey.storage.leases import Lease

KEY = BudgetKey("zai:1")


def peer(number: int = 1) -> Peer:
    owner = Owner(pid=number, start_ticks=number, boot_id="boot")
    return Peer(role="client", name=f"client {number}", incarnation=Incarnation(f"inc_{number}"), owner=owner)


PEER = peer()


def claim(
    call: str, *, model: str = "glm", tree: str = "t", priority: Priority = Priority.AGENT, above: int = 0
) -> Claim:
    return Claim(
        call=CallId(call),
        budget=KEY,
        provider="zai",
        base_url="https://api.z.ai/v4",
        model=model,
        holder=PEER,
        tree=tree,
        priority=priority,
        timeout_s=None,
        hold_s=60.0,
        asked_at_ms=0,
        waiting_above=above,
    )


def budget(limit: int, *claims: Claim, models: Mapping[str, int] | None = None) -> Budget:
    made = Budget(KEY, provider="zai", limit=limit, model_limits=models)
    for one in claims:
        made.queue.push(Waiter(claim=one, since=0.0))
    return made


def admitted(of: Budget, now: float = 0.0, permits: Callable[[Claim], bool] = lambda _: True) -> list[str]:
    calls: list[str] = []
    while (lease := of.admit(now, permits)) is not None:
        calls.append(lease.call)
    return calls


def end(of: Budget, call: str) -> Lease:
    lease = of.drop(CallId(call))
    assert isinstance(lease, Lease)
    return lease


# --- limits ----------------------------------------------------------------------------------------------------------


def test_a_model_at_its_own_limit_lets_the_others_of_the_account_pass() -> None:
    turbo = [claim(f"turbo{n}", model="glm-5-turbo") for n in range(3)]
    of = budget(2, *turbo, claim("big"), models={"glm-5-turbo": 1})

    assert admitted(of) == ["turbo0", "big"]
    assert (of.in_flight_of("glm-5-turbo"), of.queue.queued("glm-5-turbo")) == (1, 2)


def test_the_accounts_limit_holds_for_models_with_a_limit_too() -> None:
    of = budget(2, claim("a0", model="a"), claim("b0", model="b"), claim("a1", model="a"), models={"a": 2, "b": 2})

    assert admitted(of) == ["a0", "b0"]


def test_a_slot_of_a_limited_model_goes_to_whoever_waits_for_that_model() -> None:
    of = budget(2, *(claim(f"turbo{n}", model="turbo") for n in range(2)), models={"turbo": 1})
    admitted(of)

    end(of, "turbo0")

    assert admitted(of) == ["turbo1"]


@pytest.mark.parametrize("asked", ["GLM-5-Turbo", "glm-5-turbo"])
def test_a_models_limit_holds_however_its_name_is_spelt(asked: str) -> None:
    of = budget(2, claim("a", model="glm-5-turbo"), claim("b", model=asked), models={"Glm-5-turbo": 1})

    assert admitted(of) == ["a"]


def test_a_models_limit_that_comes_later_counts_the_calls_that_run() -> None:
    of = budget(3, claim("a"), claim("b"), claim("other", model="big"))
    assert admitted(of) == ["a", "b", "other"]
    for one in (claim("c"), claim("big2", model="big")):
        of.queue.push(Waiter(claim=one, since=0.0))

    of.configure(4, {"glm": 2}, {})

    assert admitted(of) == ["big2"]
    end(of, "a")
    assert admitted(of) == ["c"]


def test_a_ceiling_below_the_configured_limit_counts_and_one_above_does_not() -> None:
    of = budget(3, *(claim(f"c{n}") for n in range(4)))

    of.ceiling = 1
    assert (admitted(of), of.limit) == (["c0"], 1)
    of.ceiling = 9
    assert (admitted(of), of.limit) == (["c1", "c2"], 3)


def test_whoever_is_next_and_not_permitted_is_waited_for_and_not_skipped() -> None:
    of = budget(2, claim("large"), claim("small"))

    assert admitted(of, permits=lambda one: one.call != "large") == []
    assert admitted(of) == ["large", "small"]


def test_a_claim_would_wait_where_it_finds_no_slot_its_model_closed_or_somebody_before_it() -> None:
    of = budget(2, claim("turbo", model="turbo"), models={"turbo": 1})
    assert of.would_wait(claim("x"), 0.0)

    admitted(of)
    assert not of.would_wait(claim("x"), 0.0)
    assert of.would_wait(claim("x", model="turbo"), 0.0)

    of.queue.push(Waiter(claim=claim("turbo2", model="turbo"), since=0.0))
    assert not of.would_wait(claim("x"), 0.0), "who waits for another model is not before it"
    of.ceiling = 1
    assert of.would_wait(claim("x"), 0.0)


# --- lingering -------------------------------------------------------------------------------------------------------


def test_a_slot_that_lingers_is_nobodys_until_it_is_settled() -> None:
    of = budget(1, claim("a"), claim("b"))
    admitted(of)

    of.linger(end(of, "a"))
    assert (of.in_flight, of.leases, admitted(of)) == (1, {}, [])

    of.settle(CallId("a"))
    assert admitted(of) == ["b"]


def test_a_slot_that_lingers_counts_for_its_model() -> None:
    of = budget(2, *(claim(f"turbo{n}", model="turbo") for n in range(2)), models={"turbo": 1})
    admitted(of)

    of.linger(end(of, "turbo0"))
    assert admitted(of) == []

    of.settle(CallId("turbo0"))
    assert admitted(of) == ["turbo1"]


def test_settling_what_does_not_linger_changes_nothing() -> None:
    of = budget(1, claim("a"))
    admitted(of)

    of.settle(CallId("a"))
    of.settle(CallId("nobody"))

    assert (of.in_flight, of.in_flight_of("glm")) == (1, 1)


# --- what people see -------------------------------------------------------------------------------------------------


def test_every_waiter_has_a_position_and_a_reason() -> None:
    calls = [claim("turbo0", model="turbo"), claim("turbo1", model="turbo"), claim("big0"), claim("big1")]
    of = budget(2, *calls, models={"turbo": 1})
    admitted(of)

    standings = of.standings(0.0)

    assert [(one.waiter.claim.call, one.position, one.reason) for one in standings] == [
        ("big1", 1, WaitReason.SLOT),
        ("turbo1", 2, WaitReason.MODEL),
    ]
    assert {one.reason for one in of.standings(0.0, is_paused=True)} == {WaitReason.PAUSE}


def test_of_many_waiters_the_first_are_shown() -> None:
    of = budget(0, *(claim(f"c{n}", tree=f"t{n % 7}") for n in range(300)))

    standings = of.standings(0.0)

    assert [one.position for one in standings] == list(range(1, SHOWN + 1))
    assert [one.waiter for one in standings] == of.queue.in_order(0.0)[:SHOWN]


# --- fairness in service times ---------------------------------------------------------------------------------------


def _turns_until(quiet: Claim, noisy: list[Claim], *, age_s: float) -> int:
    """How many calls are served before the quiet one; whoever is served asks again at once."""
    now, of = age_s, budget(1, *noisy)
    asked = {one.call: one for one in noisy}
    for _ in range(3):  # the quiet one comes at the worst moment: an aged turn is due
        _serve_noisy(of, asked, now)
    of.queue.push(Waiter(claim=quiet, since=now))
    turns = 0
    while _serve_noisy(of, asked, now):
        turns += 1
        assert turns < 10_000, "the quiet session was starved"
    return turns


def _serve_noisy(of: Budget, asked: dict[CallId, Claim], now: float) -> bool:
    lease = of.admit(now)
    assert lease is not None
    end(of, lease.call)
    if lease.call not in asked:
        return False
    again = msgspec.structs.replace(asked.pop(lease.call), call=CallId(f"{lease.call}+"))
    asked[again.call] = again
    of.queue.push(Waiter(claim=again, since=now))
    return True


OLD = 1000.0


@pytest.mark.parametrize(
    ("trees", "of_noisy", "of_quiet", "age_s", "most"),
    [
        pytest.param(1, Priority.AGENT, Priority.AGENT, 0.0, 1, id="siblings are one tree: one turn"),
        pytest.param(1, Priority.AGENT, Priority.AGENT, OLD, 2, id="old siblings: one turn and one by age"),
        pytest.param(40, Priority.AGENT, Priority.AGENT, 0.0, 40, id="one turn of each other tree"),
        pytest.param(40, Priority.AGENT, Priority.AGENT, OLD, 54, id="and by age every fourth"),
        pytest.param(40, Priority.SUBAGENT, Priority.AGENT, 0.0, 1, id="a better class goes next, or nearly"),
        pytest.param(40, Priority.AGENT, Priority.INTERACTIVE, 0.0, 0, id="a user's turn goes next"),
        pytest.param(40, Priority.AGENT, Priority.INTERACTIVE, OLD, 1, id="a user's turn, after one by age"),
        pytest.param(40, Priority.INTERACTIVE, Priority.AUXILIARY, 0.0, 1111, id="the worst class has its share"),
    ],
)
def test_a_quiet_sessions_turn_waits_at_most_so_many_service_times_beside_40_noisy_siblings(
    trees: int, of_noisy: Priority, of_quiet: Priority, age_s: float, most: int
) -> None:
    noisy = [claim(f"n{n}", tree=f"t{n % trees}", priority=of_noisy) for n in range(40 * trees)]

    assert _turns_until(claim("quiet", tree="quiet", priority=of_quiet), noisy, age_s=age_s) <= most


# --- trees of agents with one slot -----------------------------------------------------------------------------------


@dataclass
class Worker:
    """Calls once, then lets its children work and waits for them, then calls once more."""

    name: str
    tree: str
    above: int
    children: list[Worker]
    parent: Worker | None = None
    calls: int = 0
    left: int = 0

    def ask(self) -> Claim:
        priority = Priority.SUBAGENT if self.above else Priority.AGENT
        return claim(f"{self.name}:{self.calls}", tree=self.tree, priority=priority, above=self.above)


Shape = list["Shape"]
SHAPES: st.SearchStrategy[Shape] = st.recursive(
    st.just([]), lambda children: st.lists(children, max_size=4), max_leaves=20
)


def worker(shape: Shape, name: str, tree: str, parent: Worker | None = None) -> Worker:
    one = Worker(name, tree, 0 if parent is None else parent.above + 1, [], parent)
    one.children = [worker(child, f"{name}.{n}", tree, one) for n, child in enumerate(shape)]
    one.left = len(one.children)
    return one


def size(of: Worker) -> int:
    return 1 + sum(map(size, of.children))


def after_call(one: Worker) -> list[Worker]:
    """Who asks next, now that a call of this one has ended."""
    one.calls += 1
    if one.calls == 1:
        return one.children or [one]
    parent = one.parent
    if parent is None:
        return []
    parent.left -= 1
    return [parent] if not parent.left else []


@settings(deadline=None, max_examples=100)
@given(st.lists(SHAPES, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_trees_of_any_shape_finish_with_one_slot_beside_a_stranger_who_asks_without_end(
    shapes: list[Shape], chance: random.Random
) -> None:
    roots = [worker(shape, f"w{n}", f"tree{n}") for n, shape in enumerate(shapes)]
    of, running = budget(1, *(claim(f"stranger{n}", tree="stranger") for n in range(40))), {}
    asking = list(roots)
    left = 2 * sum(map(size, roots))
    for turn in range(2 * left):
        chance.shuffle(asking)
        for one in asking:
            ask = one.ask()
            running[ask.call] = one
            of.queue.push(Waiter(claim=ask, since=float(turn)))
        lease = of.admit(float(turn))
        assert lease is not None, "somebody waits, and the slot is free"
        assert of.admit(float(turn)) is None
        end(of, lease.call)
        if lease.call in running:
            left -= 1
            asking = after_call(running.pop(lease.call))
        else:
            asking = []
            of.queue.push(Waiter(claim=claim(f"again{turn}", tree="stranger"), since=float(turn)))
        if not left:
            return
    raise AssertionError(f"{left} calls were not served within two turns each")


def test_the_children_of_a_waiting_parent_come_to_an_end_before_its_sibling_begins() -> None:
    root = worker([[[], []], [[], []]], "w", "tree")
    of, asking = budget(1), [root]
    order: list[str] = []
    running: dict[CallId, Worker] = {}
    while asking or len(of.queue):
        for one in asking:
            ask = one.ask()
            running[ask.call] = one
            of.queue.push(Waiter(claim=ask, since=0.0))
        lease = of.admit(0.0)
        assert lease is not None
        order.append(end(of, lease.call).call)
        asking = after_call(running.pop(lease.call))

    assert max(order.index("w.0.0:1"), order.index("w.0.1:1")) < order.index("w.1:0")


# --- ten thousand ----------------------------------------------------------------------------------------------------


def _book(waiters: int, trees: int) -> Book:
    """A book whose one slot is taken, with so many waiters as they come from the wire: no two share a text."""
    book = Book({"zai": Terms(limit=1)}, queue_bound=20_000)
    peers = [peer(number) for number in range(50)]
    for number in range(waiters + 1):
        one = msgspec.structs.replace(
            claim(f"call_{number:016x}", tree=shared(f"agent_{number % trees:016x}"), above=number % 5),
            holder=peers[number % 50],
            session=SessionId(f"session_{number:016x}"),
            agent=AgentId(shared(f"agent_{number:016x}")),
            work=f"work_{number:016x}",
            estimated_tokens=10_000 + number,
            timeout_s=600.0 + number,
        )
        book.decide(Asked(one), number / 1000)
    return book


@pytest.mark.parametrize("trees", [40, 10_000])
def test_a_waiter_costs_no_more_than_a_kibibyte(trees: int) -> None:
    _book(10, trees)
    gc.collect()
    tracemalloc.start()
    try:
        book = _book(10_000, trees)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert book.queued == 10_000
    assert held / 10_000 <= 1024


def _cost_s(waiters: int) -> float:
    """The shortest time of several that a hundred come, a hundred are served and a hundred leave."""
    of = budget(1, *(claim(f"c{n}", tree=f"t{n % 997}", priority=list(Priority)[n % 4]) for n in range(waiters)))
    shortest = float("inf")
    for batch in range(15):
        began = time.perf_counter()
        for n in range(100):
            of.queue.push(Waiter(claim=claim(f"new{batch}.{n}", tree=f"t{n}"), since=1.0))
            lease = of.admit(1.0)
            assert lease is not None
            end(of, lease.call)
            of.queue.push(Waiter(claim=claim(f"brief{batch}.{n}", tree=f"u{n}"), since=1.0))
            of.drop(CallId(f"brief{batch}.{n}"))
        shortest = min(shortest, time.perf_counter() - began)
    return shortest


def test_ten_thousand_waiters_cost_a_call_little_more_than_a_hundred() -> None:
    few, many = _cost_s(100), _cost_s(10_000)

    assert many < 6 * few, f"{many / few:.1f} times as long; a cost that grows with the queue would be 100 times"
