"""How often a budget's calls ended in which fault, for people to see. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from ...protocol.fault_kinds import Fault
from ...protocol.messages.broker import FaultCount

KEPT: Final = 24


class FaultCounts:
    """Counts since the broker's start by kind and code; the latest `KEPT` of them."""

    def __init__(self) -> None:
        self._counts: OrderedDict[tuple[str, str | None], FaultCount] = OrderedDict()

    def add(self, fault: Fault, wall_ms: int) -> None:
        """Count one more."""
        key = (fault.kind.value, fault.code)
        before = self._counts.pop(key, None)
        self._counts[key] = FaultCount(
            kind=fault.kind.value,
            code=fault.code,
            count=(before.count if before else 0) + 1,
            last_ms=wall_ms,
            message=fault.message,
        )
        if len(self._counts) > KEPT:
            self._counts.popitem(last=False)

    def latest_first(self) -> tuple[FaultCount, ...]:
        """All of them."""
        return tuple(reversed(self._counts.values()))
