"""Steps: what an actor does on the loop between two suspensions. A long one holds up every other actor.

The meter also says who is in a step right now, so that a watchdog on another thread can name the actor that hangs.
"""

from __future__ import annotations

import asyncio
import logging
import types
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

log = logging.getLogger(__name__)

SLOW_STEP_S: Final = 0.1
LAST_SLOW: Final = 20
KINDS_LIMIT: Final = 100
OTHERS: Final = "others"
"""Where slow steps are counted once `KINDS_LIMIT` names are known."""


class SlowStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that held up the loop: whose it was and what it worked on."""

    actor: str
    during: str
    blocked_ms: float
    age_s: float


class StepsView(msgspec.Struct, frozen=True, kw_only=True):
    """The slow steps of a loop: how many, by what they worked on, the worst, and the last ones, oldest first."""

    slow: int
    by_message: dict[str, int]
    worst: SlowStep | None
    last: tuple[SlowStep, ...]


class Meter:
    """Times the steps of one loop. Written by the loop thread; `owner`, `during`, `since` may be read by others."""

    __slots__ = ("_by_message", "_last", "_worst", "clock", "during", "owner", "since", "slow")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.owner: str | None = None
        """The actor in whose step the loop is; None between steps."""
        self.during = ""
        self.since = 0.0
        self.slow = 0
        """Steps over `SLOW_STEP_S` so far."""
        self._by_message: dict[str, int] = {}
        self._last: deque[_Slow] = deque(maxlen=LAST_SLOW)
        self._worst: _Slow | None = None

    def begin(self, owner: str, during: str) -> None:
        """A step begins; steps do not nest."""
        self.owner = owner
        self.during = during
        self.since = self.clock()

    def end(self) -> None:
        """The step is over; a slow one is logged with the actor's name and what it worked on."""
        took = self.clock() - self.since
        if took > SLOW_STEP_S:
            self._note_slow(took)
        self.owner = None

    def view(self) -> StepsView:
        """What status shows; on the loop thread."""
        now = self.clock()
        return StepsView(
            slow=self.slow,
            by_message=dict(self._by_message),
            worst=self._worst.view(now) if self._worst is not None else None,
            last=tuple(step.view(now) for step in self._last),
        )

    def _note_slow(self, took: float) -> None:
        self.slow += 1
        log.warning("step_slow actor=%s during=%s blocked_ms=%.0f", self.owner, self.during, took * 1000)
        step = _Slow(self.owner or "", self.during, took, self.since + took)
        self._last.append(step)
        if self._worst is None or took > self._worst.took_s:
            self._worst = step
        # Tasks name themselves, so the names could go on without end.
        is_room = step.during in self._by_message or len(self._by_message) < KINDS_LIMIT
        kind = step.during if is_room else OTHERS
        self._by_message[kind] = self._by_message.get(kind, 0) + 1


class _Slow(NamedTuple):
    actor: str
    during: str
    took_s: float
    at: float

    def view(self, now: float) -> SlowStep:
        return SlowStep(actor=self.actor, during=self.during, blocked_ms=self.took_s * 1000, age_s=now - self.at)


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
