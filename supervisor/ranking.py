"""A ranking: items by rank, lowest first, among equals in the order they came. Every operation is O(log n).

What is discarded or ranked anew stays in the heap as a dead entry until it comes up, or until dead ones are the
majority; that is why each change costs O(log n) only on average.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)
Rank = tuple[int, ...]

_FEW: Final = 64
"""So many dead entries are not worth a clearing."""


class Ranking(Generic[Item]):
    """A set of items, each with a rank. All ranks of one ranking have the same length."""

    def __init__(self) -> None:
        self._heap: list[tuple[Rank, int, Item]] = []
        self._tickets: dict[Item, int] = {}
        self._issued = 0

    def __len__(self) -> int:
        return len(self._tickets)

    def put(self, item: Item, rank: Rank) -> None:
        """Add the item, or give it another rank; among equals it is the last then."""
        self._issued += 1
        self._tickets[item] = self._issued
        heapq.heappush(self._heap, (rank, self._issued, item))
        self._clear()

    def discard(self, item: Item) -> None:
        """Take the item out; one that is not in changes nothing."""
        if self._tickets.pop(item, None) is not None:
            self._clear()

    def first(self) -> Item | None:
        """The item of the lowest rank; None if there is none."""
        while self._heap and not self._is_live(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    def _is_live(self, entry: tuple[Rank, int, Item]) -> bool:
        return self._tickets.get(entry[2]) == entry[1]

    def _clear(self) -> None:
        """Build the heap anew once most of it is dead: paid for by the changes that killed it."""
        if len(self._heap) > 2 * len(self._tickets) + _FEW:
            self._heap = [entry for entry in self._heap if self._is_live(entry)]
            heapq.heapify(self._heap)
