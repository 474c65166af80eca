"""What follows from grants and releases of several processes on one clock."""

from __future__ import annotations

import pytest

from covey.bench.broker_spans import Spans, finished, hand_overs, held


def test_a_hand_over_is_from_a_release_to_the_next_grant_whoever_had_it() -> None:
    one = Spans(granted=(0.0, 3.5), released=(1.0, 4.0))
    other = Spans(granted=(1.25,), released=(3.0,))

    assert hand_overs([one, other]) == [0.25, 0.5]


def test_a_last_release_without_a_grant_behind_it_is_no_hand_over() -> None:
    assert hand_overs([Spans(granted=(0.0,), released=(1.0,))]) == []


def test_only_what_was_given_back_in_the_window_counts() -> None:
    spans = [Spans(granted=(0.0, 1.0), released=(0.5, 2.0)), Spans(granted=(0.0,), released=(1.5,))]

    assert finished(spans, since=0.5, until=2.0) == 2


def test_a_slot_was_held_from_its_grant_to_its_release() -> None:
    assert held([Spans(granted=(1.0, 5.0), released=(1.5, 7.0))]) == pytest.approx([0.5, 2.0])
