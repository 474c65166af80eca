"""How long grants had to wait: quantiles over the latest of them. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

KEPT: Final = 1024


class Waits:
    """The waits of the latest `KEPT` grants, exact; older ones are forgotten."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=KEPT)

    def add(self, waited_s: float) -> None:
        """Count one more grant."""
        self._latest.append(waited_s)

    def quantile_ms(self, share: float) -> float | None:
        """Return the smallest wait that `share` of the grants did not exceed; None before the first grant."""
        if not self._latest:
            return None
        ranked = sorted(self._latest)
        # Nearest rank: an observed value, also for few of them.
        rank = -int(-share * len(ranked) // 1)
        return ranked[max(rank, 1) - 1] * 1000
