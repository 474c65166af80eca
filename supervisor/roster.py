"""A roster: a fixed number of places, read and replaced in O(log n), where every earlier version stays as it was.

Supervision is a pure function of its state; copying a dictionary of all children for every exit would be O(n).
A roster shares what did not change: a replaced place copies one branch of at most 32 entries per level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")

_BITS = 5
_WIDTH = 1 << _BITS


class Roster(Generic[Item]):
    """Immutable. Places are numbered from 0, in the order they were given."""

    __slots__ = ("_root", "_shift", "_size")

    def __init__(self, items: Sequence[Item]) -> None:
        level: list[Any] = list(items)
        shift = 0
        while len(level) > _WIDTH:
            level = [tuple(level[at : at + _WIDTH]) for at in range(0, len(level), _WIDTH)]
            shift += _BITS
        self._root: tuple[Any, ...] = tuple(level)
        self._shift = shift
        self._size = len(items)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Item]:
        return (self[place] for place in range(self._size))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Roster) and (self._root is other._root or list(self) == list(other))

    __hash__ = None  # type: ignore[assignment] # compared by content, and contents are large

    def __getitem__(self, place: int) -> Item:
        if not 0 <= place < self._size:
            raise IndexError(place)
        node: Any = self._root
        for shift in range(self._shift, -1, -_BITS):
            node = node[(place >> shift) & (_WIDTH - 1)]
        found: Item = node
        return found

    def put(self, place: int, item: Item) -> Roster[Item]:
        """This roster with another item at `place`."""
        if not 0 <= place < self._size:
            raise IndexError(place)
        changed: Roster[Item] = Roster.__new__(Roster)
        changed._root = _put(self._root, self._shift, place, item)
        changed._shift, changed._size = self._shift, self._size
        return changed


def _put(node: tuple[Any, ...], shift: int, place: int, item: object) -> tuple[Any, ...]:
    at = (place >> shift) & (_WIDTH - 1)
    branch = item if shift == 0 else _put(node[at], shift - _BITS, place, item)
    return (*node[:at], branch, *node[at + 1 :])
