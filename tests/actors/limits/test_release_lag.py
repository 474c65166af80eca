"""The release lag: which refusals it explains, and when it is taken back."""

from __future__ import annotations

import pytest

from covey.actors.limits.release_lag import CAP_S, FIRST_S, TRIALS, ReleaseLag


def proven(level: int = 2, *, configured_s: float = 0.0) -> ReleaseLag:
    lag = ReleaseLag(configured_s)
    lag.passed(level, None)
    return lag


@pytest.mark.parametrize(
    ("level", "gap_s", "blamed"),
    [
        pytest.param(2, 0.0, True, id="just after a release, at a number that had passed"),
        pytest.param(3, 0.0, False, id="at a number that never passed"),
        pytest.param(2, None, False, id="long after the last release"),
        pytest.param(None, 0.0, False, id="of a call that nobody counted"),
    ],
)
def test_what_the_lag_explains(level: int | None, gap_s: float | None, blamed: bool) -> None:
    lag = proven()

    assert lag.takes_blame(level, gap_s) is blamed
    assert lag.seconds == (FIRST_S if blamed else 0.0)


def test_a_longer_gap_teaches_a_longer_lag_up_to_the_cap() -> None:
    lag = proven()

    assert lag.takes_blame(2, 0.3)
    assert lag.seconds == pytest.approx(0.75)
    assert lag.takes_blame(2, 0.75)
    assert lag.seconds == pytest.approx(1.875)
    assert lag.takes_blame(2, 1.9)
    assert lag.seconds == CAP_S


def test_refusals_that_a_longer_lag_does_not_end_take_it_back() -> None:
    lag = proven()
    for _ in range(TRIALS):
        assert lag.takes_blame(2, 0.0)

    assert not lag.takes_blame(2, 0.0)
    lag.cleared(1)

    assert lag.seconds == 0.0
    assert not lag.takes_blame(2, 0.0)


def test_a_call_that_passes_just_after_a_release_confirms_the_lag() -> None:
    lag = proven()
    lag.takes_blame(2, 0.0)

    lag.passed(2, FIRST_S)
    lag.cleared(1)

    assert lag.seconds == FIRST_S


def test_a_call_that_passes_long_after_a_release_confirms_nothing() -> None:
    lag = proven()
    lag.takes_blame(2, 0.0)

    lag.passed(2, None)
    lag.cleared(1)

    assert lag.seconds == 0.0


def test_the_gap_is_the_age_of_the_latest_release_that_lingers_no_more() -> None:
    lag = ReleaseLag(0.2)
    for at in (10.0, 12.0, 12.5):
        lag.freed(at)

    assert lag.gap_s(12.6) == pytest.approx(0.6)
    assert lag.gap_s(12.7) == pytest.approx(0.2)
    assert lag.gap_s(14.5) == pytest.approx(2.0)
    assert lag.gap_s(14.6) is None
    assert ReleaseLag(0.0).gap_s(1.0) is None


def test_the_configured_lag_is_the_least_and_may_exceed_the_cap() -> None:
    lag = proven(configured_s=3.0)

    assert lag.seconds == 3.0
    assert not lag.takes_blame(2, 3.0)


@pytest.mark.parametrize(("kept_s", "lag_s"), [(0.4, 0.4), (99.0, CAP_S), (-1.0, 0.0)])
def test_a_learned_lag_is_taken_over(kept_s: float, lag_s: float) -> None:
    lag = ReleaseLag(0.0)
    lag.restore(kept_s)
    lag.cleared(1)

    assert lag.seconds == lag_s
