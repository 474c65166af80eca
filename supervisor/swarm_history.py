"""How a swarm goes, told to the ledger: its beginning, its tasks, its end.

Only history: a ledger that takes nothing now costs these records, and the swarm nothing.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from ..protocol.errors import CoveyError
from ..protocol.ids import AgentId, SessionId, SwarmId
from ..protocol.messages.fleet import AgentResult, AgentState
from ..protocol.messages.ledger import LedgerRecord, SwarmEnded, SwarmOpened, TaskEnded, TaskStarted


class SwarmHistory:
    """Entered when the swarm begins. It ends `done` if every task did, `failed` if one did not, else `stopped`."""

    def __init__(self, record: Callable[[LedgerRecord], None], tasks: int) -> None:
        self.swarm = SwarmId(f"swarm_{secrets.token_hex(6)}")
        self._record, self._tasks = record, tasks
        self._ended = self._done = 0

    def __enter__(self) -> Self:
        """Tell the beginning."""
        self._tell(SwarmOpened(swarm=self.swarm, source="swarm", tasks=self._tasks, at_ms=_now_ms()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Tell the end."""
        outcome = "stopped" if self._ended < self._tasks else "done" if self._done == self._tasks else "failed"
        self._tell(SwarmEnded(swarm=self.swarm, outcome=outcome, at_ms=_now_ms()))

    def started(self, number: int, goal: str, agent: AgentId, session: SessionId) -> None:
        """A task has its agent."""
        self._tell(
            TaskStarted(swarm=self.swarm, index=number, goal=goal, session=session, agent=agent, at_ms=_now_ms())
        )

    def ended(self, number: int, result: AgentResult) -> None:
        """A task is over."""
        self._ended += 1
        self._done += result.outcome is AgentState.DONE
        outcome, error = result.outcome.value, result.error
        self._tell(TaskEnded(swarm=self.swarm, index=number, outcome=outcome, error=error, at_ms=_now_ms()))

    def _tell(self, record: LedgerRecord) -> None:
        with suppress(CoveyError):
            self._record(record)


def _now_ms() -> int:
    return int(time.time() * 1000)
