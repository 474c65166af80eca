"""When a used-up window ends: stamps without a zone, both languages, and what cannot be meant."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.protocol.faults import classify
from covey.protocol.resets import LONGEST_WINDOW_S, read_reset, window_length_s

HOUR = 3600.0
DAY = 24 * HOUR


def unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.fixture(params=["UTC", "Asia/Shanghai", "America/New_York", "Pacific/Chatham", "Europe/London"])
def zone_of_process(request: pytest.FixtureRequest) -> Iterator[str]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    yield request.param
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.parametrize(
    ("now", "text", "at"),
    [
        pytest.param(
            "2026-09-11T14:45:00+00:00",
            "[1308][usage limit reached for 5 hour. your limit will reset at 2026-09-12 00:35:41][20260912001903f3a1]",
            "2026-09-11T16:35:41+00:00",
            id="a trace that does not fit our clock leaves the stamp at +8",
        ),
        pytest.param(
            "2026-09-11T16:19:04+00:00",
            "[1308][usage limit reached for 5 hour. your limit will reset at 2026-09-12 00:35:41][20260912001903f3a1]",
            "2026-09-11T16:35:41+00:00",
            id="a trace that fits confirms +8",
        ),
        pytest.param(
            "2026-09-11T16:19:04+00:00",
            "[1308][usage limit reached for 5 hour. your limit will reset at 2026-09-11 18:35:41][20260911161903f3a1]",
            "2026-09-11T18:35:41+00:00",
            id="a trace in another zone tells the zone of the stamp",
        ),
        pytest.param(
            "2026-08-23T14:00:00+00:00",
            "[1308][已达到 5 小时的使用上限。您的限额将在 2026-08-24 00:09:21 重置。]",
            "2026-08-23T16:09:21+00:00",
            id="Chinese",
        ),
        pytest.param(
            "2026-03-08T05:30:00+00:00",
            "usage limit reached for 5 hour. your limit will reset at 2026-03-08 18:00:00",
            "2026-03-08T10:00:00+00:00",
            id="over the change to summer time in New York",
        ),
        pytest.param(
            "2026-10-25T00:30:00+00:00",
            "usage limit reached for 5 hour. your limit will reset at 2026-10-25 09:30:00",
            "2026-10-25T01:30:00+00:00",
            id="in the hour that London has twice",
        ),
        pytest.param(
            "2026-12-31T15:00:00+00:00",
            "weekly/monthly limit exhausted. your limit will reset at 2027-01-01 00:00:00",
            "2026-12-31T16:00:00+00:00",
            id="over the turn of the year",
        ),
    ],
)
def test_a_stamp_means_the_same_in_every_zone(zone_of_process: str, now: str, text: str, at: str) -> None:
    assert read_reset(text, code="1308", now=unix(now)).at == unix(at)


@pytest.mark.parametrize(
    ("stamp", "at_s"),
    [
        pytest.param("2026-09-12 09:00:00", 5 * HOUR, id="beyond the window's length: clamped to it"),
        pytest.param("2036-09-12 01:00:00", 5 * HOUR, id="years ahead: clamped too"),
        pytest.param("2026-09-11 20:00:00", None, id="hours ago: none"),
        pytest.param("2026-09-11 23:58:00", -120.0, id="a moment ago: two clocks differ"),
    ],
)
def test_a_stamp_that_cannot_be_is_clamped_or_none(stamp: str, at_s: float | None) -> None:
    now = unix("2026-09-11T16:00:00+00:00")

    reset = read_reset(f"usage limit reached for 5 hour. your limit will reset at {stamp}", code="1308", now=now)

    assert reset.at == (None if at_s is None else now + at_s)


def test_an_absurd_stamp_of_an_unknown_window_is_none() -> None:
    now = unix("2026-09-11T16:00:00+00:00")

    assert read_reset("your limit will reset at 2036-09-12 01:00:00", now=now).at is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("usage limit reached for 5 hour. your limit will reset at 2026-09-12 00:35:41", 5 * HOUR),
        ("usage limit reached for 7 day (1316). it will reset at 2026-09-12 00:35:41", 7 * DAY),
        ("the 7 day usage limit is reached, and there is no extra usage", 7 * DAY),
        ("5-hour limit reached", 5 * HOUR),
        ("usage limit reached for 2 weeks", 14 * DAY),
        ("usage limit reached for 30 minutes", 1800.0),
        ("usage limit reached for 1 month", LONGEST_WINDOW_S),
        ("usage limit reached for 99 month", LONGEST_WINDOW_S),
        ("weekly/monthly limit exhausted. your limit will reset at 2026-09-12 00:35:41", LONGEST_WINDOW_S),
        ("weekly limit exhausted", 7 * DAY),
        ("daily limit exhausted", DAY),
        ("已达到 5 小时的使用上限。您的限额将在 2026-08-24 00:09:21 重置。", 5 * HOUR),
        ("已达到 7 天的使用上限。", 7 * DAY),
        ("已达到 1 周的使用上限。", 7 * DAY),
        ("已达到 1 个月的使用上限。", LONGEST_WINDOW_S),
        ("已达到每周/每月使用上限。您的限额将在 2026-09-12 00:35:41 重置。", LONGEST_WINDOW_S),
        ("已达到每周使用上限。", 7 * DAY),
        ("your limit will reset in 3 hours", None),
        ("usage limit reached for 0 hour", None),
        ("your limit will reset at 2026-09-12 00:35:41", None),
        ("", None),
    ],
)
def test_the_text_tells_the_length_of_the_window(text: str, seconds: float | None) -> None:
    assert window_length_s(text) == seconds


def test_a_code_tells_the_length_where_the_text_does_not() -> None:
    assert read_reset("limit reached", code="1308").window_s == 5 * HOUR
    assert read_reset("limit reached", code="1304").window_s == DAY
    assert read_reset("limit reached", code="1317").window_s is None


def test_a_fault_carries_the_end_and_the_length_and_only_one_of_a_window_does() -> None:
    now = unix("2026-09-11T14:45:00+00:00")
    text = "for 5 hour, at 2026-09-12 00:35:41"

    full = classify(status=429, body=f"[1308][{text}]".encode(), now=now)
    crowded = classify(status=429, body=f"[1302][{text}]".encode(), now=now)

    assert (full.resets_at, full.window_s) == (unix("2026-09-11T16:35:41+00:00"), 5 * HOUR)
    assert (crowded.resets_at, crowded.window_s) == (None, None)


@given(
    quarters=st.integers(-48, 56),
    now=st.integers(1_700_000_000, 1_900_000_000),
    left_s=st.integers(1, 5 * 3600),
    late_s=st.integers(-60, 60),
)
def test_a_fitting_trace_gives_the_end_to_the_second_in_any_zone(
    quarters: int, now: int, left_s: int, late_s: int
) -> None:
    zone = timezone(timedelta(minutes=15 * quarters))
    trace = datetime.fromtimestamp(now + late_s, zone).strftime("%Y%m%d%H%M%S")
    stamp = datetime.fromtimestamp(now + left_s, zone).strftime("%Y-%m-%d %H:%M:%S")

    reset = read_reset(f"[1308][5 hour. reset at {stamp}][{trace}abc]", code="1308", now=float(now))

    assert reset.at == now + left_s


@given(st.text(max_size=80), st.none() | st.floats(0, 4e9))
def test_no_text_raises(text: str, now: float | None) -> None:
    reset = read_reset(text.lower(), code="1308", now=now)

    assert reset.at is None or now is None or reset.at <= now + 5 * HOUR


def test_a_stamp_with_a_zone_needs_no_custom() -> None:
    now = datetime(2026, 9, 11, 16, tzinfo=UTC).timestamp()

    for stamp in ("2026-09-11T18:00:00Z", "2026-09-11 18:00:00 UTC", "2026-09-11 20:00:00 +0200"):
        assert read_reset(f"5 hour, reset at {stamp}".lower(), now=now).at == now + 2 * HOUR
