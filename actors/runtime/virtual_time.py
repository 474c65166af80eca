"""Virtual time for tests: a loop whose clock jumps to the next timer whenever nothing else can run.

A test that waits an hour takes no time and always the same turn of events. Only what waits through the loop sees the
clock; a coroutine that waits for another thread or a socket sees time jump ahead of it, so use real time there.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

STUCK_AFTER_S: Final = 10.0


class _JumpingSelector(selectors.SelectSelector):
    """Instead of waiting it reports how long it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now; with nothing ready and no timer, wait for another thread, but not for ever."""
        ready = super().select(0 if timeout is not None else STUCK_AFTER_S)
        if timeout is None and not ready:
            raise RuntimeError("nothing is left to run: every task waits for something that nobody will do")
        if timeout is not None and timeout > 0 and not ready:
            self.skipped_s += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop that starts at 0 s and never waits for a timer."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Virtual seconds."""
        return self._jumping.skipped_s

    def advance(self, seconds: float) -> None:
        """Let time pass within a step, as if the running code had blocked."""
        self._jumping.skipped_s += seconds


def run_virtual(main: Coroutine[Any, Any, Result]) -> Result:
    """`asyncio.run` in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
