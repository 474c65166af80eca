"""Deadlines of many short waits behind one timer: almost all of them are over long before they are due.

asyncio's own timers cost an ask a fifth of its time: made, pushed and cancelled, each of them for nothing.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Final

SLACK: Final = 512
"""So many deadlines of waits that are over may be kept, beside as many as are not."""


class Deadlines:
    """Calls `on_due(key)` when the time of a wait has come. Owned by the loop thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_due: Callable[[int], None]) -> None:
        self._loop = loop
        self._on_due = on_due
        self._heap: list[tuple[float, int]] = []
        self._at: dict[int, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def set(self, key: int, timeout_s: float) -> None:
        """The wait of that key ends in `timeout_s`."""
        at = self._loop.time() + timeout_s
        self._at[key] = at
        heapq.heappush(self._heap, (at, key))
        if self._timer is None or at < self._timer_at:
            self._arm()

    def drop(self, key: int) -> None:
        """That wait is over, if there was one."""
        self._at.pop(key, None)
        if len(self._heap) > 2 * len(self._at) + SLACK:
            self._heap = [(at, key) for key, at in self._at.items()]
            heapq.heapify(self._heap)

    def close(self) -> None:
        """Nobody waits any more."""
        self._at.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            self._timer_at = self._heap[0][0]
            self._timer = self._loop.call_at(self._timer_at, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._at.get(key) == at:
                del self._at[key]
                self._on_due(key)
        while self._heap and self._heap[0][1] not in self._at:
            heapq.heappop(self._heap)
        if self._timer is None:
            self._arm()
