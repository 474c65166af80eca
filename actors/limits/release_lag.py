"""How long a provider goes on counting a call that is over. Pure.

Learned from refusals: a call that started just after a slot was given back, at a number in flight that had passed
before, was one too many only for a provider that still counted the old one. A few refusals that the longer lag does
not end show that it was the number after all: then the lag is what it was before.
"""

from __future__ import annotations

from collections import deque
from typing import Final

CAP_S: Final = 2.0
FIRST_S: Final = 0.1
GROWTH: Final = 2.5
TRIALS: Final = 3
"""Refusals in a row that may be blamed on the lag."""
_KEPT: Final = 64
_SAME: Final = 0.005
"""A timer that fires this much too early still counts as the end of the lag."""


class ReleaseLag:
    """The lag of one budget. `configured_s` is the least; more is learned up to `CAP_S`."""

    def __init__(self, configured_s: float) -> None:
        self.configured_s = configured_s
        self.learned_s = 0.0
        self._freed: deque[float] = deque(maxlen=_KEPT)
        self._proven = 0
        self._trials = 0
        self._before_trial = 0.0

    @property
    def seconds(self) -> float:
        """How long a slot that was given back belongs to nobody."""
        return max(self.configured_s, self.learned_s)

    def freed(self, now: float) -> None:
        """A slot was given back."""
        self._freed.append(now)

    def gap_s(self, now: float) -> float | None:
        """How long ago the latest slot was given back that counts no more; None if that was long ago."""
        for at in reversed(self._freed):
            age = now - at
            if age > CAP_S:
                return None
            if age >= self.seconds - _SAME:
                return max(0.0, age)
        return None

    def passed(self, level: int | None, gap_s: float | None) -> None:
        """A call passed that had been one of `level` in flight, `gap_s` after a slot was given back."""
        if level is None:
            return
        self._proven = max(self._proven, level)
        if gap_s is not None:
            self._trials, self._before_trial = 0, self.learned_s

    def takes_blame(self, level: int | None, gap_s: float | None) -> bool:
        """Whether the lag explains the refusal of such a call; it is longer then."""
        if level is None or gap_s is None or level > self._proven or self._trials >= TRIALS:
            return False
        if self.seconds >= CAP_S:
            return False
        self._trials += 1
        self.learned_s = min(CAP_S, max(FIRST_S, GROWTH * max(self.seconds, gap_s)))
        return True

    def cleared(self, limit: int) -> None:
        """It was the number in flight: `limit` is what the account bears now. What a trial added is taken back."""
        self.learned_s, self._trials = self._before_trial, 0
        self._proven = min(self._proven, limit)

    def restore(self, learned_s: float) -> None:
        """Take over what an earlier broker learned."""
        self.learned_s = self._before_trial = min(max(learned_s, 0.0), CAP_S)
