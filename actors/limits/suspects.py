"""Requests that the provider refuses whatever the load: it calls them overload, and others pass meanwhile. Pure.

The evidence against one request: it failed `FAILURES` times, at least `PASSES` calls that began after its first
failure passed, and next to none of the others failed. From the second failure on, while others pass, its faults say
nothing about the account.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

FAILURES: Final = 3
PASSES: Final = 3
PASSES_FOR_DOUBT: Final = 1
FAILURES_OF_OTHERS: Final = 0.25
"""As a share of the passes: beyond it, it is the load that refuses this one and others."""
_WATCHED: Final = 64
_REFUSED: Final = 256


class _Case(msgspec.Struct):
    first_at: float
    message: str
    failures: int = 1
    passes: int = 0
    others_failed: int = 0

    def is_singled_out(self, passes: int) -> bool:
        return self.passes >= passes and self.others_failed <= self.passes * FAILURES_OF_OTHERS


class Suspects:
    """The doubtful and the refused requests of one budget, by `Acquire.work`. Bounded: the oldest are forgotten."""

    def __init__(self) -> None:
        self._cases: OrderedDict[str, _Case] = OrderedDict()
        self._refused: OrderedDict[str, str] = OrderedDict()

    def passed(self, work: str | None, granted_at: float) -> None:
        """A call passed that began at `granted_at`."""
        if work is not None:
            self._cases.pop(work, None)
            self._refused.pop(work, None)
        for case in self._cases.values():
            case.passes += granted_at > case.first_at

    def overloaded(self, work: str | None, granted_at: float, message: str, now: float) -> bool:
        """A call ended in an overload; True if that is this request's fault and not the account's."""
        for other, watched in self._cases.items():
            watched.others_failed += other != work and granted_at > watched.first_at
        if work is None:
            return False
        case = self._cases.get(work)
        if case is None:
            self._watch(work, _Case(first_at=now, message=message))
            return False
        if granted_at > case.first_at:
            case.failures += 1
        if case.failures >= FAILURES and case.is_singled_out(PASSES):
            self._refuse(work, case)
        return case.is_singled_out(PASSES_FOR_DOUBT)

    def is_doubtful(self, work: str | None) -> bool:
        """Whether it failed and has not passed since: another makes the better probe."""
        return work is not None and work in self._cases

    def refused(self, work: str | None) -> str | None:
        """Why this request is not to be sent again; None if it may."""
        return None if work is None else self._refused.get(work)

    def forget(self) -> None:
        """A person vouches for the account: everything may be tried again."""
        self._cases.clear()
        self._refused.clear()

    def _watch(self, work: str, case: _Case) -> None:
        self._cases[work] = case
        if len(self._cases) > _WATCHED:
            self._cases.popitem(last=False)

    def _refuse(self, work: str, case: _Case) -> None:
        self._cases.pop(work, None)
        self._refused[work] = (
            f"refused {case.failures} times as overload ({case.message}) while {case.passes} other calls passed: "
            "it is this request's content, not the load"
        )
        if len(self._refused) > _REFUSED:
            self._refused.popitem(last=False)
