"""The order of service: who gets the next free slot of one budget.

Pure: no clock. Three rules, the later one weaker:

1. *Ageing.* Whoever has waited longest, once that is `AGED_AFTER_S`, is passed over at most `AGED_PASSES` times in
   a row. So someone with m others before them by age is served within (AGED_PASSES + 1) x (m + 1) turns, whatever
   else arrives. A share of the turns and not a rising rank: under a long overload everybody is old, and ranks that
   rise with age would leave no order but that of arrival. Such a turn is nobody's: it counts for no class.
2. *Class.* Classes share the turns by weight (`class_shares`). A waiter counts in its `Claim.rank`.
3. *Tree.* Inside a class, trees take turns, one waiter each, however many they have (`turns`).

Whoever waits for a model whose own limit is reached is `closed` out: the three rules hold among the others, and no
pass is counted against those who could not have had the turn. Every operation costs O(log n) over time, times the
number of models with a limit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ...protocol.ids import CallId
from ...protocol.messages.broker import Priority
from .arrivals import Arrivals, age
from .claim import Waiter
from .class_shares import ClassShares
from .turns import Place, Section, Turns, place_of

AGED_AFTER_S: Final = 30.0
AGED_PASSES: Final = 3
_NOTHING: Final[Collection[str]] = frozenset()


class _Turn(NamedTuple):
    """Whose it is; who has waited longest in each open section, and the classes that were ready, when it was taken."""

    place: Place
    oldest: Mapping[Section, Place]
    ready: Collection[Priority]
    is_aged: bool


class FairQueue:
    """Waiters of one budget, by call; owned by its budget. `limited` are the models with a limit of their own."""

    def __init__(self, limited: Iterable[str] = (), weights: Mapping[Priority, int] | None = None) -> None:
        self._places: dict[CallId, Place] = {}
        self._arrivals: dict[Section, Arrivals] = {}
        self._classes = {priority: Turns(self._is_here) for priority in Priority}
        self._shares = ClassShares(weights or {})
        self._limited = frozenset(map(str.lower, limited))
        self._arrived = 0
        self._passes: dict[Section, int] = {}
        # Whose turn it is gets asked three times before it is taken: found once, until something changes.
        self._found: tuple[tuple[float, Collection[str]], _Turn | None] | None = None

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, call: CallId) -> bool:
        return call in self._places

    def __iter__(self) -> Iterator[Waiter]:
        """Yield the waiters in the order of their arrival."""
        return (place.waiter for place in self._places.values())

    def queued(self, model: str) -> int:
        """How many wait for this model, which has a limit of its own."""
        arrivals = self._arrivals.get(model.lower())
        return 0 if arrivals is None else arrivals.size

    def section_of(self, model: str) -> Section:
        """Return the model in lower case if it has a limit of its own."""
        name = model.lower()
        return name if name in self._limited else None

    def configure(self, limited: Iterable[str], weights: Mapping[Priority, int]) -> None:
        """Let these models have limits, and these weights count, from now on; nobody loses a place."""
        self._shares.weigh(weights)
        self._found = None
        if (names := frozenset(map(str.lower, limited))) != self._limited:
            self._limited = names
            self._stand_anew()

    def push(self, waiter: Waiter) -> None:
        """Take a place; a call that has one already is a bug of the caller.

        Who left and comes back with the same `since` is as old as it was, in its tree and for ageing.
        """
        claim = waiter.claim
        assert claim.call not in self._places, f"{claim.call} waits already"
        self._found = None
        self._arrived += 1
        place = self._places[claim.call] = place_of(waiter, self._arrived)
        self._stand(place)

    def peek(self, now: float, closed: Collection[str] = _NOTHING) -> Waiter | None:
        """Return who is next at `now`, leaving out who waits for one of the `closed` models; changes nothing.

        Who is next but cannot be served yet is not skipped for those behind; others who come may yet go before, until
        ageing ends that.
        """
        turn = self._turn(now, closed)
        return None if turn is None else turn.place.waiter

    def pop(self, now: float, closed: Collection[str] = _NOTHING) -> Waiter | None:
        """Take out whoever `peek` shows."""
        turn = self._turn(now, closed)
        if turn is None:
            return None
        claim = turn.place.waiter.claim
        for section, oldest in turn.oldest.items():
            was_passed = age(oldest) < age(turn.place)
            self._passes[section] = self._passes.get(section, 0) + 1 if was_passed else 0
        self.remove(claim.call)  # and forget whose turn it was
        self._classes[claim.rank].take_turn(claim.tree)
        if not turn.is_aged:
            self._shares.spend(claim.rank, turn.ready)
        return turn.place.waiter

    def remove(self, call: CallId) -> Waiter | None:
        """Give up a place, wherever in the queue it is; the others keep theirs."""
        place = self._places.pop(call, None)
        if place is None:
            return None
        self._found = None
        section = self.section_of(place.waiter.claim.model)
        self._classes[place.waiter.claim.rank].lose(section, place)
        self._arrivals[section].lose()
        return place.waiter

    def oldest_wait_s(self, now: float) -> float | None:
        """How long the longest wait has been; None when nobody waits."""
        oldest = self._oldest(_NOTHING).values()
        return max((place.waiter.waited_s(now) for place in oldest), default=None)

    def in_order(self, now: float, *, closed: Collection[str] = _NOTHING, count: int | None = None) -> list[Waiter]:
        """Return the first `count`, all if None, in the order of service if every turn came at `now` and nobody else
        did: first those who are not closed out. Costs a copy of the queue's outline."""
        copy = self._copy()
        served: list[Waiter] = []
        wanted = len(self) if count is None else min(count, len(self))
        while len(served) < wanted:
            waiter = copy.pop(now, closed) or copy.pop(now)
            assert waiter is not None, "the copy holds as many as the queue"
            served.append(waiter)
        return served

    def _turn(self, now: float, closed: Collection[str]) -> _Turn | None:
        if not self._places:
            return None
        if self._found is None or self._found[0] != (now, closed):
            self._found = (now, closed), self._find_turn(now, closed)
        return self._found[1]

    def _find_turn(self, now: float, closed: Collection[str]) -> _Turn | None:
        if len(self._places) == 1:
            return self._only_turn(closed)
        oldest = self._oldest(closed)
        if not oldest:
            return None
        firsts = {rank: first for rank, turns in self._classes.items() if (first := turns.first(closed)) is not None}
        head = firsts[self._shares.next(firsts)]
        due = [place for section, place in oldest.items() if self._is_due(section, place, now)]
        place = min(due, key=age, default=head)
        return _Turn(place, oldest, firsts.keys(), is_aged=place is not head)

    def _only_turn(self, closed: Collection[str]) -> _Turn | None:
        """One waits alone: nobody goes before, and nobody is passed over. So it is while there are free slots."""
        (place,) = self._places.values()
        claim = place.waiter.claim
        section = self.section_of(claim.model)
        return None if section in closed else _Turn(place, {section: place}, (claim.rank,), is_aged=False)

    def _is_due(self, section: Section, oldest: Place, now: float) -> bool:
        return self._passes.get(section, 0) >= AGED_PASSES and oldest.waiter.waited_s(now) >= AGED_AFTER_S

    def _oldest(self, closed: Collection[str]) -> dict[Section, Place]:
        """Who has waited longest in each section that is not closed."""
        open_ones = ((section, arrivals) for section, arrivals in self._arrivals.items() if section not in closed)
        return {section: place for section, arrivals in open_ones if (place := arrivals.oldest()) is not None}

    def _stand(self, place: Place) -> None:
        section = self.section_of(place.waiter.claim.model)
        if section not in self._arrivals:
            self._arrivals[section] = Arrivals(self._is_here)
        self._arrivals[section].add(place)
        self._classes[place.waiter.claim.rank].add(section, place)

    def _stand_anew(self) -> None:
        """Sort everybody into the sections there are now; trees keep their turns."""
        self._arrivals.clear()
        most = max(self._passes.values(), default=0)
        self._passes = dict.fromkeys((None, *self._limited), most)
        for turns in self._classes.values():
            turns.clear()
        for place in self._places.values():
            self._stand(place)

    def _is_here(self, place: Place) -> bool:
        return self._places.get(place.waiter.claim.call) is place

    def _copy(self) -> FairQueue:
        copy = FairQueue()
        copy._places = self._places.copy()
        copy._arrivals = {section: arrivals.copy(copy._is_here) for section, arrivals in self._arrivals.items()}
        copy._limited, copy._arrived = self._limited, self._arrived
        copy._classes = {rank: turns.copy(copy._is_here) for rank, turns in self._classes.items()}
        copy._shares, copy._passes = self._shares.copy(), self._passes.copy()
        return copy
