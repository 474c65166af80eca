"""The inbox: up to which number each sender's records are committed. What is at or below it is a duplicate.

A copy of the table `inbox` in memory; the store is its only writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec

from ..protocol.ids import Incarnation
from ..protocol.messages.ledger import LedgerRecord
from . import queries
from .database import Database

Delivery = tuple[Incarnation, int, LedgerRecord]


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a batch."""

    new: int
    duplicates: int
    held_back: int
    """Records beyond a gap: they were not stored and have to be sent again after what is missing."""
    unstorable: int
    """Of the new ones: those whose values fit no column; they are in a table of their own, as text."""


class SortedOut(msgspec.Struct, frozen=True, kw_only=True):
    """A batch, judged: what is new, and where that brings its senders."""

    fresh: list[Delivery]
    advanced: dict[Incarnation, int]
    duplicates: int
    held_back: int


class Inbox:
    """Owned by the store's thread."""

    def __init__(self, committed: dict[Incarnation, int]) -> None:
        self._committed = committed

    @classmethod
    def read(cls, database: Database) -> Inbox:
        """Read the table."""
        rows = cast("list[tuple[Incarnation, int]]", database.execute(queries.INBOX))
        return cls(dict(rows))

    def committed(self, incarnation: Incarnation) -> int:
        """Return the sender's highest contiguous committed number, 0 if nothing of it is."""
        return self._committed.get(incarnation, 0)

    def all(self) -> dict[Incarnation, int]:
        """Return a copy."""
        return dict(self._committed)

    def sort(self, batch: Sequence[Delivery], *, is_complete: bool) -> SortedOut:
        """Judge a batch; nothing changes before `advance`. An unknown sender may begin with any number."""
        fresh: list[Delivery] = []
        advanced: dict[Incarnation, int] = {}
        duplicates = held_back = 0
        for delivery in batch:
            incarnation, seq, _ = delivery
            before = advanced.get(incarnation, self._committed.get(incarnation, seq - 1))
            if seq <= before:
                duplicates += 1
            elif seq > before + 1 and not is_complete:
                held_back += 1
            else:
                fresh.append(delivery)
                advanced[incarnation] = seq
        return SortedOut(fresh=fresh, advanced=advanced, duplicates=duplicates, held_back=held_back)

    def advance(self, advanced: dict[Incarnation, int]) -> None:
        """Take over what was committed."""
        self._committed.update(advanced)
