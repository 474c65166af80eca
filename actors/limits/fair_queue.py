"""The order of service: who gets the next free slot of one budget.

Pure: no clock. Three rules, the later one weaker:

1. *Ageing.* Whoever has waited longest, once that is `AGED_AFTER_S`, is passed over at most `AGED_PASSES` times in
   a row. So someone with m others before them by age is served within (AGED_PASSES + 1) x (m + 1) turns, whatever
   else arrives. A share of the turns and not a rising rank: under a long overload everybody is old, and ranks that
   rise with age would leave no order but that of arrival.
2. *Class.* A waiter of a better class goes before one of a worse class.
3. *Tree.* Inside a class, trees take turns, one waiter each, however many they have; a tree that comes anew stands
   behind all others. Inside a tree the order of arrival holds.

Every operation costs the same whatever the number of waiters.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from ...protocol.ids import CallId
from ...protocol.messages.broker import Priority
from .claim import Waiter

AGED_AFTER_S: Final = 30.0
AGED_PASSES: Final = 3

# Ordered dicts and not plain ones: a plain dict whose front was deleted is searched from its beginning each time.
_Line = OrderedDict[CallId, Waiter]
_Class = OrderedDict[str, _Line]


class FairQueue:
    """Waiters of one budget, by call; owned by its budget."""

    def __init__(self) -> None:
        self._all: _Line = OrderedDict()
        self._classes: dict[Priority, _Class] = {priority: OrderedDict() for priority in Priority}
        self._passes = 0

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, call: CallId) -> bool:
        return call in self._all

    def __iter__(self) -> Iterator[Waiter]:
        """Yield the waiters in the order of their arrival."""
        return iter(self._all.values())

    def push(self, waiter: Waiter) -> None:
        """Take a place; a call that has one already is a bug of the caller."""
        claim = waiter.claim
        assert claim.call not in self._all, f"{claim.call} waits already"
        self._all[claim.call] = waiter
        self._classes[claim.priority].setdefault(claim.tree, OrderedDict())[claim.call] = waiter

    def pop(self, now: float) -> Waiter | None:
        """Take out whoever is next at `now`."""
        oldest = self._oldest()
        if oldest is None:
            return None
        is_due = oldest.waited_s(now) >= AGED_AFTER_S and self._passes >= AGED_PASSES
        waiter = oldest if is_due else self._head()
        self._passes = 0 if waiter is oldest else self._passes + 1
        self.remove(waiter.claim.call)
        trees = self._classes[waiter.claim.priority]
        if waiter.claim.tree in trees:
            trees.move_to_end(waiter.claim.tree)
        return waiter

    def remove(self, call: CallId) -> Waiter | None:
        """Give up a place, wherever in the queue it is; the others keep theirs."""
        waiter = self._all.pop(call, None)
        if waiter is None:
            return None
        trees = self._classes[waiter.claim.priority]
        line = trees[waiter.claim.tree]
        del line[call]
        if not line:
            del trees[waiter.claim.tree]
        return waiter

    def oldest_wait_s(self, now: float) -> float | None:
        """How long the longest wait has been; None when nobody waits."""
        oldest = self._oldest()
        return None if oldest is None else oldest.waited_s(now)

    def in_order(self, now: float) -> list[Waiter]:
        """Return all in the order of service if every turn came at `now` and nobody else did; costs a copy."""
        copy = FairQueue()
        copy._all = self._all.copy()
        copy._passes = self._passes
        for priority, trees in self._classes.items():
            copy._classes[priority] = OrderedDict((tree, line.copy()) for tree, line in trees.items())
        served: list[Waiter] = []
        while (waiter := copy.pop(now)) is not None:
            served.append(waiter)
        return served

    def _oldest(self) -> Waiter | None:
        return next(iter(self._all.values()), None)

    def _head(self) -> Waiter:
        trees = next(trees for trees in self._classes.values() if trees)
        line = next(iter(trees.values()))
        return next(iter(line.values()))
