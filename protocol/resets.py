"""When a used-up window ends, and how long it is, from the words of the provider. Pure.

Z.AI's stamps carry no zone and are UTC+8, on the international host too. The trace id behind the message begins with
the wall time of the answer in the same zone: where it fits the time it is here, it tells the zone. No window is longer
than its own length, so no end is farther away than that; a stamp that is absurd is none. The zone of this process
does not matter.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

import msgspec

LONGEST_WINDOW_S: Final = 31 * 86_400.0
_ZONE_S: Final = 8 * 3600.0
_QUARTER_S: Final = 900.0
"""Zones are apart by quarters of an hour."""
_TRACE_SLACK_S: Final = 90.0
"""How far the trace may be from the time it is here, after the zone: the answer's way, and two clocks."""
_PAST_SLACK_S: Final = 300.0
_FARTHEST_ZONE_S: Final = 14 * 3600.0

_STAMP: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[ t](\d\d:\d\d:\d\d)(?:\.\d{1,9})?\s?(z|utc|gmt|[+-]\d\d:?\d\d)?", re.ASCII
)
_TRACE: Final = re.compile(r"\[(20\d{12})[0-9a-z_-]*\]?\s*$", re.ASCII | re.MULTILINE)
_LENGTH: Final = re.compile(
    r"(?<!\bin )(?<![\d:.-])(\d{1,3})[ -]?(minute|hour|h|day|week|month)(?:s|ly)?\b"
    r"|(\d{1,3}) ?(分钟|个?小时|天|日|周|个?月)(?!\d)"
)
_PERIOD: Final = re.compile(r"\b(daily|weekly|monthly)\b|每(日|天|周|月)|本(日|周|月)")
_UNIT_S: Final[dict[str, float]] = {
    "minute": 60.0, "hour": 3600.0, "h": 3600.0, "day": 86_400.0, "week": 7 * 86_400.0, "month": LONGEST_WINDOW_S,
    "daily": 86_400.0, "weekly": 7 * 86_400.0, "monthly": LONGEST_WINDOW_S,
    "分钟": 60.0, "小时": 3600.0, "个小时": 3600.0, "天": 86_400.0, "日": 86_400.0, "周": 7 * 86_400.0,
    "月": LONGEST_WINDOW_S, "个月": LONGEST_WINDOW_S,
}  # fmt: skip
_BY_CODE: Final[dict[str, float]] = {"1304": 86_400.0, "1308": 5 * 3600.0, "1310": LONGEST_WINDOW_S}
"""The window a code speaks of where the text names none."""


class Reset(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a used-up window in Unix seconds, and its length; None where the provider does not say."""

    at: float | None
    window_s: float | None


def read_reset(text: str, *, code: str | None = None, now: float | None = None) -> Reset:
    """Read the error's whole text, in lower case. Without `now` (Unix seconds) no stamp is checked against the time."""
    window_s = window_length_s(text)
    if window_s is None:
        window_s = _BY_CODE.get(code or "")
    at = _stamp(text, now)
    if at is not None and now is not None:
        at = _within(at, now, window_s)
    return Reset(at=at, window_s=window_s)


def window_length_s(text: str) -> float | None:
    """Read how long the window is; of several (`Weekly/Monthly`) the longest, for either may be meant."""
    found = _LENGTH.search(text)
    if found is not None:
        number, unit = (found[1], found[2]) if found[1] else (found[3], found[4])
        length_s = int(number) * _UNIT_S[unit]
        return min(length_s, LONGEST_WINDOW_S) if length_s > 0 else None
    periods = [next(filter(None, one)) for one in _PERIOD.findall(text)]
    return max((_UNIT_S[period] for period in periods), default=None)


def _within(at: float, now: float, window_s: float | None) -> float | None:
    if at < now - _PAST_SLACK_S:
        return None
    if window_s is not None:
        return min(at, now + window_s)
    return at if at <= now + LONGEST_WINDOW_S else None


def _stamp(text: str, now: float | None) -> float | None:
    found = _STAMP.search(text)
    if found is None:
        return None
    zone = (found[3] or "").replace("utc", "+00:00").replace("gmt", "+00:00").replace("z", "+00:00")
    try:
        stamp = datetime.fromisoformat(f"{found[1]}T{found[2]}{zone}")
        if stamp.tzinfo is None:
            stamp = stamp.replace(tzinfo=timezone(timedelta(seconds=_zone_s(text, now))))
        return stamp.timestamp()
    except (ValueError, OverflowError):
        return None


def _zone_s(text: str, now: float | None) -> float:
    """How far the stamps of this text are ahead of UTC."""
    found = _TRACE.search(text)
    if found is None or now is None:
        return _ZONE_S
    try:
        traced = datetime.strptime(found[1], "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return _ZONE_S
    ahead_s = traced - now
    zone_s = round(ahead_s / _QUARTER_S) * _QUARTER_S
    # A clock that is wrong here looks like a zone that does not exist: then custom decides.
    fits = abs(ahead_s - zone_s) <= _TRACE_SLACK_S and abs(zone_s) <= _FARTHEST_ZONE_S
    return zone_s if fits else _ZONE_S
