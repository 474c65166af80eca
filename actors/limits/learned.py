"""How many calls at once an account was seen to bear. Pure.

Halved when the provider refuses for the number or the pace of calls, down to 1; grown by one slot for as many clean
calls as it has slots, up to what is configured. The number that was refused last is approached more slowly, and twice
as slowly each time it is refused again: else a limit that is one too high would be tried, and refused, for ever.
"""

from __future__ import annotations

from typing import Final

SHRINK: Final = 0.5
CAREFUL: Final = 8
"""How much longer the step takes that leads to a refused number."""
_MOST_RELAPSES: Final = 6
_WHOLE: Final = 1e-9
"""Ten times a tenth is less than one."""


class Learned:
    """The learned limit of one budget. `value` is None as long as nothing below `configured` is known to be needed."""

    def __init__(self, configured: int) -> None:
        self.configured = configured
        self.value: float | None = None
        self.refused_at: int | None = None
        self.relapses = 0

    @property
    def limit(self) -> int:
        """The whole slots in effect: from 1 to `configured`; 0 only if that is."""
        value = self.configured if self.value is None else int(self.value + _WHOLE)
        return min(self.configured, max(1, value))

    def shrink(self, level: int | None) -> None:
        """The account refused a call that was one of `level` in flight; None where nobody counted."""
        refused = self.limit if level is None else max(1, min(level, self.limit))
        again = self.refused_at is not None and refused >= self.refused_at
        self.relapses = min(self.relapses + 1, _MOST_RELAPSES) if again else 0
        self.refused_at = refused
        self.value = max(1.0, refused * SHRINK)

    def grow(self, level: int | None) -> bool:
        """A call passed that was one of `level` in flight. Slots prove nothing while not even half of them
        are used.

        True if the whole slots, or what is known of them, are others now.
        """
        before = (self.limit, self.refused_at, self.value is None)
        self._grow(level)
        return before != (self.limit, self.refused_at, self.value is None)

    def _grow(self, level: int | None) -> None:
        if level is not None and self.refused_at is not None and level >= self.refused_at:
            self.refused_at, self.relapses = None, 0
        if self.value is None or (level is not None and 2 * level < self.limit):
            return
        slow = CAREFUL * 2**self.relapses if self._leads_to_refused() else 1
        self.value = min(float(self.configured), self.value + 1 / (self.limit * slow))
        self._forget_if_whole()

    def configure(self, configured: int) -> None:
        """Another limit is configured; what was learned holds inside it."""
        self._forget_if_whole()
        self.configured = configured
        if self.value is not None:
            self.value = max(1.0, min(self.value, float(configured)))

    def restore(self, value: float | None, *, refused_at: int | None, relapses: int) -> None:
        """Take over what an earlier broker learned."""
        self.value = None if value is None else max(1.0, min(value, float(self.configured)))
        self.refused_at, self.relapses = refused_at, min(max(relapses, 0), _MOST_RELAPSES)

    def _leads_to_refused(self) -> bool:
        return self.refused_at is not None and self.limit + 1 >= self.refused_at

    def _forget_if_whole(self) -> None:
        if self.value is not None and self.refused_at is None and self.limit >= self.configured:
            self.value = None
