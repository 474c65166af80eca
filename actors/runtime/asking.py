"""Asks in flight: which actor waits for which. One that could end only by its deadline is refused at once.

While an actor works on a message, the asks made for it are kept with that work. So "A waits for B" can be read off:
the work A does now has an ask to B in flight. An ask that would close a circle (A asks B asks A, or both at the same
time, over any number of actors, loops and threads of the pool) raises `WouldDeadlock`.

Whose work it is comes from a context variable, and tasks and threads that a handler starts inherit it: the handler is
taken to wait for them. What it does not wait for belongs into `own`: such an ask holds up nobody and is never refused.
When a work is cancelled its asks are given up with it: a thread that waits for an answer cannot be cancelled, but told.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

from .errors import WouldDeadlock
from .reply import Reply


class Party(Protocol):
    """What this module needs of an actor's cell."""

    @property
    def work(self) -> Work | None:
        """What the actor does now."""
        ...

    def orphan_soon(self, reply: Reply) -> None:
        """Nobody waits for `reply` any more, its asker has ended; from any thread."""
        ...


class Work:
    """What is done for one message (or the start) of `owner`, or beside its mailbox. Used by the actor's threads."""

    __slots__ = ("asks", "is_given_up", "owner", "reply")

    def __init__(self, owner: Party, reply: Reply | None = None) -> None:
        self.owner = owner
        self.reply = reply
        """Where the outcome goes."""
        self.asks: dict[Reply, Party] = {}
        self.is_given_up = False

    def wait(self, target: Party, reply: Reply) -> None:
        """Note an ask that is about to be sent. Raises `WouldDeadlock`; then it is not noted."""
        # Noted before looking: of two threads that close a circle from both ends, one at least sees the other.
        self.asks[reply] = target
        circle = find_circle(self, target)
        if circle:
            del self.asks[reply]
            raise WouldDeadlock(f"the asks {' → '.join(map(str, circle))}", "tell, or ask from a task it owns")

    def done(self, reply: Reply) -> None:
        """The ask has ended."""
        del self.asks[reply]

    def give_up(self) -> None:
        """Nobody needs this work any more: whatever waits in it is cancelled, and what is done for it orphaned."""
        self.is_given_up = True
        for reply, target in self.asks.copy().items():
            if reply.withdraw():
                target.orphan_soon(reply)


at_work: Final[ContextVar[Work | None]] = ContextVar("at_work", default=None)
"""The work that the running code belongs to; None outside of actors."""


def note_wait(target: Party, reply: Reply) -> Work | None:
    """Note an ask in the work at hand, which `done` ends; None outside of actors. Raises `WouldDeadlock`."""
    work = at_work.get()
    if work is not None:
        work.wait(target, reply)
    return work


@contextmanager
def noted_wait(target: Party, reply: Reply) -> Iterator[Work | None]:
    """`note_wait` for as long as one is inside; twice as slow."""
    work = note_wait(target, reply)
    try:
        yield work
    finally:
        if work is not None:
            work.done(reply)


def find_circle(work: Work, target: Party) -> list[Party]:
    """The way from the owner of `work` over `target` back to it, along asks in flight; [] if there is none."""
    asker = work.owner
    if asker.work is not work:
        return []  # beside the mailbox, or left over from an earlier message
    came_from = {target: asker}
    unseen = [target]
    while unseen:
        at = unseen.pop()
        if at is asker:
            return _way_back(came_from, asker)
        for further in _waits_of(at):
            if further not in came_from:
                came_from[further] = at
                unseen.append(further)
    return []


def _waits_of(party: Party) -> list[Party]:
    work = party.work
    if work is None:
        return []
    return [target for reply, target in work.asks.copy().items() if reply.is_wanted()]


def _way_back(came_from: dict[Party, Party], asker: Party) -> list[Party]:
    way = [asker]
    while len(way) == 1 or way[-1] is not asker:
        way.append(came_from[way[-1]])
    return way[::-1]
