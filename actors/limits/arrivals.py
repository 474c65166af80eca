"""Who has waited longest. Pure.

Nearly everybody comes in the order of age, so a row that grows at its end is enough; who comes back with an earlier
`since`, having stood aside, is kept in a heap beside it. Both keep what has left until it comes to the front or is
the greater part: O(log n) over time.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

import msgspec

from .turns import Place


class _Late(msgspec.Struct, frozen=True, order=True, gc=False):
    since: float
    arrival: int
    place: Place


class Arrivals:
    """The places of one section by age; owned by the queue. `is_here` says whether a place is still taken."""

    def __init__(self, is_here: Callable[[Place], bool]) -> None:
        self._is_here = is_here
        self._row: deque[Place] = deque()
        self._late: list[_Late] = []
        self.size = 0

    def add(self, place: Place) -> None:
        """Take the place in."""
        self.size += 1
        if self._row and place.since < self._row[-1].since:
            heapq.heappush(self._late, _Late(place.since, place.arrival, place))
        else:
            self._row.append(place)

    def lose(self) -> None:
        """One that `is_here` knew is gone."""
        self.size -= 1
        if len(self._row) + len(self._late) > 2 * self.size + 8:
            self._row = deque(filter(self._is_here, self._row))
            self._late = [late for late in self._late if self._is_here(late.place)]
            heapq.heapify(self._late)

    def oldest(self) -> Place | None:
        """Return who has waited longest; the first to come of several."""
        while self._row and not self._is_here(self._row[0]):
            self._row.popleft()
        while self._late and not self._is_here(self._late[0].place):
            heapq.heappop(self._late)
        if not self._late:
            return self._row[0] if self._row else None
        late = self._late[0].place
        return min(self._row[0], late, key=age) if self._row else late

    def copy(self, is_here: Callable[[Place], bool]) -> Arrivals:
        """Return another with the same state, over the places that `is_here` knows."""
        copy = Arrivals(is_here)
        copy._row, copy._late, copy.size = self._row.copy(), self._late.copy(), self.size
        return copy


def age(place: Place) -> tuple[float, int]:
    """The smaller, the longer it has waited."""
    return place.since, place.arrival
