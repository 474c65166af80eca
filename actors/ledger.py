"""The ledger's loop side: records and queries go in, acknowledgements and answers come out, all on the loop thread.

Behind it is one thread (`ledger_thread`), which owns state.db and everything that blocks.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import msgspec

from ..protocol.errors import AskTimeout, MailboxFull, SequenceGap, StoreError
from ..protocol.ids import Incarnation
from ..protocol.messages.ledger import LedgerQuery, LedgerReply, LedgerStats, LedgerStatsQuery
from ..storage.spool import Entry
from .ledger_mail import AdoptNow, Close, Mail, Question, Submission
from .ledger_thread import LedgerThread

MAX_RECORDS: Final = 20_000
MAX_QUESTIONS: Final = 1_000
QUERY_DEADLINE_S: Final = 0.25


class LedgerWriter:
    """The one writer of state.db. Owned by the loop thread; every callback runs on it.

    At `max_records` or `max_questions` that wait, more are refused with `MailboxFull` and not taken.
    """

    def __init__(
        self,
        database: Path,
        outbox: Path,
        *,
        max_records: int = MAX_RECORDS,
        max_questions: int = MAX_QUESTIONS,
        query_deadline_s: float = QUERY_DEADLINE_S,
    ) -> None:
        self._database, self._outbox = database, outbox
        self._max_records, self._max_questions = max_records, max_questions
        self._query_deadline_s = query_deadline_s
        self._mail: SimpleQueue[Mail] = SimpleQueue()
        self._last: dict[Incarnation, int] = {}
        self._waiting_records = 0
        self._waiting_questions = 0
        self._is_open = False
        self._thread: LedgerThread
        self._opened: asyncio.Future[None]
        self.ended: asyncio.Future[None]
        """Done when the thread has ended; with an exception if it was not `close` that ended it."""

    async def start(self, *, timeout_s: float = 10.0) -> None:
        """Own and open state.db; raises what `Store` raises, or `AskTimeout`, and is of no use then."""
        loop = asyncio.get_running_loop()
        self._opened, self.ended = loop.create_future(), loop.create_future()
        self._thread = LedgerThread(
            self._database,
            self._outbox,
            loop,
            self._mail,
            on_opened=self._on_opened,
            on_settled=self._on_settled,
            on_ended=self._on_ended,
            query_deadline_s=self._query_deadline_s,
        )
        self._thread.start()
        try:
            async with asyncio.timeout(timeout_s):
                await self._opened
        except TimeoutError:
            self._mail.put(Close(by=time.monotonic()))
            raise AskTimeout("open", str(self._database), timeout_s) from None

    def submit(self, incarnation: Incarnation, entries: Sequence[Entry], on_committed: Callable[[int], None]) -> None:
        """Take over a sender's numbered records; `on_committed(n)` follows once, when all of them up to `n` are kept.

        Records that were committed before count as kept. Raises `SequenceGap` if older ones are missing, and
        `MailboxFull`: nothing was taken then, and the sender has to send these and all later ones again, in order.
        While state.db is faulty they wait, and nothing is said.
        """
        self._require_open()
        if self._waiting_records + len(entries) > self._max_records and self._waiting_records:
            raise MailboxFull("ledger", self._max_records, entries)
        self._follow(incarnation, entries)
        self._waiting_records += len(entries)
        self._mail.put(Submission(incarnation, entries, on_committed, time.monotonic()))

    def query(self, query: LedgerQuery, on_reply: Callable[[LedgerReply], None]) -> None:
        """Answer once everything submitted so far is committed; `Failed` while state.db is faulty or it takes long.

        `LedgerStatsQuery` is always answered. Raises `MailboxFull`.
        """
        self._require_open()
        if self._waiting_questions >= self._max_questions:
            raise MailboxFull("ledger", self._max_questions, query)
        if isinstance(query, LedgerStatsQuery):
            on_reply = functools.partial(self._add_backlog, on_reply)
        self._waiting_questions += 1
        self._mail.put(Question(query, on_reply))

    def adopt_now(self) -> None:
        """Look for spools of dead senders at once: a process of the fleet has just died."""
        self._require_open()
        self._mail.put(AdoptNow())

    async def close(self, *, timeout_s: float = 5.0) -> None:
        """Commit and answer what waits, then give up state.db; nothing is taken any more.

        What cannot be committed in time stays unacknowledged; then, or if the disk hangs, this raises `AskTimeout`.
        """
        if self._is_open:
            self._is_open = False
            self._mail.put(Close(by=time.monotonic() + timeout_s))
        try:
            async with asyncio.timeout(timeout_s + 1.0):
                await asyncio.shield(self.ended)
        except TimeoutError:
            raise AskTimeout("close", "ledger", timeout_s) from None

    def _follow(self, incarnation: Incarnation, entries: Sequence[Entry]) -> None:
        # Judged here, before anything is queued: the sender of a refused batch may have later ones on their way.
        if not entries:
            return
        first, last = entries[0][0], entries[-1][0]
        before = self._last.get(incarnation, first - 1)
        if first > before + 1 or last - first != len(entries) - 1:
            raise SequenceGap(incarnation, before + 1, first)
        self._last[incarnation] = max(before, last)

    def _require_open(self) -> None:
        if not self._is_open:
            raise StoreError("the ledger does not take anything: it is not started, or it is closing")

    def _add_backlog(self, on_reply: Callable[[LedgerReply], None], reply: LedgerReply) -> None:
        if isinstance(reply, LedgerStats):
            reply = msgspec.structs.replace(reply, backlog=self._waiting_records)
        on_reply(reply)

    def _on_opened(self, senders: dict[Incarnation, int]) -> None:
        self._last = senders
        self._is_open = True
        if not self._opened.done():
            self._opened.set_result(None)

    def _on_settled(self, records: int, questions: int, calls: Sequence[Callable[[], None]]) -> None:
        self._waiting_records -= records
        self._waiting_questions -= questions
        loop = asyncio.get_running_loop()
        for call in calls:
            # A turn of its own each: what one callback raises is the loop's to report and stops no other.
            loop.call_soon(call)

    def _on_ended(self, error: BaseException | None) -> None:
        self._is_open = False
        self._thread.join(1.0)
        if error is None:
            self.ended.set_result(None)
        elif not self._opened.done():
            self.ended.set_result(None)
            self._opened.set_exception(error)
        else:
            self.ended.set_exception(error)
