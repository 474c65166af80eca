"""How long an account is left alone after a refusal that passes by itself. Pure; randomness comes in as `chance`.

Too many calls (1302, 1303): full jitter under a bound that doubles. An unwell provider (1305, 529): 30, 60, 90, 120 s,
and up to a tenth more, so that fleets that were refused together do not come back together. What the provider asks
for is the earliest time in either case.
"""

from __future__ import annotations

from typing import Final

FIRST_PAUSE_S: Final = 2.0
LONGEST_PAUSE_S: Final = 60.0
OVERLOAD_STEPS_S: Final = (30.0, 60.0, 90.0, 120.0)
OVERLOAD_JITTER: Final = 0.1
OVERLOAD_TOTAL_S: Final = 600.0
"""Overloaded this long without one success: whoever waits is told so instead of being held."""
LONGEST_WISH_S: Final = 3600.0
"""A provider that asks for more means a window, and says so by another code; or it is a mistake."""


def pause_s(step: int, *, wish_s: float | None, chance: float) -> float:
    """Seconds after the `step`-th refusal in a row (from 1) for the number or pace of calls."""
    bound = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(step - 1, 16))
    return wished_s(wish_s) + bound * chance


def overload_s(step: int, *, wish_s: float | None, chance: float) -> float:
    """Seconds after the `step`-th overload in a row (from 1)."""
    table = OVERLOAD_STEPS_S[min(max(step, 1), len(OVERLOAD_STEPS_S)) - 1]
    return max(wished_s(wish_s), table) * (1 + OVERLOAD_JITTER * chance)


def wished_s(wish_s: float | None) -> float:
    """What the provider asked for, as far as it can be meant."""
    return min(max(wish_s or 0.0, 0.0), LONGEST_WISH_S)
