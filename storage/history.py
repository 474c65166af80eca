"""Restart history, read before anybody owns state.db: what an earlier root had spent when it went.

Only reads: a connection that cannot write, and the spools of dead roots, whose last records the ledger had not
committed yet (a ledger that cannot start commits nothing at all). What cannot be read is logged and counts as nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import apsw

from ..protocol.messages.ledger import ChildRestarted
from .database import BUSY_TIMEOUT_MS
from .logs import log_event
from .outbox import SUFFIX
from .queries import RESTARTS
from .rows import restart_of
from .spool import parse

MOST: Final = 1000

log = logging.getLogger(__name__)


def recent_restarts(database: Path, outbox: Path, *, role: str, since_ms: int) -> tuple[ChildRestarted, ...]:
    """Restarts since a time, oldest first, each life once; `role` is the name senders of such records have."""
    # The spools first: what is adopted meanwhile is seen twice, and not missed.
    found = {record.incarnation: record for record in _spooled(outbox, role) if record.at_ms >= since_ms}
    found.update((record.incarnation, record) for record in _stored(database, since_ms))
    return tuple(sorted(found.values(), key=lambda record: record.at_ms))


def _stored(database: Path, since_ms: int) -> list[ChildRestarted]:
    if not database.exists():
        return []
    try:
        connection = apsw.Connection(
            f"file:{quote(str(database))}?mode=ro", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
        try:
            connection.set_busy_timeout(BUSY_TIMEOUT_MS)
            return [restart_of(row) for row in connection.execute(RESTARTS, (since_ms, MOST)).fetchall()]
        finally:
            connection.close()
    except apsw.Error as error:
        # A schema from before there was a history, or a file that the ledger will have to complain about.
        log_event(log, "restart_history_unreadable", level=logging.WARNING, path=database, error=error)
        return []


def _spooled(outbox: Path, role: str) -> Iterator[ChildRestarted]:
    for path in sorted(outbox.glob(f"{role}-*{SUFFIX}")):
        try:
            content = path.read_bytes()
        except OSError:
            continue  # adopted this instant: then it is stored
        yield from (record for _, record in parse(content).entries if isinstance(record, ChildRestarted))
