"""How classes share the turns."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.actors.limits.class_shares import ClassShares
from covey.protocol.messages.broker import Priority

INTERACTIVE, AGENT, SUBAGENT, AUXILIARY = Priority
ALL = tuple(Priority)


def turns(shares: ClassShares, count: int, ready: tuple[Priority, ...] = ALL) -> list[Priority]:
    taken: list[Priority] = []
    for _ in range(count):
        taken.append(shares.next(ready))
        shares.spend(taken[-1], ready)
    return taken


def test_classes_that_are_always_ready_share_by_weight() -> None:
    shares = ClassShares({INTERACTIVE: 4, AGENT: 3, SUBAGENT: 2, AUXILIARY: 1})

    taken = Counter(turns(shares, 1000))

    assert taken == {INTERACTIVE: 400, AGENT: 300, SUBAGENT: 200, AUXILIARY: 100}


def test_equal_weights_take_turns() -> None:
    assert turns(ClassShares(dict.fromkeys(Priority, 5)), 8) == [*ALL, *ALL]


@pytest.mark.parametrize("before", [1, 7, 63, 640, 5001])
def test_an_interactive_call_that_comes_goes_next(before: int) -> None:
    shares = ClassShares({})
    turns(shares, before, (AGENT, SUBAGENT, AUXILIARY))

    assert shares.next(ALL) is INTERACTIVE


@pytest.mark.parametrize("between", [1, 3, 5, 7, 11])
def test_interactive_calls_that_come_one_by_one_go_next_nearly_each_time(between: int) -> None:
    shares, passed = ClassShares({}), 0
    for _ in range(1000):
        turns(shares, between, (AGENT, SUBAGENT, AUXILIARY))
        passed += turns(shares, 4).index(INTERACTIVE)

    assert passed <= 10


def test_the_worst_class_has_its_turns_beside_all_others() -> None:
    assert AUXILIARY in turns(ClassShares({}), 1111)


def test_a_class_that_was_away_has_no_turns_to_make_up_for() -> None:
    shares = ClassShares({INTERACTIVE: 1, AGENT: 1})
    turns(shares, 1000, (AGENT,))

    taken = turns(shares, 10, (INTERACTIVE, AGENT))

    assert Counter(taken) == {INTERACTIVE: 5, AGENT: 5}


def test_a_class_that_had_many_turns_alone_owes_none() -> None:
    shares = ClassShares({INTERACTIVE: 1, AGENT: 1})
    turns(shares, 1000, (AGENT,))
    turns(shares, 1, (INTERACTIVE,))

    assert Counter(turns(shares, 10, (INTERACTIVE, AGENT))) == {INTERACTIVE: 5, AGENT: 5}


def test_leaving_and_coming_back_wins_no_turns() -> None:
    shares = ClassShares(dict.fromkeys(Priority, 1))
    order: list[Priority] = []
    while len(order) < 3000:
        # Nobody of the first class waits whenever it has just had its turn.
        ready = (AGENT, SUBAGENT) if order[-1:] == [INTERACTIVE] else (INTERACTIVE, AGENT, SUBAGENT)
        order += turns(shares, 1, ready)

    assert Counter(order) == dict.fromkeys((INTERACTIVE, AGENT, SUBAGENT), 1000)


def test_other_weights_count_from_the_next_turns_on() -> None:
    shares = ClassShares({INTERACTIVE: 1, AGENT: 1})
    turns(shares, 100, (INTERACTIVE, AGENT))

    shares.weigh({INTERACTIVE: 1, AGENT: 3})

    assert Counter(turns(shares, 400, (INTERACTIVE, AGENT))) == {INTERACTIVE: 100, AGENT: 300}


def test_a_weight_of_nothing_is_a_bug_of_the_caller() -> None:
    with pytest.raises(AssertionError, match="whole numbers from 1 on"):
        ClassShares({AGENT: 0})


READY = st.lists(st.sets(st.sampled_from(ALL), min_size=1), min_size=1, max_size=300)
WEIGHTS = st.fixed_dictionaries({priority: st.integers(1, 50) for priority in Priority})


@settings(deadline=None, max_examples=200)
@given(WEIGHTS, READY)
def test_while_two_classes_are_ready_neither_gets_more_than_a_stride_ahead(
    weights: dict[Priority, int], steps: list[set[Priority]]
) -> None:
    shares = ClassShares(weights)
    got: dict[tuple[Priority, Priority], list[int]] = {}
    for ready in steps:
        taken = shares.next(ready)
        shares.spend(taken, ready)
        for pair in itertools.combinations(ALL, 2):
            if not ready.issuperset(pair):
                got.pop(pair, None)
                continue
            counts = got.setdefault(pair, [0, 0])
            if taken in pair:
                counts[pair.index(taken)] += 1
            one, other = (count / weights[priority] for count, priority in zip(counts, pair, strict=True))
            assert abs(one - other) <= 1 / weights[pair[0]] + 1 / weights[pair[1]] + 1e-9
