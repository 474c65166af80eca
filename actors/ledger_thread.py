"""The thread that owns state.db: takes mail, commits in groups, answers, adopts orphaned spools, checkpoints.

The only thread of the ledger: its timers are the timeout of its wait for mail. One turn commits what is due, then
answers at most one question and adopts at most one part of a spool, so that no commit waits for more than one of
them.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, TypeVarTuple, assert_never

from ..protocol.errors import AskTimeout, CoveyError, StoreDamaged, StoreError, StoreMoved
from ..protocol.ids import Incarnation
from ..protocol.messages.base import Failed
from ..protocol.messages.ledger import LedgerQuery, LedgerReply, LedgerStats, LedgerStatsQuery
from ..storage.database import TooSlow
from ..storage.logs import log_event
from ..storage.orphans import Orphan, adopt
from ..storage.spool import Entry
from ..storage.store import Store

GROUP_RECORDS: Final = 256
"""So many records are committed at once …"""
GROUP_S: Final = 0.002
"""… and fewer when the first has waited this long."""
MAX_GROUP_RECORDS: Final = 2048
ADOPT_RECORDS: Final = 512
SCAN_S: Final = 0.5
RETRY_S: Final = 0.5
LATENCIES: Final = 1024

log = logging.getLogger(__name__)

Ts = TypeVarTuple("Ts")


@dataclass(frozen=True, slots=True)
class Submission:
    """A sender's records; `at` is the monotonic time they came."""

    incarnation: Incarnation
    entries: Sequence[Entry]
    on_committed: Callable[[int], None]
    at: float


@dataclass(frozen=True, slots=True)
class Question:
    """A query, to be answered after everything that came before it."""

    query: LedgerQuery
    on_reply: Callable[[LedgerReply], None]


@dataclass(frozen=True, slots=True)
class AdoptNow:
    """Look for orphans without waiting for the timer."""


@dataclass(frozen=True, slots=True)
class Close:
    """Nothing follows; end when all is done, or at the monotonic time `by`."""

    by: float


Mail = Submission | Question | AdoptNow | Close


