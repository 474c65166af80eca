"""Where calls are and whose they are: found by call, by incarnation and by process. Pure."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from ...protocol.ids import BudgetKey, CallId, Incarnation
from ...protocol.peer import Owner, Peer

_By = TypeVar("_By")


class _Seat(msgspec.Struct, frozen=True, gc=False):
    """Where a call is and whose it is; half as large as a tuple, and there are as many as waiters."""

    budget: BudgetKey
    holder: Peer


class Whereabouts:
    """Every call that holds a slot or waits for one."""

    def __init__(self) -> None:
        self._place: dict[CallId, _Seat] = {}
        # Dicts as ordered sets: what is given back at once goes in the order it was asked for.
        self._of_incarnation: dict[Incarnation, dict[CallId, None]] = {}
        self._of_owner: dict[Owner, dict[CallId, None]] = {}

    def __len__(self) -> int:
        return len(self._place)

    def add(self, call: CallId, budget: BudgetKey, holder: Peer) -> None:
        """Note where the call is."""
        self._place[call] = _Seat(budget, holder)
        self._of_incarnation.setdefault(holder.incarnation, {})[call] = None
        self._of_owner.setdefault(holder.owner, {})[call] = None

    def drop(self, call: CallId) -> BudgetKey | None:
        """Forget the call; return where it was."""
        found = self._place.pop(call, None)
        if found is None:
            return None
        _discard(self._of_incarnation, found.holder.incarnation, call)
        _discard(self._of_owner, found.holder.owner, call)
        return found.budget

    def find(self, call: CallId) -> tuple[BudgetKey, Peer] | None:
        """Return the budget and the holder of the call."""
        found = self._place.get(call)
        return None if found is None else (found.budget, found.holder)

    def of_incarnation(self, incarnation: Incarnation) -> tuple[CallId, ...]:
        """Return the calls of one incarnation, first asked first."""
        return tuple(self._of_incarnation.get(incarnation, ()))

    def has_any(self, owner: Owner) -> bool:
        """Whether this process holds or waits for anything; costs the same however much that is."""
        return owner in self._of_owner

    def of_owner(self, owner: Owner) -> tuple[CallId, ...]:
        """Return the calls of one process, first asked first."""
        return tuple(self._of_owner.get(owner, ()))


def _discard(index: dict[_By, dict[CallId, None]], key: _By, call: CallId) -> None:
    calls = index[key]
    del calls[call]
    if not calls:
        del index[key]
