"""The calls benchmark's run: one way after the other, round by round, each time in a fresh process.

A fleet runs all the while, also beside the floors, where it idles; the provider is a process of its own. Only what a
client's own process uses is counted.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..supervisor.home import Home
from ..supervisor.visit import visit
from .calls_answer import CHUNKS
from .calls_client import Errand, Way, send
from .calls_meter import Cost, Load
from .calls_provider import LightProvider
from .calls_sse import Reading, reading
from .report import median, p99
from .strangers import Strangers

GRACE_S: Final = 60.0
MAIN: Final = (Way.AIOHTTP, Way.BARE, Way.COVEY)
"""Measured in every round; the others once, for information."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    streams: tuple[int, ...] = (200, 1000)
    calls: int = 1
    """Of each stream."""
    spread_s: float = 1.0
    rounds: int = 3
    think_s: float = 0.3
    gap_s: float = 0.1
    slices: int = 7
    slice_s: float = 0.05

    @property
    def ideal_s(self) -> float:
        """What one call takes where nothing costs anything."""
        return self.think_s + CHUNKS * self.gap_s


@dataclass(slots=True)
class Ways:
    """What one way came to with so many streams, round by round."""

    costs: list[Cost] = field(default_factory=list)

    @property
    def cpu_s(self) -> float:
        """For 1,000 calls."""
        return median(cost.cpu_s / cost.calls * 1000 for cost in self.costs)

    @property
    def wall_s(self) -> float:
        """For all calls of one round."""
        return median(cost.wall_s for cost in self.costs)

    @property
    def call_p99_s(self) -> float:
        """Of one call."""
        return self._middle(lambda cost: p99(cost.took_s))

    @property
    def call_p50_s(self) -> float:
        """Of one call."""
        return self._middle(lambda cost: median(cost.took_s))

    @property
    def late_p99_s(self) -> float:
        """How late the loop was."""
        return self._middle(lambda cost: p99(cost.late_s))

    @property
    def kib_per_stream(self) -> float:
        """At the peak."""
        return self._middle(lambda cost: cost.kib_per_stream)

    def _middle(self, figure: Callable[[Cost], float]) -> float:
        return median(map(figure, self.costs))


@dataclass(slots=True)
class CallsRun:
    """What was measured."""

    reading: Reading
    ways: dict[int, dict[Way, Ways]]
    """By the number of streams."""
    bursts: dict[Way, Cost] = field(default_factory=dict)
    """The most streams, all begun in one turn of the loop; for information."""
    strangers_cpus: float = 0.0


async def measure(plan: Plan) -> CallsRun:
    """Run all of it."""
    run = CallsRun(
        reading(slices=plan.slices, slice_s=plan.slice_s),
        {streams: {way: Ways() for way in Way} for streams in plan.streams},
    )
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="covey-cls-")))
        provider = stack.enter_context(LightProvider(think_s=plan.think_s, gap_s=plan.gap_s))
        limited, free = (f"http://127.0.0.1:{port}/v1" for port in provider.ports)
        home = _furnish(folder, limited, limit=max(plan.streams))
        await stack.enter_async_context(visit(home, name="bench"))
        strangers = Strangers(roots=[os.getpid()])

        async def cost(way: Way, streams: int, spread_s: float) -> Cost:
            base_url = free if way is Way.COVEY_UNLIMITED else limited
            load = Load(streams=streams, calls=plan.calls, spread_s=spread_s)
            errand = Errand(way=way, load=load, base_url=base_url, home=str(home.path))
            return await asyncio.to_thread(send, errand, timeout_s=plan.ideal_s * plan.calls + GRACE_S)

        for number in range(plan.rounds):
            for streams, way in _order(plan, number):
                run.ways[streams][way].costs.append(await cost(way, streams, plan.spread_s))
        for way in (Way.AIOHTTP, Way.COVEY):
            run.bursts[way] = await cost(way, max(plan.streams), 0.0)
        run.strangers_cpus = strangers.cpus()
    return run


def _order(plan: Plan, number: int) -> Iterable[tuple[int, Way]]:
    """The other way round each time: what a machine does to those who come first, it does to all."""
    ways = list(Way) if number == 0 else list(MAIN)
    return [(streams, way) for streams in plan.streams for way in (ways if number % 2 else reversed(ways))]


def _furnish(folder: Path, base_url: str, *, limit: int) -> Home:
    home = Home.locate(folder / "home")
    home.create()
    home.config.write_text(
        f"fleet:\n  workers: 1\nproviders:\n  limited:\n    base_url: {base_url}\n    max_concurrent: {limit}\n",
        encoding="utf-8",
    )
    return home
