"""The order of service."""

from __future__ import annotations

from collections.abc import Collection

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


def waiter(
    call: str,
    *,
    tree: str = "t",
    priority: Priority = Priority.AGENT,
    since: float = 0.0,
    model: str = "glm",
    above: int = 0,
    attempt: int = 1,
) -> Waiter:
    claim = Claim(
        call=CallId(call),
        budget=BudgetKey("zai"),
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
        attempt=attempt,
    )
    return Waiter(claim=claim, since=since)


def queue_of(*waiters: Waiter) -> FairQueue:
    queue = FairQueue()
    for one in waiters:
        queue.push(one)
    return queue


def served(queue: FairQueue, now: float = 0.0, closed: Collection[str] = ()) -> list[str]:
    calls: list[str] = []
    while (one := queue.pop(now, closed)) is not None:
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


def test_a_tree_that_leaves_and_comes_back_stands_behind_those_who_stayed() -> None:
    queue = queue_of(*(waiter(f"{tree}0", tree=tree) for tree in "abc"))
    queue.remove(CallId("a0"))

    queue.push(waiter("a1", tree="a"))

    assert served(queue) == ["b0", "c0", "a1"]


def test_a_tree_that_asks_one_call_at_a_time_gets_as_many_turns_as_one_that_asks_for_many() -> None:
    queue = queue_of(*(waiter(f"many{n}", tree="many") for n in range(10)), waiter("one0", tree="one"))
    order: list[str] = []
    while len(order) < 10 and (got := queue.pop(0.0)) is not None:
        order.append(got.claim.tree)
        if got.claim.tree == "one":
            queue.push(waiter(f"one{len(order)}", tree="one"))

    assert order == ["many", "one"] * 5


def test_children_of_waiting_parents_go_first_in_their_tree_the_deepest_before_all() -> None:
    queue = queue_of(waiter("top"), waiter("child", above=1), waiter("grandchild", above=2), waiter("second", above=1))

    assert served(queue) == ["grandchild", "child", "second", "top"]


def test_a_later_attempt_goes_before_first_ones_of_its_tree() -> None:
    queue = queue_of(waiter("new"), waiter("again", attempt=2), waiter("thrice", attempt=3), waiter("deep", above=1))

    assert served(queue) == ["deep", "again", "thrice", "new"]


@pytest.mark.parametrize("priority", [Priority.SUBAGENT, Priority.AUXILIARY])
def test_a_child_somebody_waits_for_counts_among_the_agents(priority: Priority) -> None:
    busy = [waiter(f"busy{n}", tree="busy") for n in range(50)]
    queue = queue_of(*busy, waiter("child", tree="family", priority=priority, above=1))

    assert served(queue).index("child") == 1


def test_a_child_somebody_waits_for_keeps_a_better_class() -> None:
    child = waiter("child", tree="family", priority=Priority.INTERACTIVE, above=1)
    queue = queue_of(*(waiter(f"agent{n}", tree=f"t{n}") for n in range(3)), child)

    assert served(queue)[0] == "child"


def test_configured_weights_share_the_turns_between_classes() -> None:
    queue = FairQueue((), {Priority.INTERACTIVE: 1, Priority.AGENT: 3})
    for n in range(40):
        queue.push(waiter(f"i{n}", priority=Priority.INTERACTIVE))
        queue.push(waiter(f"a{n}", priority=Priority.AGENT))

    first = served(queue)[:40]

    assert sum(call.startswith("a") for call in first) == 30


def test_other_weights_change_the_shares_and_lose_nobody() -> None:
    queue = FairQueue()
    for n in range(40):
        queue.push(waiter(f"i{n}", priority=Priority.INTERACTIVE))
        queue.push(waiter(f"a{n}", priority=Priority.AGENT))

    queue.configure((), {Priority.INTERACTIVE: 1, Priority.AGENT: 1})

    order = served(queue)
    assert sum(call.startswith("a") for call in order[:20]) == 10
    assert len(order) == 80


def test_a_model_at_its_limit_does_not_hold_up_the_others() -> None:
    queue = FairQueue(["turbo"])
    for one in (waiter("t0", model="turbo"), waiter("t1", model="Turbo", tree="u"), waiter("m0"), waiter("m1")):
        queue.push(one)

    assert served(queue, closed=["turbo"]) == ["m0", "m1"]
    assert served(queue) == ["t1", "t0"], "tree t had its turns"


def test_a_tree_whose_model_is_at_its_limit_keeps_its_turn() -> None:
    queue = FairQueue(["turbo"])
    queue.push(waiter("first", tree="a", model="turbo"))
    for n in range(4):
        queue.push(waiter(f"b{n}", tree="b"))
    assert [queue.pop(0.0, ["turbo"]) for _ in range(2)]

    assert served(queue) == ["first", "b2", "b3"]


def test_a_class_whose_model_is_at_its_limit_saves_no_turns() -> None:
    queue = FairQueue(["turbo"], {Priority.INTERACTIVE: 1, Priority.AGENT: 1})
    for n in range(20):
        queue.push(waiter(f"i{n}", priority=Priority.INTERACTIVE, model="turbo"))
        queue.push(waiter(f"a{n}"))
    assert all(queue.pop(0.0, ["turbo"]) for _ in range(10))

    assert [call[0] for call in served(queue)[:6]] == ["i", "a", "i", "a", "i", "a"]


