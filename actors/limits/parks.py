"""Used-up windows: which block the account, until when, and which evidence counts. Pure.

Windows are independent: the account is blocked while any is full. For one window the newest evidence decides unless
it is worse than what is known; so a stamp in the wrong zone is put right by a `Retry-After`, and both by a reading of
the quota. A reading lists all windows and replaces what errors told.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

import msgspec

from ...protocol.fault_kinds import Fault
from ...protocol.messages.broker import QuotaWindow
from ...protocol.quota import full_windows
from ...protocol.resets import window_length_s
from ...storage.standings import Moment, ParkKept

RECHECK_S: Final = 600.0
"""A window whose end nobody knows is tried this often."""
LEAST_S: Final = 5.0
"""The provider's clock and ours differ: its window may end a moment after it should."""
_ZONE_SLACK_S: Final = 120.0
_LONGEST_S: Final = 32 * 86_400.0


class Rank(IntEnum):
    """How good the evidence for an end is."""

    UNKNOWN = 0
    STAMP = 1
    """A date in an error's text: its zone is known only by custom."""
    RETRY_AFTER = 2
    READING = 3


class Park(msgspec.Struct, frozen=True, kw_only=True):
    """One full window."""

    until: float
    until_ms: int
    span_s: float
    rank: Rank
    reason: str


class Parks:
    """The full windows of one budget, by name."""

    def __init__(self) -> None:
        self._by_window: dict[str, Park] = {}

    def __bool__(self) -> bool:
        return bool(self._by_window)

    @property
    def last(self) -> Park | None:
        """The one that ends last."""
        return max(self._by_window.values(), key=lambda park: park.until, default=None)

    def fault(self, fault: Fault, *, now: float, wall_ms: int) -> None:
        """A call was refused because a window is full."""
        window = _name(fault.window_s, fault.code or "window")
        remaining_s, rank = _evidence(fault, wall_ms)
        known = self._by_window.get(window)
        if known is not None and known.rank > rank and known.until > now:
            return
        self._by_window[window] = _park(remaining_s, rank, _said(fault), now=now, wall_ms=wall_ms)

    def reading(self, windows: Iterable[QuotaWindow], *, now: float, wall_ms: int) -> None:
        """The quota was read. One that says nothing of any window that blocks changes nothing."""
        telling = [one for one in windows if one.blocks and one.used_percent is not None]
        if not telling:
            return
        known, self._by_window = self._by_window, {}
        for one in full_windows(telling):
            park, window = (
                _read(one, known, now=now, wall_ms=wall_ms),
                _name(window_length_s(one.name.lower()), one.name),
            )
            beside = self._by_window.get(window)
            self._by_window[window] = park if beside is None or park.until > beside.until else beside

    def clear(self) -> None:
        """The account answers."""
        self._by_window.clear()

    def kept(self) -> tuple[ParkKept, ...]:
        """What is to be remembered."""
        return tuple(
            ParkKept(
                window=window,
                until=Moment(boottime=park.until, wall_ms=park.until_ms, span_s=park.span_s),
                rank=park.rank,
                reason=park.reason,
            )
            for window, park in self._by_window.items()
        )

    def restore(self, kept: Iterable[ParkKept], *, is_same_boot: bool, now: float, wall_ms: int) -> None:
        """Take over what an earlier broker knew."""
        for one in kept:
            self._by_window[one.window] = Park(
                until=one.until.after(is_same_boot=is_same_boot, now=now, wall_ms=wall_ms),
                until_ms=one.until.wall_ms,
                span_s=one.until.span_s,
                rank=Rank(one.rank),
                reason=one.reason,
            )


def _name(length_s: float | None, otherwise: str) -> str:
    """Name a window by its length: errors and readings have no other word in common."""
    return otherwise if length_s is None else f"{length_s:g} s"


def _evidence(fault: Fault, wall_ms: int) -> tuple[float, Rank]:
    longest_s = _LONGEST_S if fault.window_s is None else fault.window_s
    wish_s = fault.retry_after_s if fault.retry_after_s else None
    stamp_s = None if fault.resets_at is None else fault.resets_at - wall_ms / 1000
    # A stamp that has passed says nothing about when this window, which is full, will end.
    if stamp_s is not None and not 0 < stamp_s <= _LONGEST_S:
        stamp_s = None
    if stamp_s is not None and (wish_s is None or not _is_contradicted(stamp_s, wish_s, longest_s)):
        return min(max(stamp_s, wish_s or 0.0), longest_s), Rank.STAMP
    return (RECHECK_S, Rank.UNKNOWN) if wish_s is None else (min(wish_s, longest_s), Rank.RETRY_AFTER)


def _is_contradicted(stamp_s: float, wish_s: float, longest_s: float) -> bool:
    """Whether the stamp is off by whole hours, or longer than the window: then its zone is wrong.

    Any other difference is a `Retry-After` that says when to ask again, not when the window ends.
    """
    hours = (stamp_s - wish_s) / 3600
    is_shifted = abs(hours) > 0.5 and abs(hours - round(hours)) * 3600 <= _ZONE_SLACK_S
    return is_shifted or stamp_s >= longest_s


def _read(window: QuotaWindow, known: dict[str, Park], *, now: float, wall_ms: int) -> Park:
    reason = f"{window.name} is used up"
    remaining_s = None if window.resets_at_ms is None else (window.resets_at_ms - wall_ms) / 1000
    if remaining_s is not None and 0 < remaining_s <= _LONGEST_S:
        return _park(remaining_s, Rank.READING, reason, now=now, wall_ms=wall_ms)
    # It is full, and what an error told of its end is better than nothing.
    last = max((park for park in known.values() if park.until > now), key=lambda park: park.until, default=None)
    return last or _park(RECHECK_S, Rank.UNKNOWN, reason, now=now, wall_ms=wall_ms)


def _park(remaining_s: float, rank: Rank, reason: str, *, now: float, wall_ms: int) -> Park:
    span_s = max(LEAST_S, remaining_s)
    why = reason if rank is not Rank.UNKNOWN else f"{reason}; when it resets is unknown"
    return Park(until=now + span_s, until_ms=wall_ms + round(span_s * 1000), span_s=span_s, rank=rank, reason=why)


def _said(fault: Fault) -> str:
    return f"{fault.code}: {fault.message}" if fault.code else fault.message
