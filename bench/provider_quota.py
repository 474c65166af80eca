"""Quota windows: what the quota endpoint shows, and when an account is out of quota.

Pure: the caller passes Unix seconds. Windows are independent: one that is full refuses everything, whatever the others
say. A window that has reset is empty; it shows no `nextResetTime` then, because no new one has begun.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from .provider_errors import wall_time
from .provider_moods import Window

_UNITS: Final[dict[int, str]] = {1: "minute", 3: "hour", 5: "month", 6: "week"}


class QuotaLimit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One window, in the provider's words."""

    type: str
    unit: int
    number: int
    percentage: int
    usage: int | UnsetType = UNSET
    """The allowance."""
    current_value: int | UnsetType = UNSET
    remaining: int | UnsetType = UNSET
    next_reset_time: int | UnsetType = UNSET
    """Unix milliseconds."""


class Exhausted(msgspec.Struct, frozen=True, kw_only=True):
    """An account is out of quota."""

    code: str
    number: int
    unit: str
    resets_at: str | None
    """A stamp without a zone, in UTC+8; None if it never resets."""


class Quota:
    """The windows, and what each account used of them. Owned by the loop thread."""

    def __init__(self, windows: Sequence[Window], *, since: float) -> None:
        self._windows = tuple(windows)
        # Whole seconds, upwards: a client that waits until the stamp must not come too early.
        self._resets = [None if w.resets_in_s is None else math.ceil(since + w.resets_in_s) for w in self._windows]
        self._used: Counter[tuple[str, int]] = Counter()

    def spend(self, account: str, tokens: int, *, now: float) -> None:
        """Count tokens of a call that has ended."""
        for index, window in enumerate(self._windows):
            if window.tokens is not None and not self._has_reset(index, now):
                self._used[account, index] += tokens

    def exhausted(self, account: str, *, now: float) -> Exhausted | None:
        """The full window that resets last, None while there is quota."""
        full = [
            (self._resets[index] or math.inf, index)
            for index, window in enumerate(self._windows)
            if _code(window) is not None and self._percentage(account, index, now) >= 100
        ]
        if not full:
            return None
        _, index = max(full)
        window, resets = self._windows[index], self._resets[index]
        return Exhausted(
            code=_code(window) or "",
            number=window.number,
            unit=_UNITS.get(window.unit, "period"),
            resets_at=None if resets is None else f"{wall_time(resets):%Y-%m-%d %H:%M:%S}",
        )

    def report(self, account: str, *, now: float) -> tuple[QuotaLimit, ...]:
        """What the endpoint shows to this account."""
        return tuple(self._limit(account, index, now) for index in range(len(self._windows)))

    def _limit(self, account: str, index: int, now: float) -> QuotaLimit:
        window, resets = self._windows[index], self._resets[index]
        percentage = self._percentage(account, index, now)
        shown = QuotaLimit(type=window.type, unit=window.unit, number=window.number, percentage=int(percentage))
        if window.tokens is not None:
            used = min(window.tokens, int(window.tokens * percentage / 100))
            left = window.tokens - used
            shown = msgspec.structs.replace(shown, usage=window.tokens, current_value=used, remaining=left)
        if resets is None or not window.shows_reset or self._has_reset(index, now):
            return shown
        return msgspec.structs.replace(shown, next_reset_time=resets * 1000)

    def _percentage(self, account: str, index: int, now: float) -> float:
        if self._has_reset(index, now):
            return 0.0
        window = self._windows[index]
        return min(100.0, window.percentage + 100 * self._used[account, index] / (window.tokens or 1))

    def _has_reset(self, index: int, now: float) -> bool:
        resets = self._resets[index]
        return resets is not None and now >= resets


def _code(window: Window) -> str | None:
    if window.code is not None:
        return str(window.code)
    if window.type not in ("TOKENS_LIMIT", "CREDIT_LIMIT"):
        return None
    return "1308" if window.unit == 3 else "1310"
