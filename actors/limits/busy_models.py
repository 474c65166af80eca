"""Models that are busy (1312) while their account is well: each is left alone for a while. Pure.

The waits are those of an overloaded account; a call of the model that passes ends them. Others go on.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from ...protocol.fault_kinds import FaultKind
from ...protocol.messages.broker import Outcome
from .pauses import overload_s

_KEPT: Final = 64


class BusyModels:
    """The busy models of one budget; the oldest are forgotten."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def ended(self, model: str, *, granted_at: float, outcome: Outcome | None, now: float, chance: float) -> None:
        """A call of `model` ended."""
        if outcome is None:
            return
        if outcome.fault is None:
            self._held.pop(model, None)
            return
        step, until = self._held.get(model, (0, float("-inf")))
        # Calls that went out before the wait is over tell of the same hour of need.
        if outcome.fault.kind is not FaultKind.MODEL_BUSY or granted_at < until:
            return
        self._held[model] = (step + 1, now + overload_s(step + 1, wish_s=outcome.fault.retry_after_s, chance=chance))
        if len(self._held) > _KEPT:
            self._held.popitem(last=False)

    def holds(self, model: str, now: float) -> bool:
        """Whether no call of `model` is to go out yet."""
        return model in self._held and now < self._held[model][1]

    def next_at(self, now: float) -> float | None:
        """When the next of them may be tried."""
        return min((until for _, until in self._held.values() if until > now), default=None)
