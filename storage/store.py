"""The store: state.db as its one owner sees it. Batches of records go in exactly once, queries are answered.

Owned by one thread, which opens, uses and closes it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, assert_never

import msgspec

from ..protocol.ids import Incarnation
from ..protocol.messages.ledger import (
    CallRecorded,
    Calls,
    CallsQuery,
    ChildRestarted,
    LedgerRecord,
    MessageAppended,
    Restarts,
    RestartsQuery,
    SessionEnded,
    SessionOpened,
    Totals,
    TotalsQuery,
    Transcript,
    TranscriptQuery,
)
from . import queries, writes
from .bulk import MAX_ROWS, Bulk
from .checkpoints import Checkpoint, due
from .database import UNFIT, Database, Row, TooSlow
from .identity import size
from .inbox import Delivery, Inbox
from .logs import log_event
from .migrations import upgrade
from .ownership import own
from .rows import call_row, ended_row, message_row, opened_row, restart_row

QUICK_CHECK_S: Final = 0.1
"""How long the check at start may take. A file that is larger than what it reads by then is served unchecked."""

log = logging.getLogger(__name__)


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a batch."""

    new: int
    duplicates: int
    held_back: int
    """Records beyond a gap: they were not stored and have to be sent again after what is missing."""
    unstorable: int
    """Of the new ones: those whose values fit no column; they are in a table of their own, as text."""


