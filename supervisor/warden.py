"""The warden: looks at one worker a tick, and at memory once a second, and says what follows from it.

The rules are `growth` and `headroom`; the tree replaces processes, the desk places agents. A worker that is full and
has no agents is replaced as well: an interpreter rarely gives memory back, and it would be of no use for ever.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle
from typing import Final, Protocol

import msgspec

from ..protocol.ids import Incarnation
from ..protocol.messages.fleet import ProcessView
from ..protocol.settings import LimitSettings
from ..storage.logs import log_event
from .cgroup import lineage
from .exits import OverLimit
from .gauges import read_memory, sample
from .growth import Growth, Sample, bounded, judge
from .headroom import Headroom, Reading, assess
from .placement import Standing

log = logging.getLogger(__name__)

ROUND_S: Final = 2.0
"""Every worker is looked at once in it, one a tick."""

MEMORY_S: Final = 1.0


class Tree(Protocol):
    """The processes, as the warden needs them."""

    def running(self, name: str) -> tuple[int, Incarnation] | None:
        """The pid and the life of a child that serves."""
        ...

    def overgrown(self, name: str, life: Incarnation, reason: OverLimit) -> None:
        """Replace this life of the child; it gets its time to end."""
        ...


class Agents(Protocol):
    """Who is placed where, as the warden needs it."""

    def has_agents(self, name: str, life: Incarnation) -> bool:
        """Whether any agent is on this life of the worker."""
        ...

    def set_standing(self, name: str, life: Incarnation, standing: Standing) -> None:
        """What this life of the worker may be given from now on."""
        ...

    def set_room(self, agents: float) -> None:
        """How many agents may be placed until the next word."""
        ...


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """Where the figures come from."""

    sample: Callable[[int], Sample]
    memory: Callable[[], Reading]


def kernel() -> Gauges:
    """What this machine says."""
    groups = lineage()
    return Gauges(sample=sample, memory=lambda: read_memory(groups))


class Warden:
    """Keeps the limits of the workers called `workers`. Owned by the root's loop thread."""

    def __init__(
        self,
        limits: LimitSettings,
        *,
        workers: Sequence[str],
        tree: Tree,
        agents: Agents,
        gauges: Gauges,
    ) -> None:
        self._limits = _possible(limits)
        self._tree = tree
        self._agents = agents
        self._gauges = gauges
        self._turns = cycle(workers)
        self._tick_s = ROUND_S / len(workers)
        self._known: dict[str, tuple[Incarnation, Growth]] = {}
        self._headroom = Headroom()
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}

    def start(self) -> None:
        """Look from now on, until `close`; what is not limited is not looked at."""
        limits = self._limits
        if limits.memory_headroom_mb or limits.memory_pressure_percent:
            self.look_at_memory()
            self._repeat(self.look_at_memory, MEMORY_S)
        if _has_worker_limit(limits):
            self._repeat(self.look_at_worker, self._tick_s)

    def configure(self, limits: LimitSettings) -> None:
        """Keep these limits from now on. Who was full is so again once it was looked at; who leaves goes on leaving."""
        if _possible(limits) == self._limits:
            return
        self.close()
        self._limits, self._headroom = _possible(limits), Headroom()
        self._agents.set_room(self._headroom.room)
        for name, (life, growth) in list(self._known.items()):
            if growth.over is None:
                del self._known[name]
                self._agents.set_standing(name, life, Standing.OPEN)
        self.start()

    def close(self) -> None:
        """Look no more. Idempotent."""
        for timer in self._timers.values():
            timer.cancel()

    def look_at_worker(self) -> None:
        """Look at the worker whose turn it is."""
        name = next(self._turns)
        found = self._tree.running(name)
        if found is None:
            self._known.pop(name, None)
            return
        pid, life = found
        known_life, before = self._known.get(name, (life, Growth()))
        if known_life != life:
            before = Growth()
        after = judge(before, self._gauges.sample(pid), self._limits)
        self._known[name] = (life, after)
        self._act(name, life, before, after)

    def look_at_memory(self) -> None:
        """Look at memory."""
        reading = self._gauges.memory()
        before, self._headroom = self._headroom, assess(self._headroom, reading, self._limits)
        if self._headroom.is_short != before.is_short:
            event = "memory_short" if self._headroom.is_short else "memory_enough"
            log_event(
                log,
                event,
                level=logging.WARNING,
                available_mb=_rounded(reading.available_mb),
                pressure_percent=reading.pressure_percent,
            )
        self._agents.set_room(self._headroom.room)

    def marked(self, views: Iterable[ProcessView]) -> tuple[ProcessView, ...]:
        """The same views, with what is known to be over its limit."""
        return tuple(self._marked(view) for view in views)

    # --- inside --------------------------------------------------------------------------------------------------

    def _act(self, name: str, life: Incarnation, before: Growth, after: Growth) -> None:
        if before.over is not None:
            return  # it was told to end, and has its time for that
        if after.over is not None:
            self._replace(name, life, after.over)
        elif after.full and not self._agents.has_agents(name, life):
            self._known[name] = (life, Growth(full=after.full, over=after.full[0]))
            self._replace(name, life, after.full[0])
        elif bool(after.full) != bool(before.full):
            log_event(
                log,
                "worker_full" if after.full else "worker_takes_agents",
                level=logging.WARNING if after.full else logging.INFO,
                child=name,
                over=", ".join(map(_figures, after.full)) or None,
            )
            self._agents.set_standing(name, life, Standing.FULL if after.full else Standing.OPEN)

    def _replace(self, name: str, life: Incarnation, reason: OverLimit) -> None:
        self._agents.set_standing(name, life, Standing.LEAVING)
        self._tree.overgrown(name, life, reason)

    def _marked(self, view: ProcessView) -> ProcessView:
        life, growth = self._known.get(view.name, (None, Growth()))
        if life != view.incarnation:
            return view
        found = growth.full if growth.over is None else (growth.over,)
        return msgspec.structs.replace(view, over_limit=", ".join(map(_figures, found)) or None)

    def _repeat(self, look: Callable[[], None], every_s: float) -> None:
        def again() -> None:
            self._timers[look] = loop.call_later(every_s, again)
            look()

        loop = asyncio.get_running_loop()
        self._timers[look] = loop.call_later(every_s, again)


def _possible(limits: LimitSettings) -> LimitSettings:
    return bounded(limits, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _has_worker_limit(limits: LimitSettings) -> bool:
    soft = limits.rss_mb_soft or limits.fds_soft or limits.threads_soft
    hard = limits.rss_mb_hard or limits.fds_hard or limits.threads_hard
    return bool(soft or hard)


def _figures(found: OverLimit) -> str:
    return f"{found.what} {found.value:.0f} > {found.limit:g}"


def _rounded(value: float | None) -> float | None:
    return round(value, 1) if value is not None else None
