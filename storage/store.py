"""The store: state.db as its one owner sees it. Batches of records go in exactly once, queries are answered.

Owned by one thread, which opens, uses and closes it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from ..protocol.errors import StoreError
from ..protocol.ids import Incarnation
from ..protocol.messages.ledger import (
    Calls,
    CallsQuery,
    StoreQuery,
    StoreReply,
    Totals,
    TotalsQuery,
    Transcript,
    TranscriptQuery,
)
from ..protocol.messages.tokens import RouteChosen, TokensCounted
from . import queries, search, token_tables, writes
from .activity import touch
from .answers import answer
from .bulk import Bulk
from .checkpointer import Checkpointer
from .checkpoints import LARGE_BYTES, Checkpoint, due
from .database import UNFIT, Database, Row, TooSlow
from .identity import size
from .inbox import Applied, Delivery, Inbox, SortedOut
from .logs import log_event
from .migrations import upgrade
from .mounts import refuse_remote
from .ownership import own
from .records import rows_of
from .token_counts import UsageRecord, is_sound

QUICK_CHECK_S: Final = 0.05
"""How long the check at start may take. A file that is larger than what it reads by then is served unchecked."""

JUDGE_S: Final = 5.0
"""How long a check at start that found damage may look for where it is."""

log = logging.getLogger(__name__)


class Store:
    """The owner's view of state.db."""

    def __init__(self, path: Path) -> None:
        """Own and open the database; it is created if it does not exist.

        Raises `AlreadyRunning`, `ForeignDatabase`, `SchemaTooNew`, `StoreDamaged` or another `StoreError`; the file
        is then as it was and owned by nobody, or by whom it was.
        """
        self.path = path
        self._data_version = self._foreign_writes = 0
        self._is_wal_large = False
        self._search_faults = 0
        refuse_remote(path)
        with ExitStack() as stack:
            self._lock = own(path)
            stack.callback(self._lock.close)
            self._database = Database(path)
            stack.callback(self._database.close)
            self._prepare()
            self._helper = Checkpointer(path)
            stack.callback(self._helper.close)
            self._database.check()
            self._ends = stack.pop_all()

    def apply(self, batch: Sequence[Delivery], *, is_complete: bool = False) -> Applied:
        """Commit, in one transaction, what of the batch had not been committed before.

        A sender's records begin anywhere and go on without gaps; what lies beyond a gap is held back, unless
        `is_complete` says that nothing older exists any more. On a `StoreError` nothing of the batch is committed.
        """
        sorted_out = self._inbox.sort(batch, is_complete=is_complete)
        unstorable = self._commit(sorted_out) if sorted_out.fresh else 0
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

    def answer(self, query: StoreQuery, *, deadline_s: float) -> StoreReply:
        """Answer a query; raises `TooSlow` if that takes longer, and `StoreMoved` rather than read a stranger."""
        self._database.check()
        with self._database.deadline(deadline_s):
            return answer(self._database, query)

    def mend_search(self) -> bool:
        """Do one step towards a search index of all messages, if it is not whole; whether there is another to do.

        An index that fails for a second time in one life of the store stays off until the next. Raises `StoreError`.
        """
        if self._search_faults > 1:
            return False
        try:
            return search.mend(self._database)
        except StoreError as error:
            if not search.is_of_index(error):
                raise
            self._search_faults = 2
            return False

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

    @property
    def is_wal_large(self) -> bool:
        """Whether the WAL is over its bound, because something reads for long."""
        return self._is_wal_large

    def maintain(self, *, idle_s: float, since_last_s: float) -> bool:
        """Do or begin the checkpoint that is due, if one is; whether there was one. Raises `StoreError`."""
        has_helped = False
        if self._helper.is_at_work:
            moved = self._helper.result()
            if moved is None:
                return False
            self._database.helped(*moved)
            has_helped = True
        wal_bytes = self.wal_bytes()
        self._watch_wal(wal_bytes)
        match due(
            wal_pages=self._database.wal_pages,
            moved_pages=self._database.moved_pages,
            wal_bytes=wal_bytes,
            idle_s=idle_s,
            since_last_s=since_last_s,
            has_helped=has_helped,
        ):
            case None:
                return has_helped
            case Checkpoint.HELPER:
                self._database.check()
                self._helper.begin()
            case checkpoint:
                self._database.checkpoint(truncate=checkpoint is Checkpoint.TRUNCATE)
        return True

    def give_up(self) -> None:
        """Nothing is written to this file any more: it is not ours, or not to be trusted. `close` is still due."""
        for name in self._database.set_aside():
            log_event(log, "wal_set_aside", level=logging.ERROR, path=name)

    def close(self) -> None:
        """Close the database and give up its ownership. Files that are not in their place are not touched."""
        self._ends.close()

    def _prepare(self) -> None:
        upgrade(self._database)
        self._database.use_wal()
        self._check()
        self._inbox = Inbox.read(self._database)
        self._data_version = self._database.number("PRAGMA data_version")

    def _check(self) -> None:
        try:
            with suppress(TooSlow), self._database.deadline(QUICK_CHECK_S, is_check=True):
                self._database.quick_check()
        except StoreError as error:
            if not search.is_of_index(error) or not self._is_only_search_damaged():
                raise
            if search.is_sound(self._database):
                return
            with search.turned_off(self._database, str(error)):
                self._search_faults += 1

    def _is_only_search_damaged(self) -> bool:
        with suppress(TooSlow), self._database.deadline(JUDGE_S):
            return search.is_only_damage(self._database)
        return False

    def _commit(self, sorted_out: SortedOut) -> int:
        try:
            with self._database.transaction():
                return self._write_all(sorted_out)
        except StoreError as error:
            # Nobody can say whose pages are damaged before it was tried without the index: messages come first.
            if not search.is_of_index(error) or not search.is_on(self._database):
                raise
            with search.turned_off(self._database, str(error)):
                unstorable = self._write_all(sorted_out)
            self._search_faults += 1
            return unstorable

    def _write_all(self, sorted_out: SortedOut) -> int:
        unstorable = self._write(sorted_out.fresh)
        touch(self._database, (record for _, _, record in sorted_out.fresh))
        writes.INBOX.insert(self._database, list(sorted_out.advanced.items()))
        return unstorable

    def _watch_wal(self, wal_bytes: int) -> None:
        is_large = wal_bytes > LARGE_BYTES
        if is_large and not self._is_wal_large:
            log_event(log, "wal_large", level=logging.ERROR, path=self.path, bytes=wal_bytes)
        self._is_wal_large = is_large

    def _write(self, fresh: Iterable[Delivery]) -> int:
        tables: dict[Bulk, list[tuple[Row, Delivery]]] = {}
        counted: list[UsageRecord] = []
        unstorable = 0
        for delivery in fresh:
            record = delivery[2]
            if isinstance(record, TokensCounted | RouteChosen):
                if is_sound(record):
                    counted.append(record)
                else:
                    unstorable += self._put_aside(delivery, "not a count")
                continue
            for bulk, row in rows_of(record):
                tables.setdefault(bulk, []).append((row, delivery))
        unstorable += sum(self._insert(bulk, rows) for bulk, rows in tables.items())
        if counted:
            token_tables.write(self._database, counted)
        return unstorable

    def _insert(self, bulk: Bulk, rows: list[tuple[Row, Delivery]]) -> int:
        """Insert rows; the number of those that cannot be, which are put aside."""
        unstorable = 0
        for start in range(0, len(rows), bulk.most):
            part = rows[start : start + bulk.most]
            try:
                bulk.insert(self._database, [row for row, _ in part])
            except UNFIT:
                unstorable += sum(self._insert_one(bulk, row, delivery) for row, delivery in part)
        return unstorable

    def _insert_one(self, bulk: Bulk, row: Row, delivery: Delivery) -> bool:
        try:
            bulk.insert(self._database, [row])
        except UNFIT as error:
            return self._put_aside(delivery, type(error).__name__)
        return False

    def _put_aside(self, delivery: Delivery, problem: str) -> bool:
        incarnation, seq, record = delivery
        log_event(log, "record_unstorable", level=logging.ERROR, incarnation=incarnation, seq=seq)
        writes.UNSTORABLE.insert(self._database, [(incarnation, seq, problem, ascii(record))])
        return True