class Store:
    """The owner's view of state.db."""

    def __init__(self, path: Path) -> None:
        """Own and open the database; it is created if it does not exist.

        Raises `AlreadyRunning`, `ForeignDatabase`, `SchemaTooNew`, `StoreDamaged` or another `StoreError`; the file
        is then as it was and owned by nobody, or by whom it was.
        """
        self.path = path
        self._data_version = self._foreign_writes = 0
        self._lock = own(path)
        try:
            self._database = Database(path)
            try:
                self._prepare()
            except BaseException:
                self._database.close()
                raise
        except BaseException:
            self._lock.close()
            raise

    def apply(self, batch: Sequence[Delivery], *, is_complete: bool = False) -> Applied:
        """Commit, in one transaction, what of the batch had not been committed before.

        A sender's records begin anywhere and go on without gaps; what lies beyond a gap is held back, unless
        `is_complete` says that nothing older exists any more. On a `StoreError` nothing of the batch is committed.
        """
        sorted_out = self._inbox.sort(batch, is_complete=is_complete)
        unstorable = 0
        if sorted_out.fresh:
            with self._database.transaction():
                unstorable = self._write(sorted_out.fresh)
                writes.INBOX.insert(self._database, list(sorted_out.advanced.items()))
        self._inbox.advance(sorted_out.advanced)
        return Applied(
            new=len(sorted_out.fresh),
            duplicates=sorted_out.duplicates,
            held_back=sorted_out.held_back,
            unstorable=unstorable,
        )

    def transcript(self, query: TranscriptQuery) -> Transcript:
        """Return a session's messages from index 0, and how it ended."""
        return queries.transcript(self._database, query)

    def totals(self, query: TotalsQuery) -> Totals:
        """Return the sums."""
        return queries.totals(self._database, query)

    def calls(self, query: CallsQuery) -> Calls:
        """Return rows of calls."""
        return queries.calls(self._database, query)

    def answer(
        self, query: TranscriptQuery | TotalsQuery | CallsQuery | RestartsQuery, *, deadline_s: float
    ) -> Transcript | Totals | Calls | Restarts:
        """Answer a query; raises `TooSlow` if that takes longer, and `StoreMoved` rather than read a stranger."""
        self._database.check()
        with self._database.deadline(deadline_s):
            match query:
                case TranscriptQuery():
                    return self.transcript(query)
                case TotalsQuery():
                    return self.totals(query)
                case CallsQuery():
                    return self.calls(query)
                case RestartsQuery():
                    return queries.restarts(self._database, query)
                case _:
                    assert_never(query)

    def committed_upto(self, incarnation: Incarnation) -> int:
        """Return up to which number a sender's records are committed, 0 if none is."""
        return self._inbox.committed(incarnation)

    def senders(self) -> dict[Incarnation, int]:
        """Return all of them with what `committed_upto` says."""
        return self._inbox.all()

    def rows(self) -> int:
        """Return how many sessions, messages and calls there are."""
        return self._database.number(queries.ROWS)

    def db_bytes(self) -> int:
        """Return the size of the database file."""
        return size(self.path)

    def wal_bytes(self) -> int:
        """Return the size of the WAL file."""
        return size(f"{self.path}-wal")

    def inspect(self) -> int:
        """Return how often somebody else was found to have written since this store was opened.

        Raises `StoreMoved` if the files are not in their place.
        """
        self._database.check()
        version = self._database.number("PRAGMA data_version")
        if version != self._data_version:
            self._data_version = version
            self._foreign_writes += 1
            log_event(log, "foreign_write", level=logging.ERROR, path=self.path)
        return self._foreign_writes

    def maintain(self, *, idle_s: float, since_last_s: float) -> bool:
        """Do the checkpoint that is due, if one is; whether there was one. Raises `StoreError`."""
        match due(
            wal_pages=self._database.wal_pages,
            wal_bytes=self.wal_bytes(),
            idle_s=idle_s,
            since_last_s=since_last_s,
        ):
            case None:
                return False
            case checkpoint:
                self._database.checkpoint(truncate=checkpoint is Checkpoint.TRUNCATE)
                return True

    def close(self) -> None:
        """Close the database and give up its ownership. Files that are not in their place are not touched."""
        try:
            self._database.close()
        finally:
            self._lock.close()

    def _prepare(self) -> None:
        upgrade(self._database)
        self._database.use_wal()
        with suppress(TooSlow), self._database.deadline(QUICK_CHECK_S):
            self._database.quick_check()
        self._inbox = Inbox.read(self._database)
        self._data_version = self._database.number("PRAGMA data_version")

    def _write(self, fresh: Iterable[Delivery]) -> int:
        tables: dict[Bulk, list[tuple[Row, Delivery]]] = {}
        for delivery in fresh:
            bulk, row = _row(delivery[2])
            tables.setdefault(bulk, []).append((row, delivery))
        return sum(self._insert(bulk, rows) for bulk, rows in tables.items())

    def _insert(self, bulk: Bulk, rows: list[tuple[Row, Delivery]]) -> int:
        """Insert rows; the number of those that cannot be, which are put aside."""
        unstorable = 0
        for start in range(0, len(rows), MAX_ROWS):
            part = rows[start : start + MAX_ROWS]
            try:
                bulk.insert(self._database, [row for row, _ in part])
            except UNFIT:
                unstorable += sum(self._insert_one(bulk, row, delivery) for row, delivery in part)
        return unstorable

    def _insert_one(self, bulk: Bulk, row: Row, delivery: Delivery) -> bool:
        try:
            bulk.insert(self._database, [row])
        except UNFIT as error:
            incarnation, seq, record = delivery
            log_event(log, "record_unstorable", level=logging.ERROR, incarnation=incarnation, seq=seq)
            writes.UNSTORABLE.insert(self._database, [(incarnation, seq, type(error).__name__, ascii(record))])
            return True
        return False


def _row(record: LedgerRecord) -> tuple[Bulk, Row]:
    match record:
        case MessageAppended():
            return writes.MESSAGES, message_row(record)
        case CallRecorded():
            return writes.CALLS, call_row(record)
        case SessionOpened():
            return writes.OPENED, opened_row(record)
        case SessionEnded():
            return writes.ENDED, ended_row(record)
        case ChildRestarted():
            return writes.RESTARTS, restart_row(record)
        case _:
            assert_never(record)
