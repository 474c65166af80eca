"""A look at state.db by somebody who does not own it: reads, and leaves no trace.

Only for processes that have nothing to do with the ledger's: whoever opens and closes the file inside the owner's
process takes the owner's locks away.
"""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import quote

import apsw
import msgspec

from ..protocol.errors import StoreError
from .database import refuse_foreign
from .migrations import LADDER
from .ownership import read_owner

CHECK_S: Final = 0.3
_STEPS: Final = 10_000


class Condition(StrEnum):
    """How a database that nobody has open looks."""

    ABSENT = "absent"
    SOUND = "sound"
    UNCHECKED = "unchecked"
    """It was not read to its end: it is large, or its WAL was left behind and belongs to the next ledger."""
    TOO_NEW = "too_new"
    FOREIGN = "foreign"
    DAMAGED = "damaged"
    OWNED = "owned"
    """A ledger has it open: ask that one."""


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """What was found; `detail` is for people."""

    condition: Condition
    detail: str = ""


def inspect(path: Path, *, deadline_s: float = CHECK_S) -> Inspection:
    """Look at the database file `path` within about `deadline_s`; never writes, not even a WAL or a lock."""
    if read_owner(path) is not None:
        return Inspection(condition=Condition.OWNED)
    try:
        if path.stat().st_size == 0:
            return Inspection(condition=Condition.SOUND, detail="empty")
        refuse_foreign(path)
        found = _check(path, deadline_s)
    except FileNotFoundError:
        return Inspection(condition=Condition.ABSENT)
    except StoreError as error:
        found = Inspection(condition=Condition.FOREIGN, detail=str(error))
    except OSError as error:
        found = Inspection(condition=Condition.DAMAGED, detail=f"{path} cannot be read: {error.strerror}")
    # What was read while a ledger began to write says nothing.
    return Inspection(condition=Condition.OWNED) if read_owner(path) is not None else found


def _check(path: Path, deadline_s: float) -> Inspection:
    wal = Path(f"{path}-wal")
    if wal.exists() and wal.stat().st_size > 0:
        # Only recovery makes file and WAL one database again, and recovery writes.
        return Inspection(
            condition=Condition.UNCHECKED, detail="its WAL is left from a crash; the next ledger takes it in"
        )
    connection = apsw.Connection(
        f"file:{quote(str(path))}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )
    try:
        end = time.monotonic() + deadline_s
        connection.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
        version = connection.execute("PRAGMA user_version").fetchall()[0][0]
        assert isinstance(version, int), "SQLite keeps it as a number"
        if version > len(LADDER):
            detail = f"schema version {version}, this covey knows {len(LADDER)}"
            return Inspection(condition=Condition.TOO_NEW, detail=detail)
        finding = connection.execute("PRAGMA quick_check(1)").fetchall()[0][0]
    except apsw.InterruptError:
        return Inspection(condition=Condition.UNCHECKED, detail=f"larger than what can be read in {deadline_s:g} s")
    except apsw.Error as error:
        return Inspection(condition=Condition.DAMAGED, detail=str(error))
    finally:
        connection.close()
    if finding != "ok":
        return Inspection(condition=Condition.DAMAGED, detail=str(finding))
    return Inspection(condition=Condition.SOUND)
