"""What the zygote owes the root: word of each child it was asked for, and of each that was killed. Pure.

A zygote that is stopped, or stuck, keeps silent; whoever waits for its word would wait for ever.
"""

from __future__ import annotations

from typing import Final

from ..protocol.ids import Incarnation

PATIENCE_S: Final = 15.0
"""A fork takes milliseconds, and a killed process is reaped as fast; a machine that swaps needs longer."""


class Debts:
    """By life: until when there has to be word of it."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._due: dict[Incarnation, float] = {}

    def owe(self, life: Incarnation, now: float) -> None:
        """There has to be word of this life within the patience; the first time counts."""
        self._due.setdefault(life, now + self._patience_s)

    def pay(self, life: Incarnation) -> None:
        """There was word of it."""
        self._due.pop(life, None)

    def clear(self) -> None:
        """Another zygote owes nothing yet."""
        self._due.clear()

    def next_at(self) -> float | None:
        """When the first of them is overdue; None when there are none."""
        return min(self._due.values(), default=None)

    def is_overdue(self, now: float) -> bool:
        """Whether the zygote is to be given up."""
        at = self.next_at()
        return at is not None and at <= now
