"""The periodic scheduler: everything that happens every few seconds, on the loop, without a thread.

One heap and one pending wake-up per loop. A run that is late is not made up for; runs of one job never overlap: the
next is planned when the last is over. (A message to come belongs to its actor: `LoopActor.after`.)
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from ...protocol.errors import AskTimeout, UsageError
from .errors import WouldDeadlock

log = logging.getLogger(__name__)

_schedulers: Final[dict[asyncio.AbstractEventLoop, Scheduler]] = {}


class Periodic:
    """One repeated job. Owned by the loop thread."""

    __slots__ = ("_callback", "due", "interval_s", "is_cancelled", "name", "task")

    def __init__(self, callback: Callable[[], object], *, name: str, interval_s: float, due: float) -> None:
        self._callback = callback
        self.name = name
        self.interval_s = interval_s
        self.due = due
        self.is_cancelled = False
        self.task: asyncio.Task[None] | None = None
        """The run in progress, of an `async def` callback."""

    def cancel(self) -> None:
        """It is not run again; a run in progress goes on."""
        self.is_cancelled = True

    async def ended(self, *, deadline_s: float) -> None:
        """Cancel it and return once no run is in progress. Raises `AskTimeout`, the run goes on."""
        self.cancel()
        if self.task is None:
            return
        if self.task is asyncio.current_task():
            raise WouldDeadlock(f"the job {self.name} waiting for itself", "cancel() and return")
        await asyncio.wait({self.task}, timeout=deadline_s)
        if self.task is not None:
            raise AskTimeout("end of its run", self.name, deadline_s)

    def call(self) -> object:
        """Begin one run; an awaitable is the rest of it."""
        return self._callback()


class Scheduler:
    """The jobs of one loop. Owned by the loop thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, Periodic]] = []
        self._order = itertools.count()
        self._wakeup: asyncio.TimerHandle | None = None

    @classmethod
    def here(cls) -> Scheduler:
        """The running loop's scheduler. Raises RuntimeError where no loop runs."""
        loop = asyncio.get_running_loop()
        found = _schedulers.get(loop)
        if found is None:
            for closed in [known for known in _schedulers if known.is_closed()]:
                del _schedulers[closed]
            found = _schedulers[loop] = cls(loop)
        return found

    def every(
        self, interval_s: float, callback: Callable[[], object], *, name: str, first_s: float | None = None
    ) -> Periodic:
        """Call `callback` (`def` or `async def`) every `interval_s`, first after `first_s` or one interval.

        A callback that returns False ends its job; one that raises is logged and called again.
        """
        if interval_s <= 0:
            raise UsageError(f"the interval of {name} must be positive, not {interval_s:g} s")
        due = self._loop.time() + (interval_s if first_s is None else first_s)
        job = Periodic(callback, name=name, interval_s=interval_s, due=due)
        self._plan(job)
        return job

    def _plan(self, job: Periodic) -> None:
        heapq.heappush(self._heap, (job.due, next(self._order), job))
        self._arm()

    def _arm(self) -> None:
        while self._heap and self._heap[0][2].is_cancelled:
            heapq.heappop(self._heap)
        if self._wakeup is not None:
            self._wakeup.cancel()
        self._wakeup = self._loop.call_at(self._heap[0][0], self._run_due) if self._heap else None

    def _run_due(self) -> None:
        now = self._loop.time()
        while self._heap and self._heap[0][0] <= now:
            job = heapq.heappop(self._heap)[2]
            if not job.is_cancelled:
                self._run(job)
        self._arm()

    def _run(self, job: Periodic) -> None:
        try:
            outcome = job.call()
        except Exception:
            log.exception("job_failed job=%s", job.name)
            outcome = None
        if inspect.isawaitable(outcome):
            job.task = self._loop.create_task(self._finish(job, outcome), name=job.name)
        else:
            self._again(job, outcome)

    async def _finish(self, job: Periodic, rest: Awaitable[object]) -> None:
        outcome: object = None
        try:
            outcome = await rest
        except asyncio.CancelledError:
            job.cancel()
            raise
        except Exception:
            log.exception("job_failed job=%s", job.name)
        finally:
            job.task = None
        self._again(job, outcome)

    def _again(self, job: Periodic, outcome: object) -> None:
        if outcome is False or job.is_cancelled:
            job.cancel()
            return
        now = self._loop.time()
        job.due = job.due + job.interval_s if job.due + job.interval_s > now else now + job.interval_s
        self._plan(job)
