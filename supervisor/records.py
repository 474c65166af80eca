"""The ledger as this process sees it: records go through a spool on disk, queries over the link.

A record is in the spool before `record` returns, so it survives the death of this process; it is sent in batches and
forgotten when the ledger has committed it. If this process dies first, the ledger adopts the spool.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, cast

from ..protocol.errors import AskTimeout, CoveyError, MessageTooLarge
from ..protocol.messages.ledger import Append, Committed, LedgerQuery, LedgerRecord
from ..storage.logs import log_event
from ..storage.outbox import Outbox
from .batches import Batches
from .link import Link

log = logging.getLogger(__name__)

RETRY_S: Final = 0.5


class Records:
    """Implements `actors.ports.Ledger`. Owned by the loop thread."""

    def __init__(self, link: Link, outbox: Outbox) -> None:
        self._link = link
        self._outbox = outbox
        self._batches = Batches()
        self._underway: set[asyncio.Task[None]] = set()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._is_scheduled = False
        self._retry: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def backlog(self) -> int:
        """Records handed over and not known to be committed."""
        return self._batches.last - self._batches.upto

    def record(self, record: LedgerRecord) -> None:
        """See `actors.ports.Ledger.record`."""
        self._outbox.append(self._batches.last + 1, record)
        self._batches.add(record)
        if not self._is_scheduled:
            self._is_scheduled = True
            # One turn later: what the same turn records travels together.
            self._loop.call_soon(self._send)

    async def flush(self, *, timeout_s: float = 10.0) -> None:
        """See `actors.ports.Ledger.flush`."""
        upto = self._batches.last
        if self._batches.upto >= upto:
            return
        if self._link.lost is not None:
            raise self._link.lost
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append((upto, future))
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            raise AskTimeout("flush", "ledger", timeout_s) from None

    async def query(self, query: LedgerQuery, *, timeout_s: float = 10.0) -> Any:
        """See `actors.ports.Ledger.query`. What was recorded before is seen by it."""
        deadline = self._loop.time() + timeout_s
        self._send()  # what was recorded before travels before
        if not self._batches.is_all_sent:
            await self.flush(timeout_s=timeout_s)
        return await self._link.ask(query, timeout_s=max(0.0, deadline - self._loop.time()))

    async def close(self, *, timeout_s: float) -> None:
        """Wait for the ledger as long as allowed; what it has not committed then stays in the spool for adoption."""
        try:
            await self.flush(timeout_s=timeout_s)
        except CoveyError as exc:
            log_event(log, "records_left_in_spool", level=logging.WARNING, records=self.backlog, error=str(exc))
        if self._retry is not None:
            self._retry.cancel()
        for task in self._underway:
            task.cancel()
        self._outbox.close()

    # --- inside --------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        self._is_scheduled = False
        while (append := self._batches.next()) is not None:
            task = self._loop.create_task(self._deliver(append))
            self._underway.add(task)
            task.add_done_callback(self._underway.discard)

    async def _deliver(self, append: Append) -> None:
        """Ask the ledger to keep these records; a refusal is not the end of them."""
        try:
            reply = await self._link.ask(append, timeout_s=None)
        except MessageTooLarge:
            self._batches.too_large()
        except CoveyError as exc:
            if self._link.lost is not None:
                self._fail(self._link.lost)
                return
            log_event(log, "ledger_refuses", level=logging.ERROR, first=append.first, error=str(exc))
            self._batches.refused()
        else:
            self._committed(cast(Committed, reply).upto)
        if self._batches.is_to_be_resumed:
            self._retry = self._loop.call_later(RETRY_S, self._resume)

    def _fail(self, lost: CoveyError) -> None:
        """The ledger will not come back: nobody waits for it any more. The records stay in the spool."""
        for _, future in self._waiters:
            if not future.done():
                future.set_exception(lost)
        self._waiters.clear()

    def _resume(self) -> None:
        self._batches.resume()
        self._send()

    def _committed(self, upto: int) -> None:
        self._batches.committed(upto)
        self._outbox.acknowledge(self._batches.upto)
        still: list[tuple[int, asyncio.Future[None]]] = []
        for seq, future in self._waiters:
            if seq > self._batches.upto:
                still.append((seq, future))
            elif not future.done():
                future.set_result(None)
        self._waiters = still
        self._send()
