"""Deadlines of calls: which is next, and which have passed. Pure."""

from __future__ import annotations

import heapq

import msgspec

from ...protocol.ids import CallId


class _Due(msgspec.Struct, frozen=True, order=True, gc=False):
    """Half as large as a tuple, and there are as many as waiters."""

    at: float
    call: CallId


class Deadlines:
    """At most one deadline per call. Setting costs O(log n) over time; a cancelled one costs no search."""

    def __init__(self) -> None:
        self._at: dict[CallId, float] = {}
        self._heap: list[_Due] = []

    def __len__(self) -> int:
        return len(self._at)

    def set(self, call: CallId, at: float) -> None:
        """Give the call this deadline and no other."""
        self._at[call] = at
        heapq.heappush(self._heap, _Due(at, call))
        self._shed()

    def cancel(self, call: CallId) -> None:
        """Take the call's deadline away, if it has one."""
        self._at.pop(call, None)

    def next_at(self) -> float | None:
        """Return the earliest deadline."""
        while self._heap and self._at.get(self._heap[0].call) != self._heap[0].at:
            heapq.heappop(self._heap)
        return self._heap[0].at if self._heap else None

    def pop_due(self, now: float) -> list[CallId]:
        """Take out the calls whose deadline is not after `now`, earliest first."""
        due: list[CallId] = []
        while (at := self.next_at()) is not None and at <= now:
            call = heapq.heappop(self._heap).call
            del self._at[call]
            due.append(call)
        return due

    def _shed(self) -> None:
        # Calls end long before their deadline: without this the heap would keep an hour of them.
        if len(self._heap) > 2 * len(self._at) + 64:
            self._heap = [_Due(at, call) for call, at in self._at.items()]
            heapq.heapify(self._heap)
