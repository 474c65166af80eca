"""Where the ledger keeps records: in state.db while that is sound, and in the journal beside it from then on.

What an earlier ledger left in the journal is taken in first, before anything that came later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from ..protocol.errors import AskTimeout, CoveyError, StoreError
from ..protocol.ids import Incarnation
from ..protocol.messages.base import Failed
from ..protocol.messages.ledger import LedgerQuery, LedgerReply, LedgerStats, LedgerStatsQuery
from ..storage.database import TooSlow
from ..storage.diversion import Diversion, furthest
from ..storage.faults import is_lasting
from ..storage.inbox import Delivery
from ..storage.logs import log_event
from ..storage.pending import Pending, left_behind
from ..storage.store import Store
from .ledger_standing import Standing
from .ledger_tally import Tally

JOURNAL_RECORDS: Final = 512

log = logging.getLogger(__name__)


class Keeper:
    """The open store, and the journal if there is one. Owned by the ledger's thread."""

    def __init__(self, path: Path, *, on_lasting_fault: Callable[[], None]) -> None:
        """Own and open state.db; raises what `Store` raises. `on_lasting_fault` is called once, from within."""
        self._path, self._on_lasting_fault = path, on_lasting_fault
        self._store = Store(path)
        self._journal: Pending | None = None
        self._taken_in = 0
        self._diversion: Diversion | None = None
        self._tally = Tally()
        self._rows = self._foreign_writes = 0
        self._busy_at = self._checkpoint_at = time.monotonic()
        self.standing = Standing()
        try:
            if left_behind(path):
                self._journal = Pending(path)
        except BaseException:
            self._store.close()
            raise

    @property
    def takes_in(self) -> bool:
        """Whether an earlier ledger's journal is not taken in yet: nothing else is kept until then."""
        return self._journal is not None

    @property
    def can_take_in(self) -> bool:
        """Whether there is something to take in now."""
        return self.takes_in and time.monotonic() >= self.standing.retry_at

    def senders(self) -> dict[Incarnation, int]:
        """Return how far every sender has got."""
        senders = self._store.senders()
        return furthest(senders, self._journal) if self._journal is not None else senders

    def committed_upto(self, incarnation: Incarnation) -> int:
        """Return up to which number a sender's records are kept, 0 if none is."""
        return (self._diversion or self._store).committed_upto(incarnation)

    def apply(self, batch: Sequence[Delivery]) -> bool:
        """Keep the batch, in state.db or else in the journal; False, and nothing of it is kept, if neither takes it."""
        if not self.standing.is_lasting and self.commit(batch):
            return True
        return self.standing.is_lasting and self._divert(batch)

    def commit(self, batch: Sequence[Delivery], *, is_complete: bool = False) -> bool:
        """Keep the batch in state.db, or nothing of it. `is_complete` as with `Store.apply`."""
        began = time.monotonic()
        try:
            applied = self._store.apply(batch, is_complete=is_complete)
        except StoreError as error:
            self.fail(error)
            return False
        self._tally.add(applied)
        self._wrote(began)
        return True

    def take_in(self) -> None:
        """Commit the next part of the journal; forget it after the last."""
        assert self._journal is not None, "there is something to take in"
        part = self._journal.deliveries[self._taken_in : self._taken_in + JOURNAL_RECORDS]
        if part and not self.commit(part, is_complete=True):
            return
        self._taken_in += len(part)
        if self._taken_in >= self._journal.records:
            log_event(log, "journal_taken_in", path=self._journal.path, records=self._journal.records)
            self._journal.forget()
            self._journal = None

    def fail(self, error: StoreError) -> None:
        """The store has raised this."""
        was_lasting = self.standing.is_lasting
        if self.standing.fail(error, time.monotonic()):
            log_event(log, "ledger_faulty", level=logging.ERROR, kind=type(error).__name__, error=error)
        if self.standing.is_lasting and not was_lasting:
            with suppress(OSError):
                self._store.give_up()
            if self._journal is not None:
                self._open_diversion(self._journal)
            self._on_lasting_fault()

    def answer(self, query: LedgerQuery, *, is_ready: bool, deadline_s: float) -> LedgerReply:
        """Answer from state.db; `Failed` while it is faulty, unless all that was asked about is there (`is_ready`)."""
        if isinstance(query, LedgerStatsQuery):
            return self._stats()
        fault = self.standing.fault
        if fault is not None and (self.standing.is_lasting or not is_ready):
            return failed(fault)
        try:
            return self._store.answer(query, deadline_s=deadline_s)
        except TooSlow:
            return failed(AskTimeout(type(query).__name__, "ledger", deadline_s))
        except StoreError as error:
            if is_lasting(error):
                self.fail(error)
            return failed(error)

    def inspect(self, *, is_idle: bool) -> None:
        """Look whether the files are in their place, and who else writes. A fault for now ends if nothing waits."""
        if self.standing.is_lasting:
            return
        try:
            self._foreign_writes = self._store.inspect()
        except StoreError as error:
            self.fail(error)
            return
        if is_idle and not self.takes_in:
            self._recover()

    def checkpoint(self, *, is_busy: bool) -> None:
        """Do the checkpoint that is due, if one is."""
        if self.standing.fault is not None:
            return
        now = time.monotonic()
        idle_s = 0.0 if is_busy else now - self._busy_at
        try:
            if self._store.maintain(idle_s=idle_s, since_last_s=now - self._checkpoint_at):
                self._checkpoint_at = time.monotonic()
        except StoreError as error:
            self._checkpoint_at = now
            self.fail(error)

    def mend_search(self) -> bool:
        """Do one short step towards a whole search index; whether there is another one to do now."""
        if self.standing.fault is not None:
            return False
        try:
            return self._store.mend_search()
        except StoreError as error:
            self.fail(error)
            return False

    def close(self) -> None:
        """Give up state.db, and leave the journal to the next ledger."""
        for journal in (self._journal, self._diversion):
            if journal is not None:
                journal.close()
        self._store.close()

    # --- inside --------------------------------------------------------------------------------------------------

    def _divert(self, batch: Sequence[Delivery]) -> bool:
        began = time.monotonic()
        try:
            if self._diversion is None:
                self._open_diversion(Pending(self._path))
            assert self._diversion is not None, "it was opened"
            applied = self._diversion.apply(batch)
        except StoreError as error:
            log_event(log, "journal_takes_nothing", level=logging.ERROR, error=error)
            self.standing.put_off(time.monotonic())
            return False
        self._tally.add(applied)
        self._wrote(began)
        return True

    def _open_diversion(self, journal: Pending) -> None:
        log_event(log, "ledger_diverted", level=logging.ERROR, path=journal.path)
        self._diversion, self._journal = Diversion(journal, self._store.senders()), None

    def _wrote(self, began: float) -> None:
        self._busy_at = time.monotonic()
        self._tally.took(self._busy_at - began)
        self._recover()

    def _recover(self) -> None:
        if (fault := self.standing.recover()) is not None:
            log_event(log, "ledger_recovered", after=fault)

    def _stats(self) -> LedgerStats:
        standing, store = self.standing, self._store
        if not standing.is_lasting:
            with suppress(StoreError):
                self._rows = store.rows()
        waiting = self._journal or self._diversion
        stats = LedgerStats(
            rows=self._rows,
            backlog=0,
            committed=self._tally.committed,
            duplicates=self._tally.duplicates,
            db_bytes=store.db_bytes(),
            wal_bytes=store.wal_bytes(),
            commit_p50_ms=self._tally.latency_ms(50),
            commit_p99_ms=self._tally.latency_ms(99),
            journaled=waiting.records if waiting is not None else 0,
            foreign_writes=self._foreign_writes,
            is_wal_large=store.is_wal_large,
        )
        if standing.fault is None:
            return stats
        kind = type(standing.fault).__name__
        return msgspec.structs.replace(
            stats, fault=str(standing.fault), fault_kind=kind, is_fault_lasting=standing.is_lasting
        )


def failed(error: CoveyError) -> Failed:
    """Return the reply that says so."""
    return Failed(kind=type(error).__name__, message=str(error))
