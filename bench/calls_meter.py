"""What many calls at once cost the process that makes them: its processor time, its memory, and how late its loop is.

The same for covey and for what it is compared with. Read from inside, because a process that is looked at from outside
pays for the looks as well.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from .calls_answer import HURRIED

BEAT_S: Final = 0.02
LOOK_EVERY: Final = 5
"""Beats between two looks at the memory."""
WARM_LANES: Final = 8
WARM_ROUNDS: Final = 12
"""Calls of a lane before anything is counted: code is specialised, and caches are filled."""

_PAGE_KIB: Final = os.sysconf("SC_PAGE_SIZE") / 1024

Call = Callable[[str, int], Awaitable[None]]
"""One call to that model, on behalf of the agent with that number; raises if it did not come as it should."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How much is asked of a client."""

    streams: int
    calls: int
    """Of each stream, one after the other."""
    spread_s: float
    """The streams begin one after the other over so long: agents do not all start in the same turn of a loop."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What it came to. Seconds; memory in KiB."""

    calls: int
    cpu_s: float
    wall_s: float
    took_s: tuple[float, ...]
    """Of each call."""
    late_s: tuple[float, ...]
    """How much later than it wished the loop came around to the heart, beat by beat."""
    kib_per_stream: float
    """Resident memory at its peak, beyond what the process had before."""


async def measured(call: Call, load: Load, *, settle: Callable[[], Awaitable[None]] | None = None) -> Cost:
    """Make the calls; `settle` is waited for at the end, on the clock."""
    await asyncio.gather(*(_lane(call, HURRIED, lane, WARM_ROUNDS, []) for lane in range(WARM_LANES)))
    gc.collect()
    gc.freeze()  # as the zygote does before it forks workers: what was imported is not looked through again and again
    took: list[float] = []
    heart = _Heart()
    before_kib, began_cpu_s, began = _resident_kib(), _cpu_s(), time.perf_counter()
    beating = asyncio.create_task(heart.beat())
    await asyncio.gather(*(_stream(call, load, lane, took) for lane in range(load.streams)))
    if settle is not None:
        await settle()
    wall_s, cpu_s = time.perf_counter() - began, _cpu_s() - began_cpu_s
    beating.cancel()
    await asyncio.gather(beating, return_exceptions=True)
    return Cost(
        calls=len(took),
        cpu_s=cpu_s,
        wall_s=wall_s,
        took_s=tuple(took),
        late_s=tuple(heart.late_s),
        kib_per_stream=(heart.peak_kib - before_kib) / load.streams,
    )


async def _stream(call: Call, load: Load, lane: int, took: list[float]) -> None:
    await asyncio.sleep(load.spread_s * lane / load.streams)
    await _lane(call, "sim-1", lane, load.calls, took)


async def _lane(call: Call, model: str, lane: int, calls: int, took: list[float]) -> None:
    for _ in range(calls):
        began = time.perf_counter()
        await call(model, lane)
        took.append(time.perf_counter() - began)


class _Heart:
    def __init__(self) -> None:
        self.late_s: list[float] = []
        self.peak_kib = 0.0

    async def beat(self) -> None:
        clock = time.perf_counter
        while True:
            if len(self.late_s) % LOOK_EVERY == 0:
                self.peak_kib = max(self.peak_kib, _resident_kib())
            began = clock()
            await asyncio.sleep(BEAT_S)
            self.late_s.append(clock() - began - BEAT_S)


def _resident_kib() -> float:
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE_KIB


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
