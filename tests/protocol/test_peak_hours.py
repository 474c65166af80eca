"""Windows of dear hours are what a calendar in their zone says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.protocol.peak_hours import PATTERN, QUARTER_S, PeakHours, peak_hours_of

QUARTERS = st.integers(0, 95).map(lambda quarter: quarter * 15)


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        pytest.param("00:30-16:30", PeakHours(begin=30, end=990), id="every day in UTC"),
        pytest.param("00:00-24:00 UTC", PeakHours(begin=0, end=1440), id="all day"),
        pytest.param("Sun 22:00-06:00 -05:30", PeakHours(days=(6,), begin=1320, end=360, offset=-330), id="one night"),
        pytest.param(
            "Sat-Mon 09:00-10:00 +14:00", PeakHours(days=(5, 6, 0), begin=540, end=600, offset=840), id="round"
        ),
    ],
)
def test_what_is_written_is_read(text: str, hours: PeakHours) -> None:
    assert PATTERN.fullmatch(text)
    assert peak_hours_of(text) == hours


@pytest.mark.parametrize(
    "text", ["", "9-17", "09:00", "09:10-10:00", "24:00-01:00", "mon 09:00-10:00", "09:00-10:00 CET"]
)
def test_what_cannot_be_meant_does_not_fit(text: str) -> None:
    assert not PATTERN.fullmatch(text)


@given(
    begin=QUARTERS,
    end=QUARTERS,
    days=st.sets(st.integers(0, 6), min_size=1),
    offset=st.integers(-56, 56).map(lambda quarter: quarter * 15),
    at=st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)),  # noqa: DTZ001 - made aware below
)
def test_a_moment_is_inside_where_a_calendar_says_so(
    begin: int, end: int, days: set[int], offset: int, at: datetime
) -> None:
    hours = PeakHours(days=tuple(sorted(days)), begin=begin, end=end, offset=offset)
    moment = at.replace(tzinfo=UTC)
    here = moment.astimezone(timezone(timedelta(minutes=offset)))
    midnight = here.replace(hour=0, minute=0, second=0, microsecond=0)
    length = (end - begin) % 1440 or 1440

    windows = [midnight + timedelta(days=back, minutes=begin) for back in (-1, 0)]
    wanted = any(start.weekday() in days and start <= here < start + timedelta(minutes=length) for start in windows)

    assert hours.contain(moment.timestamp()) is wanted


@given(hours=st.builds(PeakHours, begin=QUARTERS, end=QUARTERS), quarter=st.integers(0, 10**7))
def test_a_quarter_of_an_hour_is_inside_or_outside_as_a_whole(hours: PeakHours, quarter: int) -> None:
    begin = quarter * QUARTER_S

    assert len({hours.contain(begin + second) for second in (0, 1, QUARTER_S // 2, QUARTER_S - 1)}) == 1
