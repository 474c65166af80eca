"""The pump's beat: what is done every second is done by everybody in the same moment."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from covey.supervisor.pump import EARLY_S, next_beat

CLOCKS = st.floats(min_value=0.0, max_value=1e7)
SPANS = st.sampled_from([0.05, 0.1, 0.3, 0.5, 1.0, 3.0])


@given(now=CLOCKS, later_by=st.floats(min_value=0.0, max_value=0.9), every_s=SPANS)
@example(now=12.0, later_by=0.5, every_s=1.0)
def test_the_next_beat_is_ahead_by_no_more_than_one_and_the_same_for_all(
    now: float, later_by: float, every_s: float
) -> None:
    beat = next_beat(now, every_s)

    assert now - 1e-6 < beat <= now + every_s + EARLY_S + 1e-6
    meanwhile = now + later_by * (beat - now)
    assert abs(next_beat(meanwhile, every_s) - beat) < 1e-6 or meanwhile >= beat - EARLY_S - 1e-6


def test_a_timer_that_came_a_little_early_is_not_set_for_the_same_beat_again() -> None:
    assert next_beat(12.9995, 1.0) == 14.0


def test_a_beat_that_is_now_leads_to_the_next_one() -> None:
    assert next_beat(12.0, 1.0) == 13.0
