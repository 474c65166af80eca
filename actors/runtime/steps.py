"""Steps: what an actor does on the loop between two suspensions. A long one holds up every other actor.

The meter also says who is in a step right now, so that a watchdog on another thread can name the actor that hangs.
"""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Final

log = logging.getLogger(__name__)

SLOW_STEP_S: Final = 0.1


class Meter:
    """Times the steps of one loop. Written by the loop thread; `owner`, `during`, `since` may be read by others."""

    __slots__ = ("clock", "during", "owner", "since", "slow")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.owner: str | None = None
        """The actor in whose step the loop is; None between steps."""
        self.during = ""
        self.since = 0.0
        self.slow = 0
        """Steps over `SLOW_STEP_S` so far."""

    def begin(self, owner: str, during: str) -> None:
        """A step begins; steps do not nest."""
        self.owner = owner
        self.during = during
        self.since = self.clock()

    def end(self) -> None:
        """The step is over; a slow one is logged with the actor's name and what it worked on."""
        took = self.clock() - self.since
        if took > SLOW_STEP_S:
            self.slow += 1
            log.warning("step_slow actor=%s during=%s blocked_ms=%.0f", self.owner, self.during, took * 1000)
        self.owner = None


@types.coroutine
def metered(work: Coroutine[Any, Any, object], meter: Meter, owner: str, during: str) -> Generator[Any, Any, object]:
    """Run `work` to its end, each of its steps on the meter; transparent to values, errors and cancellation."""
    step: Callable[[], Any] = partial(work.send, None)
    while True:
        meter.begin(owner, during)
        try:
            waits_for = step()
        except StopIteration as end:
            return end.value
        finally:
            meter.end()
        try:
            sent = yield waits_for
        except BaseException as error:  # noqa: BLE001 - handed on into `work`, whatever it is
            step = partial(work.throw, error)
        else:
            step = partial(work.send, sent)


async def call_metered(hook: Callable[..., object], *args: object, meter: Meter, owner: str, during: str) -> None:
    """Call a `def` or `async def` hook and see it through, on the meter."""
    meter.begin(owner, during)
    try:
        result = hook(*args)
    finally:
        meter.end()
    if isinstance(result, Coroutine):
        await metered(result, meter, owner, during)
    elif isinstance(result, Awaitable):
        await result


def is_outside_cancel(error: BaseException) -> bool:
    """Whether the running task itself was cancelled, rather than something it awaited."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def uncancel() -> None:
    """The running task has dealt with one cancel and goes on."""
    task = asyncio.current_task()
    assert task is not None, "only a task is cancelled"
    task.uncancel()
