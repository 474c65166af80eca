"""How classes of priority share the turns: by weight, and a better one that has just come goes next.

Pure. Self-clocked fair queueing: a class's next turn is due one stride (the inverse of its weight) after its last
one, on a clock that every turn sets to its own due time. Whoever is ready and due first is next.

- Over any stretch in which two classes are both ready, the turns they get per weight differ by no more than one
  stride of each: a class of weight w gets at least every (sum of weights / w)th turn or so.
- The class of the greatest weight is next as soon as it becomes ready, if it did not have a turn just before: with
  the built-in weights that is what an interactive call sees.
- A class that is not ready, because nobody of it waits or may be served, saves no turns for later, and coming back
  wins none: it is due one stride after its last turn at the earliest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from ...protocol.messages.broker import Priority

BUILT_IN_WEIGHTS: Final[Mapping[Priority, int]] = {
    Priority.INTERACTIVE: 1000,
    Priority.AGENT: 100,
    Priority.SUBAGENT: 10,
    Priority.AUXILIARY: 1,
}
_BEST_FIRST: Final = tuple(Priority)
_UNIT: Final = 1 << 40  # strides are whole numbers: sums of them stay exact however long the broker runs


class ClassShares:
    """The clock of one queue; owned by it. Weights are whole numbers from 1 on."""

    def __init__(self, weights: Mapping[Priority, int]) -> None:
        self._strides: dict[Priority, int] = {}
        self._last: dict[Priority, int] = dict.fromkeys(Priority, 0)
        self._clock = 0
        self.weigh(weights)

    def weigh(self, weights: Mapping[Priority, int]) -> None:
        """Share by these weights from now on, by the built-in ones where a class is not named."""
        whole = {**BUILT_IN_WEIGHTS, **weights}
        assert min(whole.values()) >= 1, f"weights are whole numbers from 1 on, not {whole}"
        self._strides = {priority: _UNIT // whole[priority] for priority in Priority}

    def next(self, ready: Collection[Priority]) -> Priority:
        """Return whose turn it is among those that are ready; the better class where two are due at once."""
        if len(ready) == 1:
            return next(iter(ready))
        return min((priority for priority in _BEST_FIRST if priority in ready), key=self._due)

    def spend(self, priority: Priority, ready: Collection[Priority]) -> None:
        """Count a turn of `priority`, taken while `ready` were."""
        self._last[priority] = self._due(priority)
        self._clock = max(self._clock, self._last[priority])
        # Not the clock itself: whoever is due now would still go before the class with the shortest stride.
        soonest = self._clock - min(self._strides.values())
        for other in _BEST_FIRST:
            if other not in ready:
                self._last[other] = max(self._last[other], soonest)

    def copy(self) -> ClassShares:
        """Return another with the same state."""
        copy = ClassShares({})
        copy._strides, copy._last, copy._clock = self._strides, self._last.copy(), self._clock
        return copy

    def _due(self, priority: Priority) -> int:
        return self._last[priority] + self._strides[priority]
