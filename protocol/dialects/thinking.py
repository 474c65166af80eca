"""How much a model is to think, in the words its target has for it."""

from __future__ import annotations

from typing import Final

import msgspec

from ..mending import Mend, Mends
from ..settings import Effort
from .ask import Thinking, Traits

STEPS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Every word that targets have, from nothing to most."""

LEAST_BUDGET: Final = 1024
"""Of tokens to think with: Anthropic refuses less."""

_BUDGETS: Final[dict[Effort, int]] = {
    Effort.MINIMAL: LEAST_BUDGET,
    Effort.LOW: 4_096,
    Effort.MEDIUM: 8_192,
    Effort.HIGH: 16_384,
    Effort.MAX: 32_768,
}


class Thought(msgspec.Struct, frozen=True):
    """What a request says about thinking."""

    is_on: bool
    word: str | None = None
    """Of `Traits.efforts`; None: the target has none for it."""
    budget: int = 0
    """Tokens, if it is on, for targets that are told a number."""


def thought_of(effort: Effort | None, traits: Traits, mends: Mends) -> Thought | None:
    """What to say to a target; None: nothing."""
    if effort is None or traits.thinking is Thinking.NONE or Mend.SAY_NO_EFFORT in mends.done:
        return None
    if effort is not Effort.NONE:
        return Thought(True, _nearest(effort, traits.efforts), _BUDGETS[effort])
    if Mend.THINK in mends.done:
        return None
    if not traits.always_thinks:
        return Thought(False, "none" if "none" in traits.efforts else None)
    return Thought(True, traits.efforts[0], LEAST_BUDGET) if traits.efforts else None


def _nearest(effort: Effort, words: tuple[str, ...]) -> str | None:
    """The word for the step next to `effort` (of two, the smaller one), but not the one for none."""
    wanted = STEPS.index(effort.value)
    known = sorted(STEPS.index(word) for word in words if word != "none")
    return STEPS[min(known, key=lambda step: abs(step - wanted))] if known else None
