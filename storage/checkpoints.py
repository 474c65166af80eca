"""When to move the WAL into the database, and who does it. Pure: the caller passes the times.

A helper with a connection of its own moves pages while commits go on beside it. Under load it never gets to the end of
the WAL, which is where it begins anew; so when it has grown, the writer itself moves the few that are left.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

FORCED_PAGES: Final = 4096
"""16 MiB of WAL: the writer finishes what the helper has left …"""
FEW_PAGES: Final = 1024
"""… once that is so little; records wait for it."""
WORTHWHILE_PAGES: Final = 256
TRUNCATE_IDLE_S: Final = 2.0
RETRY_S: Final = 0.25
LARGE_BYTES: Final = 64 << 20
"""Something reads for long and holds up every checkpoint: a person has to know."""


class Checkpoint(Enum):
    """Which one is due."""

    HELPER = "helper"
    """Move what can be moved, beside the commits."""
    FINISH = "finish"
    """Move the rest, between two commits."""
    TRUNCATE = "truncate"
    """All is moved: cut the WAL to nothing. Nobody waits, and who comes in that moment does not wait for long."""


def due(
    *, wal_pages: int, moved_pages: int, wal_bytes: int, idle_s: float, since_last_s: float, has_helped: bool
) -> Checkpoint | None:
    """Return what is due, while no helper is at work; `has_helped` right after one has ended."""
    left = wal_pages - moved_pages
    is_grown = wal_pages >= FORCED_PAGES
    if has_helped and is_grown and left <= FEW_PAGES:
        return Checkpoint.FINISH
    if since_last_s < RETRY_S:
        return None
    if wal_bytes and idle_s >= TRUNCATE_IDLE_S:
        return Checkpoint.HELPER if left > 0 else Checkpoint.TRUNCATE
    if left >= WORTHWHILE_PAGES:
        return Checkpoint.HELPER
    return Checkpoint.FINISH if is_grown and left else None
