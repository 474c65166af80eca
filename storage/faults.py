"""What SQLite's errors mean for us: whose move it is."""

from __future__ import annotations

from pathlib import Path

import apsw

from ..protocol.errors import StoreDamaged, StoreError, StoreFull
from .outbox import NO_ROOM


def store_error(error: apsw.Error, path: Path, system_errno: int) -> StoreError:
    """Return the error to raise for `error`; `system_errno` is the connection's last one."""
    match error:
        case apsw.FullError():
            return _full(path)
        case apsw.IOError() if system_errno in NO_ROOM:
            return _full(path)
        case apsw.CorruptError() | apsw.NotADBError():
            return StoreDamaged(str(path), str(error))
        case _:
            return StoreError(f"{path}: {type(error).__name__}: {error}")


def _full(path: Path) -> StoreFull:
    return StoreFull(f"no room left for {path}; free some, records wait until then")
