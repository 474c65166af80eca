"""Limits per minute: what was let out in the last 60 seconds, against what may be.

Pure: the caller passes `now` (seconds, never backwards). A call counts from its start, with what it is expected to
use; what it did use corrects that at its end. Calls that start within `GRAIN_S` share an entry, which ends with the
latest of them: so memory is bounded, nothing is admitted too early, and nothing more than `GRAIN_S` too late.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from ...protocol.ids import CallId

SPAN_S: Final = 60.0
GRAIN_S: Final = 0.05


@dataclass(slots=True)
class _Entry:
    first: float
    last: float
    amount: int

    @property
    def ends_at(self) -> float:
        return self.last + SPAN_S


class Window:
    """The last minute of one budget in one unit. `limit` may be changed at any time; owned by the budget."""

    def __init__(self, limit: int) -> None:
        assert limit > 0, "a limit per minute is at least 1; without one there is no window"
        self.limit = limit
        self._entries: deque[_Entry] = deque()
        # Only calls that are not over and still count: their number is bounded by the slots.
        self._of_call: dict[CallId, tuple[_Entry, int]] = {}
        self._used = 0

    def used(self, now: float) -> int:
        """What counts at `now`."""
        self._expire(now)
        return self._used

    def fits(self, amount: int, now: float) -> bool:
        """Whether a call of this size may start. One larger than the whole limit may, when nothing else counts."""
        return self._leaves_room(self.used(now), amount)

    def fits_at(self, amount: int, now: float) -> float:
        """Return the earliest time from `now` on at which it may start, if nothing else does before."""
        used = self.used(now)
        if self._leaves_room(used, amount):
            return now
        for entry in self._entries:
            used -= entry.amount
            if self._leaves_room(used, amount):
                return entry.ends_at
        raise AssertionError("a window without entries leaves room for everything")

    def count(self, call: CallId, amount: int, now: float) -> None:
        """Count a call that starts, whether or not it fits; once, however often it is said."""
        self._expire(now)
        if call in self._of_call:
            return
        latest = self._entries[-1] if self._entries else None
        if latest is None or now - latest.first >= GRAIN_S:
            latest = _Entry(now, now, 0)
            self._entries.append(latest)
        latest.last = now
        latest.amount += amount
        self._used += amount
        self._of_call[call] = latest, amount

    def correct(self, call: CallId, actual: int, now: float) -> None:
        """Let the call count with what it used, from its start on. Said again, or too late, it changes nothing."""
        self._expire(now)
        found = self._of_call.pop(call, None)
        if found is None:
            return
        entry, counted = found
        entry.amount += actual - counted
        self._used += actual - counted

    def keep(self, call: CallId, now: float) -> None:
        """The call is over and nobody knows what it used: it counts on with what was expected."""
        self._expire(now)
        self._of_call.pop(call, None)

    def _leaves_room(self, used: int, amount: int) -> bool:
        return used == 0 or used + amount <= self.limit

    def _expire(self, now: float) -> None:
        is_shorter = False
        while self._entries and self._entries[0].ends_at <= now:
            self._used -= self._entries.popleft().amount
            is_shorter = True
        if is_shorter:
            self._of_call = {call: kept for call, kept in self._of_call.items() if kept[0].ends_at > now}
