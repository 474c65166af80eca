"""What a worker uses against what it may: full, over, and no flapping in between."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.protocol.settings import LimitSettings
from covey.supervisor.exits import OverLimit
from covey.supervisor.growth import RELIEF, Growth, Sample, bounded, judge

NONE = LimitSettings(rss_mb_soft=0, rss_mb_hard=0, fds_soft=0, fds_hard=0, threads_soft=0, threads_hard=0)
LIMITS = msgspec.structs.replace(NONE, rss_mb_soft=100, rss_mb_hard=200, fds_soft=1000, fds_hard=2000)

NUMBERS = st.none() | st.integers(0, 3000)
SAMPLES = st.builds(Sample, rss_mb=st.none() | st.floats(0, 300), fds=NUMBERS, threads=NUMBERS)


def over(what: str, value: float, limit: float) -> OverLimit:
    return OverLimit(what=what, value=value, limit=limit)


@pytest.mark.parametrize(
    ("sample", "growth"),
    [
        pytest.param(Sample(rss_mb=100.0, fds=1000), Growth(), id="at its soft limits it is neither"),
        pytest.param(
            Sample(rss_mb=100.5), Growth(full=(over("rss_mb", 100.5, 100),)), id="above a soft limit it is full"
        ),
        pytest.param(
            Sample(rss_mb=150.0, fds=1500),
            Growth(full=(over("rss_mb", 150, 100), over("fds", 1500, 1000))),
            id="every soft limit is named",
        ),
        pytest.param(
            Sample(fds=2001),
            Growth(full=(over("fds", 2001, 1000),), over=over("fds", 2001, 2000)),
            id="above a hard limit it is over",
        ),
        pytest.param(Sample(threads=9999), Growth(), id="a limit of 0 is none"),
        pytest.param(Sample(), Growth(), id="nothing follows from what could not be read"),
    ],
)
def test_what_one_sample_says(sample: Sample, growth: Growth) -> None:
    assert judge(Growth(), sample, LIMITS) == growth


def test_a_full_worker_takes_agents_again_only_well_below_the_limit() -> None:
    full = judge(Growth(), Sample(rss_mb=101.0), LIMITS)

    near = judge(full, Sample(rss_mb=95.0), LIMITS)
    below = judge(near, Sample(rss_mb=90.0), LIMITS)

    assert near.full == (over("rss_mb", 95, 100),)
    assert below == Growth()
    assert judge(below, Sample(rss_mb=95.0), LIMITS) == Growth()


def test_a_sample_that_could_not_be_read_changes_nothing() -> None:
    full = judge(Growth(), Sample(rss_mb=101.0), LIMITS)

    assert judge(full, Sample(), LIMITS) == full


@given(st.lists(SAMPLES, max_size=30))
def test_over_any_history_each_limit_holds_and_nobody_flaps(samples: list[Sample]) -> None:
    growth = Growth()
    for sample in samples:
        before, growth = growth, judge(growth, sample, LIMITS)

        if before.over is not None:
            assert growth == before, "a life that was over stays so"
            continue
        assert (growth.over is not None) == ((sample.rss_mb or 0) > 200 or (sample.fds or 0) > 2000)
        was, now = ({found.what for found in known.full} for known in (before, growth))
        for what, value, limit in (("rss_mb", sample.rss_mb, 100), ("fds", sample.fds, 1000)):
            if value is None:
                assert (what in now) == (what in was)
            elif value > limit:
                assert what in now
            elif value <= limit * RELIEF:
                assert what not in now
            else:
                assert (what in now) == (what in was), "between the two bounds nothing changes"
        assert "threads" not in now


@pytest.mark.parametrize(
    ("open_files", "limits"),
    [
        pytest.param(100_000, (1000, 2000), id="far away: ours hold"),
        pytest.param(1024, (819, 972), id="near: a share of the kernel's"),
        pytest.param(-1, (1000, 2000), id="none: ours hold"),
    ],
)
def test_limits_on_files_are_below_the_kernels_own(open_files: int, limits: tuple[int, int]) -> None:
    found = bounded(LIMITS, open_files)

    assert (found.fds_soft, found.fds_hard) == limits
    assert bounded(NONE, open_files) == NONE
