"""The thread that owns state.db: takes mail, commits in groups, answers, adopts orphaned spools, checkpoints.

Its timers are the timeout of its wait for mail. One turn commits what is due, then answers at most one question and
adopts at most one part of a spool, so that no commit waits for more than one of them. When nobody waits, it mends the
search index, a step a turn.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, TypeVarTuple, assert_never

from ..protocol.errors import StoreError
from ..protocol.ids import Incarnation
from ..storage.inbox import Delivery
from .ledger_adoption import Adoption
from .ledger_keeper import Keeper, failed
from .ledger_mail import MAX_GROUP_RECORDS, AdoptNow, Backlog, Close, Mail, Question, Submission

SCAN_S: Final = 1.0

Ts = TypeVarTuple("Ts")


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
        self._path, self._loop, self._mail = database, loop, mail
        self._on_opened, self._on_settled, self._on_ended = on_opened, on_settled, on_ended
        self._query_deadline_s = query_deadline_s
        self._backlog = Backlog()
        self._adoption = Adoption(outbox)
        self._next_scan = 0.0
        self._is_mending = False
        self._close_by: float | None = None
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
            self._keeper = Keeper(self._path, on_lasting_fault=self._adoption.release)
            self._standing = self._keeper.standing
            try:
                self._post(self._on_opened, self._keeper.senders())
                while not self._is_finished():
                    self._receive(self._pause())
                    self._turn()
                self._refuse_rest()
            finally:
                self._adoption.release()
                self._keeper.close()
        except BaseException as raised:  # noqa: BLE001 - the thread's main: what ended it is the owner's to know
            error = raised
        self._post(self._on_ended, error)

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _pause(self) -> float:
        """How long to wait for mail before there is something else to do."""
        if self._can_answer() or self._can_adopt() or self._keeper.can_take_in:
            return 0.0
        if self._is_mending and not self._is_busy():
            return 0.0
        until = self._next_scan
        if self._close_by is not None:
            until = min(until, self._close_by)
        if self._backlog.has_submissions:
            until = min(until, self._commit_at())
        return max(0.0, until - time.monotonic())

    def _receive(self, pause: float) -> None:
        try:
            mail = self._mail.get(timeout=pause) if pause else self._mail.get_nowait()
            while True:
                self._take(mail)
                if self._backlog.records >= MAX_GROUP_RECORDS:
                    return
                mail = self._mail.get_nowait()
        except Empty:
            return

    def _take(self, mail: Mail) -> None:
        match mail:
            case Submission():
                self._backlog.submit(mail)
            case Question():
                self._backlog.ask(mail)
            case AdoptNow():
                self._next_scan = 0.0
            case Close(by=by):
                self._close_by = by
            case _:
                assert_never(mail)

    def _is_finished(self) -> bool:
        if self._close_by is None:
            return False
        is_kept = not self._backlog.has_submissions or self._standing.is_waiting
        is_idle = is_kept and not self._backlog.has_questions and self._mail.empty()
        return is_idle or time.monotonic() >= self._close_by

    # --- one turn ----------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        if self._keeper.can_take_in:
            self._keeper.take_in()
        if self._can_commit():
            self._commit()
        if self._can_answer():
            self._answer()
        if self._can_adopt():
            self._adoption.step(self._adopt)
        if time.monotonic() >= self._next_scan:
            self._look_around()
        if self._is_mending and not self._is_busy():
            self._is_mending = self._keeper.mend_search()
        self._keeper.checkpoint(is_busy=self._is_busy())

    def _is_busy(self) -> bool:
        return self._backlog.has_submissions or self._close_by is not None or not self._mail.empty()

    def _can_commit(self) -> bool:
        if self._keeper.takes_in or not self._backlog.has_submissions:
            return False
        return time.monotonic() >= self._commit_at()

    def _commit_at(self) -> float:
        """When the records that wait are due; there are some."""
        if self._standing.is_waiting:
            return self._standing.retry_at
        return self._backlog.commit_at(is_urgent=self._close_by is not None)

    def _commit(self) -> None:
        group = self._backlog.next_group()
        if not self._keeper.apply(group.deliveries()):
            return
        self._backlog.done(group)
        upto = self._keeper.committed_upto
        calls = [functools.partial(mail.on_committed, upto(mail.incarnation)) for mail in group.submissions]
        self._post(self._on_settled, group.records, 0, calls)

    # --- questions ---------------------------------------------------------------------------------------------------

    def _can_answer(self) -> bool:
        if self._standing.fault is not None:
            return self._backlog.has_questions
        return self._is_question_ready

    @property
    def _is_question_ready(self) -> bool:
        return self._backlog.is_question_due and not self._keeper.takes_in

    def _answer(self) -> None:
        is_ready = self._is_question_ready
        question = self._backlog.next_question()
        reply = self._keeper.answer(question.query, is_ready=is_ready, deadline_s=self._query_deadline_s)
        self._post(self._on_settled, 0, 1, [functools.partial(question.on_reply, reply)])

    # --- orphans -----------------------------------------------------------------------------------------------------

    def _can_adopt(self) -> bool:
        if self._close_by is not None or self._keeper.takes_in or not self._adoption.is_under_way:
            return False
        return time.monotonic() >= self._standing.retry_at

    def _adopt(self, part: Sequence[Delivery]) -> bool:
        # Never into the journal: what lies in a spool is as safe there.
        return self._keeper.commit(part, is_complete=True)

    def _look_around(self) -> None:
        self._next_scan = time.monotonic() + SCAN_S
        self._keeper.inspect(is_idle=not self._backlog.has_submissions and not self._adoption.has_records)
        if self._standing.fault is None:
            self._adoption.look()
            self._is_mending = not self._keeper.takes_in

    # --- the end -----------------------------------------------------------------------------------------------------

    def _refuse_rest(self) -> None:
        reply = failed(self._standing.fault or StoreError("the ledger was closed before it could answer"))
        calls: list[Callable[[], None]] = []
        while self._backlog.has_questions:
            calls.append(functools.partial(self._backlog.next_question().on_reply, reply))
        self._post(self._on_settled, 0, len(calls), calls)

    def _post(self, call: Callable[[*Ts], None], *args: *Ts) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            # The loop is closed: nobody is there to be told anything, and nobody will call `close`.
            self._close_by = 0.0
