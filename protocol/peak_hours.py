"""When a provider is dear: a daily window in a fixed zone, on some days of the week. Pure.

Written as `Mon-Fri 14:00-18:00 +08:00`; without days it is every day, without a zone it is UTC. Zones are offsets, for
providers bill by one clock the year round. A window may pass midnight; it belongs to the day it begins on. All times
are whole quarters of an hour, so that sums by the quarter can be priced.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

QUARTER_S: Final = 900

VALID: Final = "[DAYS] HH:MM-HH:MM [UTC or an offset] in quarters of an hour, such as Mon-Fri 14:00-18:00 +08:00"

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY: Final = "|".join(_DAYS)
_TIME: Final = r"([01]\d|2[0-3]):(00|15|30|45)"
PATTERN: Final = re.compile(
    rf"(?:(?P<first>{_DAY})(?:-(?P<last>{_DAY}))? )?{_TIME}-({_TIME}|24:00)"
    r"(?: (?P<zone>UTC|[+-](?:0\d|1[0-4]):(?:00|15|30|45)))?"
)
_MINUTES_A_DAY: Final = 24 * 60


class PeakHours(msgspec.Struct, frozen=True, kw_only=True):
    """Minutes of the day, and days from Monday (0). `end` is at or before `begin` where the window passes midnight."""

    days: tuple[int, ...] = tuple(range(7))
    begin: int
    end: int
    offset: int = 0
    """Minutes by which the zone is ahead of UTC."""

    def contain(self, unix_s: float) -> bool:
        """Whether the moment is in the window."""
        # The epoch was a Thursday.
        minutes = int(unix_s // 60) + self.offset
        day, minute = (minutes // _MINUTES_A_DAY + 3) % 7, minutes % _MINUTES_A_DAY
        if self.begin < self.end:
            return day in self.days and self.begin <= minute < self.end
        return (day in self.days and minute >= self.begin) or ((day - 1) % 7 in self.days and minute < self.end)


def peak_hours_of(text: str) -> PeakHours:
    """Read what `PATTERN` matches."""
    found = PATTERN.fullmatch(text)
    assert found is not None, "the configuration was checked"
    window = re.search(r"(\d\d):(\d\d)-(\d\d):(\d\d)", text)
    assert window is not None, "the pattern has a window in it"
    begin_hour, begin_minute, end_hour, end_minute = map(int, window.groups())
    return PeakHours(
        days=_days(found["first"], found["last"]),
        begin=begin_hour * 60 + begin_minute,
        end=end_hour * 60 + end_minute,
        offset=_offset(found["zone"]),
    )


def _days(first: str | None, last: str | None) -> tuple[int, ...]:
    if first is None:
        return tuple(range(7))
    begin = _DAYS.index(first)
    length = (_DAYS.index(last or first) - begin) % 7 + 1
    return tuple((begin + day) % 7 for day in range(length))


def _offset(zone: str | None) -> int:
    if zone in (None, "UTC"):
        return 0
    assert zone is not None, "None was UTC"
    hours, minutes = zone[1:].split(":")
    return (int(hours) * 60 + int(minutes)) * (-1 if zone[0] == "-" else 1)
