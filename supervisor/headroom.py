"""Headroom: how many more agents the machine's memory bears, as a pure function of what was known and a reading.

Memory is short when too little of it is available, or when processes are held up for want of it; it is enough again
when that is clearly over. While it is short only one agent runs at a time (`placement`).
"""

from __future__ import annotations

import math

import msgspec

from ..protocol.settings import LimitSettings

AGENT_MB = 1.0
"""What an agent is taken to need until the next reading shows what it does need: agents come faster than readings."""

RELIEF_HEADROOM, RELIEF_PRESSURE = 1.1, 0.8
"""Shares of the two bounds at which memory that was short is enough again."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel says of memory; None is what could not be read, and nothing follows from it."""

    available_mb: float | None = None
    pressure_percent: float | None = None


class Headroom(msgspec.Struct, frozen=True, kw_only=True):
    """What was made of the latest reading."""

    is_short: bool = False
    room: float = math.inf
    """Agents that may be placed before the next reading; 0 while memory is short."""


def assess(before: Headroom, reading: Reading, limits: LimitSettings) -> Headroom:
    """What follows from another reading."""
    least, most = float(limits.memory_headroom_mb), limits.memory_pressure_percent
    if before.is_short:
        least, most = least * RELIEF_HEADROOM, most * RELIEF_PRESSURE
    spare_mb = math.inf
    if limits.memory_headroom_mb and reading.available_mb is not None:
        spare_mb = reading.available_mb - least
    pressure = reading.pressure_percent if limits.memory_pressure_percent else None
    if spare_mb < 0 or (pressure is not None and pressure > most):
        return Headroom(is_short=True, room=0)
    return Headroom(room=max(1.0, spare_mb // AGENT_MB) if spare_mb < math.inf else math.inf)
