"""The ledger as this process sees it: records go through a spool on disk, queries over the link.

A record is in the spool before `record` returns, so it survives the death of this process; it is sent in batches and
forgotten when the ledger has committed it. If this process dies first, the ledger adopts the spool.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, cast

from ..protocol.errors import AskTimeout, CoveyError
from ..protocol.messages.ledger import Append, Committed, LedgerQuery, LedgerRecord
from ..storage.logs import log_event
from ..storage.outbox import Outbox
from .link import Link

log = logging.getLogger(__name__)

MAX_BATCH = 512
RETRY_S = 0.5


class Records:
    """Implements `actors.ports.Ledger`. Owned by the loop thread."""

    def __init__(self, link: Link, outbox: Outbox) -> None:
        self._link = link
        self._outbox = outbox
        self._next_seq = 1
        self._committed = 0
        self._unsent: deque[tuple[int, LedgerRecord]] = deque()
        self._underway: asyncio.Task[None] | None = None
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._scheduled = False
        self._loop = asyncio.get_running_loop()

    @property
    def backlog(self) -> int:
        """Records handed over and not known to be committed."""
        return self._next_seq - 1 - self._committed

    def record(self, record: LedgerRecord) -> None:
        """See `actors.ports.Ledger.record`."""
        seq = self._next_seq
        self._outbox.append(seq, record)
        self._next_seq = seq + 1
        self._unsent.append((seq, record))
        if not self._scheduled:
            self._scheduled = True
            # One turn later: what the same turn records travels together.
            self._loop.call_soon(self._send)

    async def flush(self, *, timeout_s: float = 10.0) -> None:
        """See `actors.ports.Ledger.flush`."""
        upto = self._next_seq - 1
        if self._committed >= upto:
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append((upto, future))
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            raise AskTimeout("flush", "ledger", timeout_s) from None

    async def query(self, query: LedgerQuery, *, timeout_s: float = 10.0) -> Any:
        """See `actors.ports.Ledger.query`."""
        self._send()  # what was recorded before travels before
        return await self._link.ask(query, timeout_s=timeout_s)

    async def close(self, *, timeout_s: float) -> None:
        """Wait for the ledger as long as allowed; what it has not committed then stays in the spool for adoption."""
        try:
            await self.flush(timeout_s=timeout_s)
        except CoveyError as exc:
            log_event(log, "records_left_in_spool", level=logging.WARNING, records=self.backlog, error=str(exc))
        if self._underway is not None:
            self._underway.cancel()
        self._outbox.close()

    # --- inside --------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        self._scheduled = False
        if not self._unsent or self._underway is not None:
            return  # one batch at a time keeps the order through every refusal; meanwhile the next one grows
        first = self._unsent[0][0]
        count = min(MAX_BATCH, len(self._unsent))
        batch = tuple(self._unsent.popleft()[1] for _ in range(count))
        self._underway = self._loop.create_task(self._deliver(Append(first=first, records=batch)))

    async def _deliver(self, append: Append) -> None:
        """Ask until the ledger says that it has these records; a refusal is not the end of them."""
        while True:
            try:
                reply = await self._link.ask(append, timeout_s=None)
            except CoveyError as exc:
                log_event(log, "ledger_refuses", level=logging.ERROR, first=append.first, error=str(exc))
                await asyncio.sleep(RETRY_S)
                continue
            self._underway = None
            self._acknowledged(cast(Committed, reply).upto)
            return

    def _acknowledged(self, upto: int) -> None:
        if upto > self._committed:
            self._committed = upto
            self._outbox.acknowledge(upto)
        still: list[tuple[int, asyncio.Future[None]]] = []
        for seq, future in self._waiters:
            if seq > self._committed:
                still.append((seq, future))
            elif not future.done():
                future.set_result(None)
        self._waiters = still
        self._send()
