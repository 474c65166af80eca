"""How the trees of one class take turns, and who of a tree is next.

Pure. The trees stand in a round. A tree that comes anew stands at its end, and so does one that had its turn, or that
comes back: before it stand no more trees than waited when it came, each with one turn, and leaving wins nothing. A
tree that could not be served, for its models' own limits are reached, keeps its place in the round.

Inside a tree: first those whom more agents above wait for, so that a tree comes to an end; then later attempts, for
they have waited before; then whoever waits since longer.

Waiters for a model with a limit of its own form a section each, all others one more: who is next in the sections that
are open is found without looking at anybody in a closed one. Heaps keep what has left until it comes to their top or
is the greater part, so every operation costs O(log n) over time, times the number of sections.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable

import msgspec

from .claim import Waiter

Section = str | None
"""A model with a limit of its own, None for all others."""


class Place(msgspec.Struct, frozen=True, order=True, gc=False):
    """A waiter's place; the smaller one goes first inside its tree."""

    after: int
    since: float
    arrival: int
    waiter: Waiter


def place_of(waiter: Waiter, arrival: int) -> Place:
    """Return the place of a waiter, the `arrival`th to come."""
    claim = waiter.claim
    return Place((claim.attempt <= 1) - 2 * claim.waiting_above, waiter.since, arrival, waiter)


class _Line(list[Place]):
    """The places of one tree in one section, when they are several: a heap. `size` leaves out those that are gone."""

    __slots__ = ("size",)

    def __init__(self, places: Iterable[Place]) -> None:
        super().__init__(places)
        heapq.heapify(self)
        self.size = len(self)

    def add(self, place: Place) -> None:
        heapq.heappush(self, place)
        self.size += 1

    def lose(self, is_here: Callable[[Place], bool]) -> None:
        """One of its places is gone."""
        self.size -= 1
        if len(self) > 2 * self.size + 8:
            self[:] = filter(is_here, self)
            heapq.heapify(self)

    def first(self, is_here: Callable[[Place], bool]) -> Place:
        while not is_here(self[0]):
            heapq.heappop(self)
        return self[0]

    def copy(self) -> _Line:
        copy = _Line(self)
        copy.size = self.size
        return copy


class _Front(msgspec.Struct, frozen=True, order=True, gc=False):
    """Where a tree stands in the round; the smaller one goes first."""

    turn: int
    tree: str


class _Round:
    """The lines of one section, by tree, and the order in which they take turns."""

    __slots__ = ("_is_here", "_lines", "_order")

    def __init__(self, is_here: Callable[[Place], bool]) -> None:
        self._is_here = is_here
        # Most trees have one waiter, which then needs no line around it: 100 of 1024 bytes.
        self._lines: dict[str, Place | _Line] = {}
        self._order: list[_Front] = []

    def __contains__(self, tree: str) -> bool:
        return tree in self._lines

    def add(self, tree: str, place: Place) -> None:
        line = self._lines.get(tree)
        if isinstance(line, _Line):
            line.add(place)
        else:
            self._lines[tree] = place if line is None else _Line((line, place))

    def lose(self, tree: str) -> None:
        """One of the tree's places is gone."""
        line = self._lines[tree]
        if isinstance(line, _Line):
            line.lose(self._is_here)
        if isinstance(line, Place) or not line.size:
            del self._lines[tree]

    def first_of(self, tree: str) -> Place:
        line = self._lines[tree]
        return line if isinstance(line, Place) else line.first(self._is_here)

    def stand(self, tree: str, turns: dict[str, int]) -> None:
        """Put the tree, which has a line, where its turn is."""
        heapq.heappush(self._order, _Front(turns[tree], tree))
        if len(self._order) > 2 * len(self._lines) + 8:
            self._order = [_Front(turns[tree], tree) for tree in self._lines]
            heapq.heapify(self._order)

    def first(self, turns: dict[str, int]) -> _Front | None:
        while self._order:
            front = self._order[0]
            if front.tree in self._lines and turns[front.tree] == front.turn:
                return front
            heapq.heappop(self._order)
        return None

    def copy(self, is_here: Callable[[Place], bool]) -> _Round:
        copy = _Round(is_here)
        copy._lines = {tree: line if isinstance(line, Place) else line.copy() for tree, line in self._lines.items()}
        copy._order = self._order.copy()
        return copy


class Turns:
    """The waiters of one class; owned by the queue. `is_here` says whether a place is still taken."""

    def __init__(self, is_here: Callable[[Place], bool]) -> None:
        self._is_here = is_here
        self._rounds: dict[Section, _Round] = {}
        self._turns: dict[str, int] = {}
        self._made = 0

    def add(self, section: Section, place: Place) -> None:
        """Take the place in."""
        tree = place.waiter.claim.tree
        if tree not in self._turns:
            self._turns[tree] = self._new_turn()
        a_round = self._rounds.get(section)
        if a_round is None:
            a_round = self._rounds[section] = _Round(self._is_here)
        is_new = tree not in a_round
        a_round.add(tree, place)
        if is_new:
            a_round.stand(tree, self._turns)

    def lose(self, section: Section, place: Place) -> None:
        """Let go of a place that `is_here` knows no more."""
        tree = place.waiter.claim.tree
        self._rounds[section].lose(tree)
        if not self._rounds_of(tree):
            del self._turns[tree]

    def take_turn(self, tree: str) -> None:
        """Put the tree at the end of the round, if it still waits."""
        if tree in self._turns:
            self._turns[tree] = self._new_turn()
            for a_round in self._rounds_of(tree):
                a_round.stand(tree, self._turns)

    def first(self, closed: Collection[str]) -> Place | None:
        """Return who is next among those whose section is not closed."""
        if not self._turns:
            return None
        open_rounds = [a_round for section, a_round in self._rounds.items() if section not in closed]
        fronts = [front for a_round in open_rounds if (front := a_round.first(self._turns)) is not None]
        if not fronts:
            return None
        tree = min(fronts).tree
        return min(a_round.first_of(tree) for a_round in open_rounds if tree in a_round)

    def clear(self) -> None:
        """Forget every place, but not whose turn comes when: all places are added again, in other sections."""
        self._rounds.clear()

    def copy(self, is_here: Callable[[Place], bool]) -> Turns:
        """Return another with the same state, over the places that `is_here` knows."""
        copy = Turns(is_here)
        copy._rounds = {section: a_round.copy(is_here) for section, a_round in self._rounds.items()}
        copy._turns, copy._made = self._turns.copy(), self._made
        return copy

    def _rounds_of(self, tree: str) -> list[_Round]:
        return [a_round for a_round in self._rounds.values() if tree in a_round]

    def _new_turn(self) -> int:
        self._made += 1
        return self._made