def test_a_model_that_gets_a_limit_sorts_its_waiters_out_and_moves_nobody() -> None:
    queue = queue_of(*(waiter(f"{tree}{n}", tree=tree, model=f"m{n}") for n in range(2) for tree in "abc"))
    before = [one.claim.call for one in queue.in_order(0.0)]

    queue.configure(["m0"], {})

    assert [one.claim.call for one in queue.in_order(0.0)] == before
    assert queue.queued("M0") == 3
    assert served(queue, closed=["m0"]) == ["a1", "b1", "c1"]


def test_who_is_next_is_shown_without_a_change() -> None:
    queue = queue_of(waiter("a"), waiter("b"))

    assert {queue.peek(0.0) for _ in range(5)} == {queue.pop(0.0)}
    assert queue.peek(0.0) is not None
    assert FairQueue().peek(0.0) is None


def test_only_the_first_are_shown_and_those_closed_out_stand_last() -> None:
    queue = FairQueue(["turbo"])
    for n in range(5):
        queue.push(waiter(f"t{n}", model="turbo"))
        queue.push(waiter(f"m{n}", tree="u"))

    shown = [one.claim.call for one in queue.in_order(0.0, closed=["turbo"], count=7)]

    assert shown == ["m0", "m1", "m2", "m3", "m4", "t0", "t1"]
    assert len(queue) == 10


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


def test_a_turn_by_age_is_not_taken_from_its_class() -> None:
    queue = FairQueue((), dict.fromkeys(Priority, 1))
    old = [waiter(f"old{n}", priority=Priority.AUXILIARY) for n in range(3)]
    for one in (*old, *(waiter(f"new{n}", since=AGED_AFTER_S) for n in range(9))):
        queue.push(one)
    queue.configure((), {Priority.AGENT: 1000, Priority.AUXILIARY: 1})
    assert [queue.pop(AGED_AFTER_S) for _ in range(4)][-1] == old[0], "by age"

    queue.configure((), dict.fromkeys(Priority, 1))

    assert [call[:3] for call in served(queue, AGED_AFTER_S - 1)[:4]] == ["old", "new", "old", "new"]


def test_passes_of_an_old_waiter_are_remembered_when_models_get_limits() -> None:
    queue = queue_of(waiter("old", priority=Priority.AUXILIARY))
    for n in range(5):
        queue.push(waiter(f"new{n}", since=AGED_AFTER_S))
    assert all(queue.pop(AGED_AFTER_S) for _ in range(AGED_PASSES))

    queue.configure(["other"], {})

    assert served(queue, AGED_AFTER_S)[0] == "old"


def test_an_old_waiter_whose_model_was_closed_in_between_is_still_passed_over_three_times_at_most() -> None:
    queue = FairQueue(["turbo"])
    queue.push(waiter("old", priority=Priority.AUXILIARY, model="turbo"))
    for n in range(20):
        queue.push(waiter(f"new{n}", tree=f"t{n}", since=AGED_AFTER_S))
    while_open: list[str] = []
    for _ in range(AGED_PASSES + 1):
        got = queue.pop(AGED_AFTER_S)
        assert got is not None
        while_open.append(got.claim.call)
        queue.pop(AGED_AFTER_S, ["turbo"])

    assert while_open[-1] == "old"


def test_who_stood_aside_is_as_old_as_before_in_its_tree_and_for_ageing() -> None:
    aside = [waiter(f"aside{n}", priority=Priority.AUXILIARY) for n in range(30)]
    queue = queue_of(*aside, *(waiter(f"young{n}", priority=Priority.AUXILIARY, since=20.0) for n in range(3)))
    for one in aside:
        queue.remove(one.claim.call)
    for one in reversed(aside):
        queue.push(one)
    for one in aside[:25]:
        queue.remove(one.claim.call)

    assert queue.oldest_wait_s(50.0) == 50.0
    assert served(queue, 10.0)[:5] == ["aside29", "aside28", "aside27", "aside26", "aside25"]


def test_who_stood_aside_is_served_by_age_before_the_younger() -> None:
    old = waiter("old", priority=Priority.AUXILIARY)
    queue = queue_of(old, *(waiter(f"a{n}", since=1.0) for n in range(8)))
    queue.remove(CallId("old"))
    queue.push(old)

    assert served(queue, 1.0 + AGED_AFTER_S)[:4] == ["a0", "a1", "a2", "old"]


def test_trees_take_turns_whatever_models_their_waiters_want() -> None:
    queue = FairQueue(["turbo"])
    for n, tree in enumerate("abcd" * 2):
        queue.push(waiter(f"{tree}{n // 4}", tree=tree, model="glm" if n % 2 else "turbo"))

    assert served(queue) == ["a0", "b0", "c0", "d0", "a1", "b1", "c1", "d1"]


def test_many_who_give_up_leave_the_others_of_their_tree_in_order() -> None:
    queue = queue_of(*(waiter(f"c{n}", above=n % 2) for n in range(90)))
    stay = [one.claim.call for one in queue.in_order(0.0) if int(one.claim.call[1:]) % 5 == 0]

    for n in range(90):
        if n % 5:
            queue.remove(CallId(f"c{n}"))

    assert served(queue) == stay


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
            del waiting[got.claim.call]
            turns_left.pop(got.claim.call, None)
            for other in waiting.values():
                is_same_line = other.claim.tree == got.claim.tree and other.claim.priority == got.claim.priority
                assert not (is_same_line and other.since < got.since), "first come, first served within a tree"
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
