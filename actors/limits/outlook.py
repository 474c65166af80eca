"""What a regime tells: to who wants in, and to people. Pure."""

from __future__ import annotations

import msgspec

from ...protocol.ids import CallId
from ...protocol.messages.broker import BudgetState, FaultCount, QuotaWindow, Refusal


class Turned(msgspec.Struct, frozen=True, kw_only=True):
    """Why nobody waits here now: what goes into `Refused`."""

    reason: Refusal
    detail: str
    until_ms: int | None = None


class RegimeView(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of `BudgetView` that are the regime's, under the same names."""

    limit: int
    configured: int
    learned: float | None
    state: BudgetState
    state_reason: str | None
    until_ms: int | None
    probing: CallId | None
    release_lag_ms: float
    faults: tuple[FaultCount, ...]
    quota: tuple[QuotaWindow, ...]
    quota_seen_ms: int | None


def wall(at: float, now: float, wall_ms: int) -> int:
    """Return the Unix time of a moment in boottime, in ms; one that has passed is now."""
    return wall_ms + round(max(0.0, at - now) * 1000)


def duration(seconds: float) -> str:
    """Spell a length of time for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"
