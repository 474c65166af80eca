"""A diversion: takes records in the place of a store whose file is not to be written to any more.

It knows what the store had committed, so what was kept before is a duplicate here as well. Owned by one thread.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..protocol.ids import Incarnation
from .inbox import Applied, Delivery, Inbox
from .pending import Pending


class Diversion:
    """Keeps records in the journal beside state.db, for the next ledger."""

    def __init__(self, journal: Pending, committed: dict[Incarnation, int]) -> None:
        self._journal = journal
        self._inbox = Inbox(furthest(committed, journal))

    @property
    def records(self) -> int:
        """How many wait in the journal."""
        return self._journal.records

    def apply(self, batch: Sequence[Delivery]) -> Applied:
        """Keep what of the batch had not been kept before, or nothing of it (`StoreError`)."""
        sorted_out = self._inbox.sort(batch, is_complete=False)
        if sorted_out.fresh:
            self._journal.append(sorted_out.fresh)
        self._inbox.advance(sorted_out.advanced)
        return Applied(
            new=len(sorted_out.fresh),
            duplicates=sorted_out.duplicates,
            held_back=sorted_out.held_back,
            unstorable=0,
        )

    def committed_upto(self, incarnation: Incarnation) -> int:
        """Return up to which number a sender's records are kept, 0 if none is."""
        return self._inbox.committed(incarnation)

    def close(self) -> None:
        """Leave the journal to the next ledger."""
        self._journal.close()


def furthest(committed: dict[Incarnation, int], journal: Pending) -> dict[Incarnation, int]:
    """Return how far every sender has got, in the database and in the journal together."""
    senders = dict(committed)
    for incarnation, seq, _ in journal.deliveries:
        senders[incarnation] = max(seq, senders.get(incarnation, 0))
    return senders
