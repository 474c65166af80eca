"""Upkeep of a state.db that nobody has open: giving back the room that is not used any more."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from ..protocol.errors import SchemaTooNew, StoreError
from .database import Database
from .identity import size
from .migrations import LADDER
from .originals import require_room
from .ownership import own


class Vacuumed(msgspec.Struct, frozen=True, kw_only=True):
    """How large the file was and is."""

    path: str
    bytes_before: int
    bytes_after: int
    took_s: float


def vacuum(path: Path) -> Vacuumed:
    """Write the database anew without gaps; it is whole at every moment, whoever is killed.

    Raises `AlreadyRunning` if a ledger has it open, `StoreDamaged` (nothing is changed then), `StoreFull` or another
    `StoreError`.
    """
    if not path.exists():
        raise StoreError(f"{path} does not exist; there is nothing to vacuum")
    began = time.monotonic()
    lock = own(path)
    try:
        before = size(path)
        # The new database grows beside the old one, then travels through the WAL.
        require_room(path.parent, 2 * before)
        _vacuum(path)
        return Vacuumed(
            path=str(path),
            bytes_before=before,
            bytes_after=size(path),
            took_s=round(time.monotonic() - began, 3),
        )
    finally:
        lock.close()


def _vacuum(path: Path) -> None:
    database = Database(path)
    try:
        if (found := database.number("PRAGMA user_version")) > len(LADDER):
            raise SchemaTooNew(str(path), found, len(LADDER))
        database.use_wal()
        database.quick_check()
        database.execute("VACUUM")
        database.checkpoint(truncate=True)
    finally:
        database.close()
