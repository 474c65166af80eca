"""What SQLite's errors mean for us: whose move it is, and whether the file may be written to ever again."""

from __future__ import annotations

import errno
from pathlib import Path

import apsw

from ..protocol.errors import StoreBroken, StoreDamaged, StoreError, StoreFull, StoreMoved, StoreReadOnly
from .outbox import NO_ROOM


def is_lasting(error: StoreError) -> bool:
    """Whether nothing more is to be written to this file by whoever has it open: only a new start looks at it again.

    A disk that failed to sync may have dropped what it should have written, and a second sync would not say so.
    """
    return isinstance(error, StoreMoved | StoreDamaged | StoreBroken)


def store_error(error: apsw.Error, path: Path, system_errno: int) -> StoreError:
    """Return the error to raise for `error`; `system_errno` is the connection's last one."""
    match error:
        case apsw.FullError():
            return _full(path)
        case apsw.ReadOnlyError():
            return StoreReadOnly(str(path))
        case apsw.IOError() if system_errno in NO_ROOM:
            return _full(path)
        case apsw.IOError() if system_errno == errno.EROFS:
            return StoreReadOnly(str(path))
        case apsw.IOError():
            return StoreBroken(str(path), str(error))
        case apsw.CorruptError() | apsw.NotADBError():
            return StoreDamaged(str(path), str(error))
        case _:
            return StoreError(f"{path}: {type(error).__name__}: {error}")


def _full(path: Path) -> StoreFull:
    return StoreFull(f"no room left for {path}; free some, records wait until then")
