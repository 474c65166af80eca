"""When to move the WAL into the database. Pure: the caller passes the times."""

from __future__ import annotations

from enum import Enum
from typing import Final

FORCED_PAGES: Final = 2048
"""8 MiB of WAL: a checkpoint happens although records wait; they wait some 20 ms for it."""
WORTHWHILE_PAGES: Final = 256
PASSIVE_IDLE_S: Final = 0.05
TRUNCATE_IDLE_S: Final = 2.0
RETRY_S: Final = 0.25


class Checkpoint(Enum):
    """Which one is due."""

    PASSIVE = "passive"
    TRUNCATE = "truncate"


def due(*, wal_pages: int, wal_bytes: int, idle_s: float, since_last_s: float) -> Checkpoint | None:
    """Return what is due: the small ones while nobody waits, a forced one when the WAL has grown."""
    if since_last_s < RETRY_S:
        return None
    if wal_bytes and idle_s >= TRUNCATE_IDLE_S:
        return Checkpoint.TRUNCATE
    if wal_pages >= FORCED_PAGES or (wal_pages >= WORTHWHILE_PAGES and idle_s >= PASSIVE_IDLE_S):
        return Checkpoint.PASSIVE
    return None
