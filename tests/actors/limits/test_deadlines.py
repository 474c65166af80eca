"""Deadlines of calls."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from covey.actors.limits.deadlines import Deadlines
from covey.protocol.ids import CallId


def test_the_earliest_is_next_and_due_ones_come_in_order() -> None:
    deadlines = Deadlines()
    for call, at in (("a", 3.0), ("b", 1.0), ("c", 2.0)):
        deadlines.set(CallId(call), at)

    assert deadlines.next_at() == 1.0
    assert deadlines.pop_due(2.0) == ["b", "c"]
    assert deadlines.next_at() == 3.0


def test_a_deadline_set_again_replaces_the_first() -> None:
    deadlines = Deadlines()
    deadlines.set(CallId("a"), 1.0)

    deadlines.set(CallId("a"), 5.0)

    assert deadlines.pop_due(4.0) == []
    assert deadlines.pop_due(5.0) == ["a"]


def test_cancelled_deadlines_do_not_pile_up() -> None:
    deadlines = Deadlines()

    for n in range(10_000):
        deadlines.set(CallId(f"c{n}"), 3600.0 + n)
        deadlines.cancel(CallId(f"c{n}"))

    assert len(deadlines._heap) < 100


@given(st.lists(st.tuples(st.integers(0, 20), st.one_of(st.none(), st.integers(0, 50))), max_size=300))
def test_it_agrees_with_a_plain_dict(steps: list[tuple[int, int | None]]) -> None:
    deadlines, model = Deadlines(), dict[str, float]()

    for number, at in steps:
        call = CallId(f"c{number}")
        if at is None:
            deadlines.cancel(call)
            model.pop(call, None)
        else:
            deadlines.set(call, at)
            model[call] = at
        assert deadlines.next_at() == min(model.values(), default=None)
        assert len(deadlines) == len(model)

    assert sorted(deadlines.pop_due(25)) == sorted(call for call, at in model.items() if at <= 25)
