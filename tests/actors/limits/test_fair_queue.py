"""The order of service."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.actors.limits.claim import Claim, Waiter
from covey.actors.limits.fair_queue import AGED_AFTER_S, AGED_PASSES, FairQueue
from covey.protocol.ids import BudgetKey, CallId, Incarnation
from covey.protocol.messages.broker import Priority
from covey.protocol.peer import Owner, Peer

PEER = Peer(
    role="client", name="client", incarnation=Incarnation("inc_1"), owner=Owner(pid=1, start_ticks=1, boot_id="b")
)


def waiter(call: str, *, tree: str = "t", priority: Priority = Priority.AGENT, since: float = 0.0) -> Waiter:
    claim = Claim(
        call=CallId(call),
        budget=BudgetKey("zai"),
        provider="zai",
        base_url="https://api.z.ai/v4",
        model="glm",
        holder=PEER,
        tree=tree,
        priority=priority,
        timeout_s=None,
        hold_s=60.0,
        asked_at_ms=0,
    )
    return Waiter(claim=claim, since=since)


def queue_of(*waiters: Waiter) -> FairQueue:
    queue = FairQueue()
    for one in waiters:
        queue.push(one)
    return queue


def served(queue: FairQueue, now: float = 0.0) -> list[str]:
    calls: list[str] = []
    while (one := queue.pop(now)) is not None:
        calls.append(one.claim.call)
    return calls


def test_waiters_of_one_tree_are_served_in_the_order_of_arrival() -> None:
    queue = queue_of(waiter("a"), waiter("b"), waiter("c"))

    assert served(queue) == ["a", "b", "c"]


def test_better_classes_go_first() -> None:
    queue = queue_of(*(waiter(priority.value, priority=priority) for priority in reversed(Priority)))

    assert served(queue) == ["interactive", "agent", "subagent", "auxiliary"]


def test_trees_of_one_class_take_turns_however_many_waiters_they_have() -> None:
    noisy = [waiter(f"noisy{n}", tree="noisy") for n in range(4)]
    queue = queue_of(*noisy, waiter("quiet0", tree="quiet"), waiter("quiet1", tree="quiet"))

    assert served(queue) == ["noisy0", "quiet0", "noisy1", "quiet1", "noisy2", "noisy3"]


def test_a_tree_that_comes_back_after_its_turn_stands_behind_those_who_waited() -> None:
    queue = queue_of(waiter("a0", tree="a"), waiter("b0", tree="b"), waiter("c0", tree="c"))
    assert queue.pop(0.0) is not None

    queue.push(waiter("a1", tree="a"))

    assert served(queue) == ["b0", "c0", "a1"]


def test_a_withdrawn_waiter_leaves_the_places_of_the_others() -> None:
    queue = queue_of(waiter("a"), waiter("b"), waiter("c"))

    assert queue.remove(CallId("b")) is not None
    assert queue.remove(CallId("b")) is None
    assert served(queue) == ["a", "c"]


def test_an_old_waiter_of_the_worst_class_gets_every_fourth_turn() -> None:
    queue = queue_of(*(waiter(f"old{n}", priority=Priority.AUXILIARY) for n in range(2)))
    for n in range(8):
        queue.push(waiter(f"new{n}", priority=Priority.INTERACTIVE, since=AGED_AFTER_S))

    order = served(queue, now=AGED_AFTER_S)

    assert order == ["new0", "new1", "new2", "old0", "new3", "new4", "new5", "old1", "new6", "new7"]


def test_a_waiter_that_is_not_old_yet_has_no_turn_before_better_classes() -> None:
    queue = queue_of(waiter("young", priority=Priority.AUXILIARY))
    for n in range(8):
        queue.push(waiter(f"new{n}", priority=Priority.INTERACTIVE))

    assert served(queue, now=AGED_AFTER_S - 1)[-1] == "young"


def test_the_order_shown_is_the_order_served() -> None:
    queue = queue_of(
        waiter("old", priority=Priority.AUXILIARY),
        *(waiter(f"a{n}", tree="a", since=50.0) for n in range(5)),
        *(waiter(f"b{n}", tree="b", since=50.0) for n in range(3)),
    )

    shown = [one.claim.call for one in queue.in_order(100.0)]

    assert len(queue) == 9
    assert shown == served(queue, 100.0)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.sampled_from(Priority), st.sampled_from("abcd")),
        st.tuples(st.just("pop"), st.floats(0, 40), st.none()),
        st.tuples(st.just("remove"), st.integers(0, 200), st.none()),
    ),
    max_size=150,
)


@settings(deadline=None, max_examples=300)
@given(STEPS)
def test_whatever_comes_and_goes_order_and_starvation_bound_hold(steps: list[tuple[str, object, object]]) -> None:
    queue, now, made = FairQueue(), 0.0, 0
    waiting: dict[str, Waiter] = {}
    turns_left: dict[str, int] = {}
    for kind, first, second in steps:
        if kind == "push":
            assert isinstance(first, Priority)
            one = waiter(f"c{made}", tree=str(second), priority=first, since=now)
            made += 1
            queue.push(one)
            waiting[one.claim.call] = one
        elif kind == "remove":
            queue.remove(CallId(f"c{first}"))
            waiting.pop(f"c{first}", None)
            turns_left.pop(f"c{first}", None)
        else:
            assert isinstance(first, float)
            now += first
            for place, (call, one) in enumerate(waiting.items()):
                if one.waited_s(now) >= AGED_AFTER_S:
                    turns_left.setdefault(call, (AGED_PASSES + 1) * (place + 1))
            got = queue.pop(now)
            assert (got is None) == (not waiting)
            if got is None:
                continue
            oldest = next(iter(waiting.values()))
            del waiting[got.claim.call]
            turns_left.pop(got.claim.call, None)
            for other in waiting.values():
                is_same_line = other.claim.tree == got.claim.tree and other.claim.priority == got.claim.priority
                assert not (is_same_line and other.since < got.since), "first come, first served within a tree"
                if got is not oldest:
                    ranks = list(Priority)
                    assert ranks.index(other.claim.priority) >= ranks.index(got.claim.priority)
            turns_left = {call: left - 1 for call, left in turns_left.items()}
            assert all(turns_left.values()), "somebody was passed over too often"
        assert len(queue) == len(waiting)
        assert [one.claim.call for one in queue] == list(waiting)


@pytest.mark.parametrize("noisy_trees", [1, 5])
def test_a_quiet_session_waits_no_longer_than_one_turn_of_each_tree(noisy_trees: int) -> None:
    queue = FairQueue()
    for n in range(40):
        queue.push(waiter(f"noisy{n}", tree=f"tree{n % noisy_trees}"))
    queue.push(waiter("quiet", tree="quiet"))

    turns = 0
    while (got := queue.pop(0.0)) is not None and got.claim.call != "quiet":
        turns += 1
        queue.push(waiter(f"again{turns}", tree=got.claim.tree))

    assert turns == noisy_trees
