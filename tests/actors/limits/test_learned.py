"""The learned limit: how far it falls, and how fast it comes back."""

from __future__ import annotations

import pytest

from covey.actors.limits.learned import CAREFUL, Learned


def climb(learned: Learned, limit: int) -> int:
    """Let calls pass at the limit until it is `limit`; return how many it took."""
    for calls in range(10_000):
        if learned.limit >= limit:
            return calls
        learned.grow(learned.limit)
    raise AssertionError(f"stuck at {learned.limit}")


@pytest.mark.parametrize(
    ("configured", "level", "limit"),
    [
        pytest.param(8, 8, 4, id="halved"),
        pytest.param(8, 3, 1, id="from what was in flight, if that is less"),
        pytest.param(8, 20, 4, id="not from leases above the limit"),
        pytest.param(8, None, 4, id="of a call that nobody counted"),
        pytest.param(1, 1, 1, id="never below one"),
    ],
)
def test_a_refusal_halves(configured: int, level: int | None, limit: int) -> None:
    learned = Learned(configured)

    learned.shrink(level)

    assert learned.limit == limit


def test_a_refused_number_is_approached_more_slowly_each_time_it_is_refused_again() -> None:
    learned = Learned(2)
    steps = []

    for _ in range(4):
        learned.shrink(2)
        steps.append(climb(learned, 2))

    assert steps == [CAREFUL, 2 * CAREFUL, 4 * CAREFUL, 8 * CAREFUL]


def test_a_number_that_passes_is_refused_no_more_and_a_whole_limit_is_not_learned() -> None:
    learned = Learned(2)
    learned.shrink(2)
    climb(learned, 2)
    assert (learned.limit, learned.refused_at) == (2, 2)

    assert learned.grow(2)

    assert {learned.value, learned.refused_at} == {None}
    learned.shrink(2)
    assert climb(learned, 2) == CAREFUL


def test_a_lower_refusal_is_no_relapse() -> None:
    learned = Learned(8)
    learned.shrink(8)

    learned.shrink(4)

    assert (learned.limit, learned.refused_at, learned.relapses) == (2, 4, 0)


def test_slots_that_are_hardly_used_prove_nothing() -> None:
    learned = Learned(16)
    learned.shrink(16)
    before = learned.value

    assert not learned.grow(3)
    assert learned.value == before
    learned.grow(4)
    assert learned.value != before


def test_growth_within_a_slot_is_not_worth_telling() -> None:
    learned = Learned(16)
    learned.shrink(16)

    told = [learned.grow(8) for _ in range(8)]

    assert told == [False] * 7 + [True]


def test_what_was_learned_at_the_old_limit_does_not_bind_a_higher_one_if_nothing_was_refused() -> None:
    learned = Learned(4)
    learned.restore(4.0, refused_at=None, relapses=0)

    learned.configure(9)

    assert learned.limit == 9


def test_no_limit_at_all_stays_none() -> None:
    learned = Learned(0)

    learned.shrink(1)

    assert learned.limit == 0
