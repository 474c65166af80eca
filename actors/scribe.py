"""An agent's way to the ledger: records in order, none dropped for want of room, the end only after the commit.

It insists: as long as the ledger does not answer, the agent does not go on. Nothing else would be honest, since what is
not committed may have to be done again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ..protocol.errors import CoveyError, OutboxFull
from ..protocol.messages.ledger import LedgerRecord
from .ports import Ledger

log = logging.getLogger(__name__)

T = TypeVar("T")

AGAIN_S: Final = 0.25
ANSWER_S: Final = 10.0


class Scribe:
    """Owned by one agent. What it holds back is bounded by one turn, because turns wait for `handed_over`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waiting: deque[LedgerRecord] = deque()

    def write(self, record: LedgerRecord) -> None:
        """Hand `record` over after all earlier ones, now if there is room."""
        self._waiting.append(record)
        self._push()

    async def handed_over(self) -> None:
        """Return once every record is with the ledger's outbox: the death of this process does not lose it."""
        while not self._push():
            await self._flush()
            await asyncio.sleep(AGAIN_S if self._waiting and not self._push() else 0)

    async def committed(self) -> None:
        """Return once every record is in state.db."""
        await self.handed_over()
        await self._flush()

    async def _flush(self) -> None:
        await insist(lambda: self._ledger.flush(timeout_s=ANSWER_S), "flush")

    def _push(self) -> bool:
        while self._waiting:
            try:
                self._ledger.record(self._waiting[0])
            except OutboxFull:
                return False
            self._waiting.popleft()
        return True


async def insist(ask: Callable[[], Awaitable[T]], what: str) -> T:
    """Ask until there is an answer; raises only what asking again cannot change."""
    while True:
        try:
            return await ask()
        except CoveyError as failed:
            if not failed.retryable:
                raise
            log.warning("ledger_asked_again request=%s problem=%s", what, failed)
        await asyncio.sleep(AGAIN_S)
