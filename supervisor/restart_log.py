"""The restart log: what restarts cost, told to the ledger, so that a root that is started again grants no amnesty."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ..protocol.errors import AlreadyRunning, CoveyError, OutboxFull
from ..protocol.ids import Incarnation
from ..protocol.messages.ledger import ChildRestarted
from ..storage.history import recent_restarts
from ..storage.logs import log_event
from ..storage.outbox import Outbox
from .exits import ExitReason, words
from .home import Home
from .link import Link
from .records import Records
from .restarts import Spent, ages_to_times
from .spec import Plan

log = logging.getLogger(__name__)

ROLE = "root"
CLOSE_S = 0.5


def read_past(home: Home, plan: Plan, *, wall_ms: int, now: float) -> Mapping[str, Spent]:
    """When earlier roots of this home restarted which child, in our monotonic time, as far as limits still count it."""
    limits = (plan.spec.limit, *(child.limit for child in plan.spec.children))
    since_ms = wall_ms - int(max(limit.within_s for limit in limits) * 1000)
    stamps: dict[str, list[int]] = {}
    for record in recent_restarts(home.state_db, home.outbox, role=ROLE, since_ms=since_ms):
        stamps.setdefault(record.child, []).append(record.at_ms)
    past = {child: ages_to_times(found, wall_ms=wall_ms, now=now) for child, found in stamps.items()}
    if past:
        log_event(log, "restarts_remembered", **{child: len(spent) for child, spent in past.items()})
    return past


class RestartLog:
    """Keeps the charged restarts of this root's life. Owned by the root's loop thread.

    Each is in a spool before `record` returns, so a root that is killed, or whose ledger does not come up, has told
    its successor all the same. Without room for that the fleet goes on, and says so in the log.
    """

    def __init__(self, home: Home, ledger: Link, incarnation: Incarnation) -> None:
        self._records: Records | None = None
        try:
            self._records = Records(ledger, Outbox(home.outbox, role=ROLE, incarnation=incarnation))
        except (OutboxFull, AlreadyRunning) as error:
            log_event(log, "restart_log_missing", level=logging.ERROR, error=error)

    def record(self, child: str, ended: Incarnation, reason: ExitReason, *, wall_ms: int) -> None:
        """Keep one restart."""
        if self._records is None:
            return
        try:
            self._records.record(ChildRestarted(child=child, incarnation=ended, reason=words(reason), at_ms=wall_ms))
        except CoveyError as error:
            log_event(log, "restart_not_kept", level=logging.ERROR, child=child, error=error)

    async def close(self) -> None:
        """What the ledger has not committed by now is its successor's to adopt."""
        if self._records is not None:
            await self._records.close(timeout_s=CLOSE_S if self._records.backlog else 0.0)