class LedgerThread:
    """Everything below `run` belongs to the thread; the callbacks are called on the loop."""

    def __init__(
        self,
        database: Path,
        outbox: Path,
        loop: asyncio.AbstractEventLoop,
        mail: SimpleQueue[Mail],
        *,
        on_opened: Callable[[dict[Incarnation, int]], None],
        on_settled: Callable[[int, int, Sequence[Callable[[], None]]], None],
        on_ended: Callable[[BaseException | None], None],
        query_deadline_s: float,
    ) -> None:
        self._path, self._outbox, self._loop, self._mail = database, outbox, loop, mail
        self._on_opened, self._on_settled, self._on_ended = on_opened, on_settled, on_ended
        self._query_deadline_s = query_deadline_s
        self._pending: deque[Submission] = deque()
        self._pending_records = 0
        self._taken = self._done = 0
        self._questions: deque[tuple[int, Question]] = deque()
        self._orphans: Iterator[Orphan] | None = None
        self._orphan: Orphan | None = None
        self._adopted = 0
        self._fault: StoreError | None = None
        self._retry_at = 0.0
        self._next_scan = 0.0
        self._busy_at = self._checkpoint_at = 0.0
        self._close_by: float | None = None
        self._committed = self._duplicates = self._rows = self._foreign_writes = 0
        self._latencies_ms: deque[float] = deque(maxlen=LATENCIES)
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread, once `on_ended` was called: it has nothing left to do."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._store = Store(self._path)
            self._busy_at = self._checkpoint_at = time.monotonic()
            try:
                self._post(self._on_opened, self._store.senders())
                while not self._is_finished():
                    self._receive(self._pause())
                    self._turn()
                self._refuse_rest()
            finally:
                self._release_orphan()
                self._store.close()
        except BaseException as raised:  # noqa: BLE001 - the thread's main: what ended it is the owner's to know
            error = raised
        self._post(self._on_ended, error)

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _pause(self) -> float:
        """How long to wait for mail before there is something else to do."""
        if self._can_answer() or self._can_adopt():
            return 0.0
        until = self._next_scan
        if self._close_by is not None:
            until = min(until, self._close_by)
        if self._pending and self._fault is None:
            until = min(until, self._commit_at())
        elif self._pending:
            until = min(until, self._retry_at)
        return max(0.0, until - time.monotonic())

    def _receive(self, pause: float) -> None:
        try:
            mail = self._mail.get(timeout=pause) if pause else self._mail.get_nowait()
            while True:
                self._take(mail)
                if self._pending_records >= MAX_GROUP_RECORDS:
                    return
                mail = self._mail.get_nowait()
        except Empty:
            return

    def _take(self, mail: Mail) -> None:
        match mail:
            case Submission():
                self._pending.append(mail)
                self._pending_records += len(mail.entries)
                self._taken += 1
            case Question():
                self._questions.append((self._taken, mail))
            case AdoptNow():
                self._next_scan = 0.0
            case Close(by=by):
                self._close_by = by
            case _:
                assert_never(mail)

    def _is_finished(self) -> bool:
        if self._close_by is None:
            return False
        is_idle = not self._questions and (not self._pending or self._fault is not None)
        return (is_idle and self._mail.empty()) or time.monotonic() >= self._close_by

    # --- one turn ----------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        if self._pending and time.monotonic() >= self._commit_at():
            self._commit()
        if self._can_answer():
            self._answer()
        if self._can_adopt():
            self._adopt()
        if time.monotonic() >= self._next_scan:
            self._look_around()
        self._checkpoint()

    def _commit_at(self) -> float:
        """When the pending records are due; there are some."""
        if self._fault is not None:
            return self._retry_at
        is_urgent = self._pending_records >= GROUP_RECORDS or self._questions or self._close_by is not None
        return 0.0 if is_urgent else self._pending[0].at + GROUP_S

    def _commit(self) -> None:
        group, records = self._next_group()
        began = time.monotonic()
        try:
            applied = self._store.apply([(mail.incarnation, *entry) for mail in group for entry in mail.entries])
        except StoreError as error:
            self._fail(error)
            return
        self._busy_at = time.monotonic()
        self._latencies_ms.append((self._busy_at - began) * 1000)
        self._recover()
        for _ in group:
            self._pending.popleft()
        self._pending_records -= records
        self._done += len(group)
        self._committed += applied.new
        self._duplicates += applied.duplicates
        upto = self._store.committed_upto
        calls = [functools.partial(mail.on_committed, upto(mail.incarnation)) for mail in group]
        self._post(self._on_settled, records, 0, calls)

    def _next_group(self) -> tuple[list[Submission], int]:
        group: list[Submission] = []
        records = 0
        for mail in self._pending:
            if group and records + len(mail.entries) > MAX_GROUP_RECORDS:
                break
            group.append(mail)
            records += len(mail.entries)
        return group, records

    # --- faults ------------------------------------------------------------------------------------------------------

    def _fail(self, error: StoreError) -> None:
        if self._fault is None or str(self._fault) != str(error):
            log_event(log, "ledger_faulty", level=logging.ERROR, error=error)
        self._fault = error
        if isinstance(error, StoreMoved | StoreDamaged):
            # Sticky: only a ledger that is started anew looks at the file again.
            self._retry_at = float("inf")
            self._release_orphan()
        else:
            self._retry_at = time.monotonic() + RETRY_S

    def _recover(self) -> None:
        if self._fault is not None:
            log_event(log, "ledger_recovered", after=self._fault)
            self._fault = None

    @property
    def _is_lost(self) -> bool:
        return self._retry_at == float("inf")

    # --- questions ---------------------------------------------------------------------------------------------------

    def _can_answer(self) -> bool:
        return bool(self._questions) and (self._fault is not None or self._questions[0][0] <= self._done)

    def _answer(self) -> None:
        needed, question = self._questions.popleft()
        reply = self._reply(question.query, is_ready=needed <= self._done)
        self._post(self._on_settled, 0, 1, [functools.partial(question.on_reply, reply)])

    def _reply(self, query: LedgerQuery, *, is_ready: bool) -> LedgerReply:
        if isinstance(query, LedgerStatsQuery):
            return self._stats()
        if self._fault is not None and (self._is_lost or not is_ready):
            return _failed(self._fault)
        try:
            return self._store.answer(query, deadline_s=self._query_deadline_s)
        except TooSlow:
            return _failed(AskTimeout(type(query).__name__, "ledger", self._query_deadline_s))
        except StoreError as error:
            if isinstance(error, StoreMoved | StoreDamaged):
                self._fail(error)
            return _failed(error)

    def _stats(self) -> LedgerStats:
        if not self._is_lost:
            with suppress(StoreError):
                self._rows = self._store.rows()
        latencies = sorted(self._latencies_ms)
        return LedgerStats(
            rows=self._rows,
            backlog=self._pending_records,
            committed=self._committed,
            duplicates=self._duplicates,
            db_bytes=self._store.db_bytes(),
            wal_bytes=self._store.wal_bytes(),
            commit_p50_ms=latencies[len(latencies) // 2] if latencies else None,
            commit_p99_ms=latencies[len(latencies) * 99 // 100] if latencies else None,
            fault=str(self._fault) if self._fault is not None else None,
            foreign_writes=self._foreign_writes,
        )

    # --- orphans -----------------------------------------------------------------------------------------------------

    def _can_adopt(self) -> bool:
        if self._close_by is not None or (self._orphan is None and self._orphans is None):
            return False
        return self._fault is None or time.monotonic() >= self._retry_at

    def _adopt(self) -> None:
        """Commit the next part of an orphan; forget it after the last."""
        try:
            if self._orphan is None:
                self._next_orphan()
                return
            part = self._orphan.entries[self._adopted : self._adopted + ADOPT_RECORDS]
            incarnation = self._orphan.incarnation
            applied = self._store.apply([(incarnation, seq, record) for seq, record in part], is_complete=True)
            self._busy_at = time.monotonic()
            self._recover()
            self._committed += applied.new
            self._duplicates += applied.duplicates
            self._adopted += len(part)
            if self._adopted >= len(self._orphan.entries):
                self._orphan.forget()
                log_event(log, "spool_adopted", role=self._orphan.role, sender=incarnation, records=self._adopted)
                self._orphan = None
        except StoreError as error:
            self._fail(error)
        except OSError as error:
            log_event(log, "outbox_unreadable", level=logging.ERROR, path=self._outbox, error=error)
            self._release_orphan()

    def _next_orphan(self) -> None:
        assert self._orphans is not None, "there is a scan to go on with"
        self._orphan, self._adopted = next(self._orphans, None), 0
        if self._orphan is None:
            self._orphans = None

    def _release_orphan(self) -> None:
        if self._orphan is not None:
            self._orphan.release()
        self._orphan = self._orphans = None

    # --- timers ------------------------------------------------------------------------------------------------------

    def _look_around(self) -> None:
        self._next_scan = time.monotonic() + SCAN_S
        if self._is_lost:
            return
        if self._fault is not None and not self._pending and self._orphan is None:
            self._recover()
        if self._orphans is None and self._fault is None:
            self._orphans = adopt(self._outbox)
        try:
            self._foreign_writes = self._store.inspect()
        except StoreError as error:
            self._fail(error)

    def _checkpoint(self) -> None:
        now = time.monotonic()
        if self._fault is not None:
            return
        idle_s = 0.0 if self._pending or not self._mail.empty() else now - self._busy_at
        try:
            if self._store.maintain(idle_s=idle_s, since_last_s=now - self._checkpoint_at):
                self._checkpoint_at = time.monotonic()
        except StoreError as error:
            self._checkpoint_at = now
            self._fail(error)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _refuse_rest(self) -> None:
        reply = _failed(self._fault or StoreError("the ledger was closed before it could answer"))
        calls = [functools.partial(question.on_reply, reply) for _, question in self._questions]
        self._post(self._on_settled, 0, len(calls), calls)

    def _post(self, call: Callable[[*Ts], None], *args: *Ts) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            # The loop is closed: nobody is there to be told anything, and nobody will call `close`.
            self._close_by = 0.0


def _failed(error: CoveyError) -> Failed:
    return Failed(kind=type(error).__name__, message=str(error))
