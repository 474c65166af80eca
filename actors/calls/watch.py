"""One timer for all the clocks of an attempt.

The timer is set for the vigil's next deadline and asks the vigil when it fires, so a piece of the answer moves a number
and no timer: two hundred streams of twenty pieces would otherwise make four thousand of them.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final

from .vigil import Expired, Vigil

LATE_S: Final = 0.25
"""A timer that fires so late was held up by this process: what came meanwhile is read first, and has so long for it."""


class RanOut(Exception):
    """A clock of the vigil ran out; `clock` says which."""

    def __init__(self, clock: Expired) -> None:
        super().__init__(str(clock))
        self.clock = clock


class Watch:
    """Ends what is awaited inside, with `RanOut`, once a clock of `vigil` has run out. Entered once, by its task."""

    def __init__(self, vigil: Vigil) -> None:
        self._vigil = vigil
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle | None = None
        self._due = 0.0
        """When it fires; uvloop's own word for that is not to be had of a timer that is due at once."""
        self._late: Expired | None = None

    def __enter__(self) -> Watch:
        task = asyncio.current_task()
        assert task is not None, "an attempt runs in a task"
        self._task = task
        self._cancels = task.cancelling()
        self._set(self._vigil.deadline)
        return self

    def look(self) -> None:
        """To be told where the next deadline may have come nearer: when the attempt enters another phase."""
        timer, deadline = self._timer, self._vigil.deadline
        if timer is not None and deadline < self._due:
            timer.cancel()
            self._set(deadline)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # As `asyncio.timeout` does it: a cancel from outside that came as well goes first.
        if self._late is not None and self._task.uncancel() <= self._cancels and kind is asyncio.CancelledError:
            raise RanOut(self._late) from error

    def _set(self, due: float) -> None:
        self._due, self._timer = due, self._loop.call_at(due, self._ring)

    def _ring(self) -> None:
        now, self._timer = self._loop.time(), None
        late = self._vigil.expired(now)
        if late is None:
            self._set(self._vigil.deadline)
        elif now - self._due > LATE_S:
            self._set(now + LATE_S)
        else:
            self._late = late
            self._task.cancel()
