"""Windows of a minute: never more than the limit in any 60 seconds, whatever starts and ends when."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.actors.limits.windows import GRAIN_S, SPAN_S, Window
from covey.protocol.ids import CallId

A, B, C = CallId("a"), CallId("b"), CallId("c")


def test_a_limit_that_is_used_up_is_free_again_after_a_minute() -> None:
    window = Window(2)
    window.count(A, 1, 0.0)
    window.count(B, 1, 10.0)

    assert not window.fits(1, 59.9)
    assert window.fits_at(1, 20.0) == 60.0
    assert window.fits(1, 60.0)
    assert window.fits_at(2, 60.0) == 70.0


def test_what_a_call_did_use_replaces_what_was_expected_from_its_start_on() -> None:
    window = Window(100)
    window.count(A, 80, 0.0)
    window.correct(A, 30, 50.0)

    assert window.used(50.0) == 30
    assert window.used(60.0) == 0


def test_a_call_that_used_more_than_expected_keeps_others_out() -> None:
    window = Window(100)
    window.count(A, 10, 0.0)
    window.correct(A, 500, 5.0)

    assert not window.fits(1, 5.0)
    assert window.fits_at(1, 5.0) == 60.0


@pytest.mark.parametrize("end", ["correct", "keep"])
def test_the_first_word_about_an_end_counts(end: str) -> None:
    window = Window(100)
    window.count(A, 10, 0.0)
    if end == "correct":
        window.correct(A, 20, 1.0)
    else:
        window.keep(A, 1.0)

    used = window.used(1.0)
    window.correct(A, 99, 2.0)

    assert window.used(2.0) == used == (20 if end == "correct" else 10)


def test_a_call_is_counted_once() -> None:
    window = Window(100)
    window.count(A, 10, 0.0)
    window.count(A, 10, 1.0)

    assert window.used(1.0) == 10


def test_a_call_that_ends_after_its_minute_corrects_nothing() -> None:
    window = Window(100)
    window.count(A, 10, 0.0)
    window.count(B, 5, 61.0)
    window.correct(A, 90, 62.0)

    assert window.used(62.0) == 5


def test_a_call_larger_than_the_limit_goes_alone() -> None:
    window = Window(100)
    window.count(A, 1, 0.0)

    assert not window.fits(500, 0.0)
    assert window.fits_at(500, 0.0) == 60.0
    window.count(B, 500, 60.0)
    assert not window.fits(1, 60.0)
    assert window.fits_at(1, 60.0) == 120.0


def test_a_lower_limit_holds_at_once() -> None:
    window = Window(100)
    window.count(A, 50, 0.0)
    window.limit = 40

    assert not window.fits(1, 0.0)


def test_memory_is_bounded_however_many_calls_start() -> None:
    window = Window(10**9)
    for number in range(100_000):
        at = number * 0.01
        window.count(CallId(f"c{number}"), 1, at)
        window.correct(CallId(f"c{number}"), 1, at)

    assert len(window._entries) <= SPAN_S / GRAIN_S + 1
    assert not window._of_call


class Turn(NamedTuple):
    pause: float
    amount: int
    actual: int | None
    """What the call used, told at the next turn; None: it still runs then."""


pauses = st.sampled_from([0.0, 0.01, 0.04, 0.05, 1.0, 20.0, 59.99, 60.0]) | st.floats(0, 90)
turns = st.lists(st.builds(Turn, pauses, st.integers(0, 12), st.none() | st.integers(0, 30)), min_size=1, max_size=40)


@given(turns=turns, limit=st.integers(1, 20))
def test_like_a_list_of_all_calls_and_never_above_the_limit(turns: list[Turn], limit: int) -> None:
    """Against the plain model: the sum over all calls that started in the last 60 seconds."""
    window, now = Window(limit), 0.0
    calls: dict[CallId, tuple[float, int]] = {}

    def used(at: float, span: float = SPAN_S) -> int:
        return sum(amount for start, amount in calls.values() if start + span > at)

    for number, turn in enumerate(turns):
        now += turn.pause
        call = CallId(str(number))
        fits = window.fits(turn.amount, now)
        # What shares an entry may count a grain longer than it has to.
        assert used(now) <= window.used(now) <= used(now, SPAN_S + GRAIN_S)
        if not fits:
            now = window.fits_at(turn.amount, now)
            assert window.fits(turn.amount, now)
        assert used(now) + turn.amount <= limit or used(now) == 0
        window.count(call, turn.amount, now)
        calls[call] = now, turn.amount
        if turn.actual is not None:
            window.correct(call, turn.actual, now)
            calls[call] = now, turn.actual


@given(turns=turns, limit=st.integers(12, 20))
def test_no_span_of_a_minute_holds_more_than_the_limit(turns: list[Turn], limit: int) -> None:
    window, now = Window(limit), 0.0
    starts: list[tuple[float, int]] = []
    for number, turn in enumerate(turns):
        now = window.fits_at(turn.amount, now + turn.pause)
        window.count(CallId(str(number)), turn.amount, now)
        starts.append((now, turn.amount))

    for first, _ in starts:
        assert sum(amount for start, amount in starts if first <= start < first + SPAN_S) <= limit


@given(turns=turns, limit=st.integers(1, 20))
def test_the_time_it_names_is_the_first_that_fits(turns: list[Turn], limit: int) -> None:
    window, now = Window(limit), 0.0
    for number, turn in enumerate(turns):
        now += turn.pause
        at = window.fits_at(turn.amount, now)
        earlier = (now + at) / 2
        if now < earlier < at:
            assert not window.fits(turn.amount, earlier)
        now = at
        window.count(CallId(str(number)), turn.amount, now)
