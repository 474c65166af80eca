"""What the ledger has done so far, counted for its stats. Owned by the ledger's thread."""

from __future__ import annotations

from collections import deque
from typing import Final

from ..storage.inbox import Applied

LATENCIES: Final = 1024


class Tally:
    """Counts since the start, and how long the newest commits took."""

    def __init__(self) -> None:
        self.committed = self.duplicates = 0
        self._latencies_ms: deque[float] = deque(maxlen=LATENCIES)

    def add(self, applied: Applied) -> None:
        """One more batch."""
        self.committed += applied.new
        self.duplicates += applied.duplicates

    def took(self, seconds: float) -> None:
        """One more commit took so long."""
        self._latencies_ms.append(seconds * 1000)

    def latency_ms(self, percent: int) -> float | None:
        """Commits that were not among the slowest took at most this; None before the first."""
        latencies = sorted(self._latencies_ms)
        return latencies[len(latencies) * percent // 100] if latencies else None
