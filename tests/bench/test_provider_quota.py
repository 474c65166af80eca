"""Quota windows: what is shown of them, and when they are full."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import msgspec
import pytest

from covey.bench.provider_moods import Window
from covey.bench.provider_quota import Quota

SINCE = datetime(2026, 9, 12, 0, 0, 0, tzinfo=timezone(timedelta(hours=8))).timestamp()


def test_the_stamp_of_a_full_window_is_the_wall_time_eight_hours_before_utc() -> None:
    full = Quota([Window(percentage=100, resets_in_s=2141)], since=SINCE).exhausted("a", now=SINCE)

    assert full is not None
    assert (full.code, full.number, full.unit, full.resets_at) == ("1308", 5, "hour", "2026-09-12 00:35:41")


def test_a_reset_is_never_before_its_stamp() -> None:
    quota = Quota([Window(percentage=100, resets_in_s=1)], since=SINCE + 0.4)

    assert quota.exhausted("a", now=SINCE + 1.9) is not None
    assert quota.exhausted("a", now=SINCE + 2.0) is None


@pytest.mark.parametrize(
    ("window", "code"),
    [
        pytest.param(Window(unit=3, percentage=100), "1308", id="hours"),
        pytest.param(Window(unit=6, number=1, percentage=100), "1310", id="a week"),
        pytest.param(Window(type="CREDIT_LIMIT", unit=3, percentage=100), "1308", id="credits"),
        pytest.param(Window(unit=3, percentage=100, code=1316), "1316", id="its own code"),
        pytest.param(Window(type="TIME_LIMIT", unit=5, number=1, percentage=100), None, id="tools only"),
        pytest.param(Window(type="NEW_LIMIT", percentage=100), None, id="unknown type"),
        pytest.param(Window(percentage=99.9), None, id="not yet full"),
    ],
)
def test_a_full_window_has_a_code_of_its_kind(window: Window, code: str | None) -> None:
    full = Quota([Window(percentage=0), window], since=SINCE).exhausted("a", now=SINCE)

    assert (full and full.code) == code


def test_of_several_full_windows_the_one_that_resets_last_is_told() -> None:
    windows = [Window(percentage=100, resets_in_s=10), Window(unit=6, number=1, percentage=100, resets_in_s=99)]
    quota = Quota(windows, since=SINCE)
    codes = [quota.exhausted("a", now=SINCE + later) for later in (0, 10, 99)]

    assert [full and full.code for full in codes] == ["1310", "1310", None]


def test_what_is_shown_follows_use_and_reset_and_leaves_out_what_is_not_known() -> None:
    quota = Quota([Window(tokens=1000, percentage=10, resets_in_s=60), Window(type="NEW", unit=9)], since=SINCE)
    quota.spend("a", 150, now=SINCE)

    used, unknown = msgspec.to_builtins(quota.report("a", now=SINCE))
    assert used == {
        "type": "TOKENS_LIMIT",
        "unit": 3,
        "number": 5,
        "percentage": 25,
        "usage": 1000,
        "currentValue": 250,
        "remaining": 750,
        "nextResetTime": int(SINCE + 60) * 1000,
    }
    assert unknown == {"type": "NEW", "unit": 9, "number": 5, "percentage": 0}
    after = msgspec.to_builtins(quota.report("a", now=SINCE + 60))[0]
    assert (after["percentage"], "nextResetTime" in after) == (0, False)
    assert msgspec.to_builtins(quota.report("b", now=SINCE))[0]["percentage"] == 10
