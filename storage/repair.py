"""Repair of a state.db that nobody has open: the least that makes it sound, in bounded time, on a copy.

The originals are copied aside first and are never removed. Then, each step only if the one before did not suffice:
take in the WAL; give the file its header back; build the indexes anew; carry over row by row what can be read. What
comes out is checked from end to end before it takes the place of the original.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Final

import apsw
import msgspec

from ..protocol.errors import ForeignDatabase, SchemaTooNew, StoreDamaged, StoreError
from .checkup import row_counts
from .database import TooSlow
from .faults import store_error
from .locks import FileLock
from .migrations import LADDER
from .originals import all_bytes, copy_files, part_of, put_in_place, put_part, require_room, sync
from .ownership import own
from .readonly import Reader, findings, quoted
from .salvage import Saved, salvage
from .schema import APPLICATION_ID

DEADLINE_S: Final = 600.0
MAX_FINDINGS: Final = 20
BOOKKEEPING: Final = ("meta", "inbox")

_CONSTANT_HEADER: Final = bytes.fromhex("53514c69746520666f726d61742033001000020200402020")
"""The first 24 bytes of every database of ours: 4096 bytes a page, WAL, nothing reserved."""
_MODE_AT: Final = 18
_PAGES_AT: Final = 28
_VERSION_AT: Final = 60


class How(StrEnum):
    """What made it sound."""

    SOUND = "sound"
    """Nothing: it was."""
    REPLAYED = "replayed"
    """Taking in the WAL that was left behind."""
    REBUILT = "rebuilt"
    """Building its indexes anew; no row was lost."""
    SALVAGED = "salvaged"
    """Carrying over what could be read."""


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, done, kept and lost."""

    path: str
    how: How
    originals: str | None
    """The folder with the files as they were; None if they were left alone."""
    findings: tuple[str, ...]
    """What was wrong, the first few lines."""
    tables: tuple[Saved, ...]
    """Only after a salvage."""
    rows: dict[str, int]
    took_s: float


class _Work:
    """One attempt: the folder it happens in, what was tried, and when it has to end."""

    def __init__(self, database: Path, folder: Path, deadline_s: float, on_step: Callable[[str], None]) -> None:
        self.database, self.folder, self.on_step = database, folder, on_step
        self.end = time.monotonic() + deadline_s
        self.copy = folder / database.name

    def left_s(self) -> float:
        left = self.end - time.monotonic()
        if left <= 0:
            raise TooSlow
        return left


def repair(
    database: Path, *, deadline_s: float = DEADLINE_S, on_step: Callable[[str], None] = lambda step: None
) -> Repaired:
    """Make the database sound. `on_step` hears in a few words what is done.

    Raises `AlreadyRunning` if a ledger has it open, `ForeignDatabase`, `SchemaTooNew`, `StoreFull`; `StoreDamaged` if
    nothing came out that is sound, `TooSlow` at the deadline. The database is then as it was; copied originals stay.
    """
    if not database.exists():
        raise StoreError(f"{database} does not exist; there is nothing to repair")
    began = time.monotonic()
    lock: FileLock = own(database)
    try:
        on_step("checking")
        _refuse(database)
        found = _wrong_with(database, deadline_s)
        if not found and (_is_ours(database) or not all_bytes(database)):
            return _report(database, began, How.SOUND)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime())
        originals = _new_folder(database, f"damaged-{stamp}")
        # Originals, the working copy, and a fresh database that may need a WAL of its own.
        require_room(database.parent, 4 * all_bytes(database))
        on_step(f"copying the originals to {originals}")
        copy_files(database, originals)
        sync(originals.parent)
        folder = _new_folder(database, f"repair-{stamp}")
        try:
            work = _Work(database, folder, deadline_s, on_step)
            copy_files(database, folder)
            how, fresh, tables = _mend(work)
            work.left_s()
            sync(fresh)
            put_in_place(fresh, database)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return _report(database, began, how, originals=originals, found=found, tables=tables)
    finally:
        lock.close()


def _report(
    database: Path,
    began: float,
    how: How,
    *,
    originals: Path | None = None,
    found: tuple[str, ...] = (),
    tables: tuple[Saved, ...] = (),
) -> Repaired:
    with Reader(database) as reader:
        rows = row_counts(reader)
    return Repaired(
        path=str(database),
        how=how,
        originals=str(originals) if originals is not None else None,
        findings=found[:MAX_FINDINGS],
        tables=tables,
        rows=rows,
        took_s=round(time.monotonic() - began, 3),
    )


# --- before anything is touched --------------------------------------------------------------------------------------


def _refuse(database: Path) -> None:
    """Raise for a file that is not ours, or of a newer covey; what is too damaged to say so may be ours."""
    try:
        with Reader(database) as reader:
            version = reader.number("PRAGMA user_version")
            if reader.number("PRAGMA application_id") not in (APPLICATION_ID, 0):
                raise ForeignDatabase(str(database))
            if not _is_ours(database) and reader.tables() and not findings(reader, is_full=False, most=1):
                raise ForeignDatabase(str(database))
    except StoreDamaged:
        return
    if version > len(LADDER):
        raise SchemaTooNew(str(database), version, len(LADDER))


def _is_ours(database: Path) -> bool:
    try:
        with Reader(database) as reader:
            return reader.number("PRAGMA application_id") == APPLICATION_ID
    except StoreError:
        return False


def _wrong_with(database: Path, deadline_s: float | None) -> tuple[str, ...]:
    try:
        with Reader(database) as reader, reader.deadline(deadline_s):
            return findings(reader, is_full=True)
    except StoreDamaged as error:
        return (error.finding,)


def _new_folder(database: Path, what: str) -> Path:
    for number in range(1, 100):
        folder = database.with_name(f"{database.name}.{what}" + (f"-{number}" if number > 1 else ""))
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            return folder
    raise StoreError(f"{database.parent} is full of folders of earlier repairs; move them away")


# --- the steps -------------------------------------------------------------------------------------------------------


def _mend(work: _Work) -> tuple[How, Path, tuple[Saved, ...]]:
    for says, step, how in _gentle_steps(work):
        work.on_step(says)
        with suppress(StoreError):
            step(work)
            if _is_sound(work):
                return how, work.copy, ()
    work.on_step("carrying over row by row what can be read")
    fresh = work.folder / "fresh.db"
    saved = salvage(work.copy, fresh, version=_version(work.copy), deadline_s=work.left_s())
    if not any(table.rows for table in saved if table.table not in BOOKKEEPING):
        raise StoreDamaged(str(work.database), "no row can be read any more")
    if found := _wrong_with(fresh, work.left_s()):
        raise StoreDamaged(str(work.database), f"what was carried over is not sound: {found[0]}")
    return How.SALVAGED, fresh, saved


def _gentle_steps(work: _Work) -> Iterator[tuple[str, Callable[[_Work], None], How]]:
    yield "taking in the WAL", _take_in_the_wal, How.REPLAYED
    if part_of(work.copy, 0, len(_CONSTANT_HEADER))[:_MODE_AT] != _CONSTANT_HEADER[:_MODE_AT]:
        yield "giving the file its header back", _give_the_header_back, How.REBUILT
    yield "building the indexes anew", _build_the_indexes_anew, How.REBUILT


def _take_in_the_wal(work: _Work) -> None:
    with _writing(work) as connection:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()


def _give_the_header_back(work: _Work) -> None:
    put_part(work.copy, 0, _CONSTANT_HEADER)
    # No number of pages: SQLite then goes by the size of the file.
    put_part(work.copy, _PAGES_AT, bytes(4))
    _take_in_the_wal(work)


def _build_the_indexes_anew(work: _Work) -> None:
    with _writing(work) as connection:
        connection.execute("REINDEX").fetchall()
        names = connection.execute("SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE%fts5%'")
        for (name,) in names.fetchall():
            table = quoted(str(name))
            connection.execute(f"INSERT INTO {table} ({table}) VALUES ('rebuild')").fetchall()


@contextmanager
def _writing(work: _Work) -> Iterator[apsw.Connection]:
    """A connection to the working copy; on leaving, its WAL is taken in."""
    end = time.monotonic() + work.left_s()
    connection: apsw.Connection | None = None
    try:
        connection = apsw.Connection(str(work.copy), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_progress_handler(lambda: time.monotonic() > end, 20_000)
        yield connection
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except apsw.InterruptError:
        raise TooSlow from None
    except apsw.Error as error:
        raise store_error(error, work.copy, 0) from error
    finally:
        if connection is not None:
            connection.close(True)


def _is_sound(work: _Work) -> bool:
    return _is_ours(work.copy) and not _wrong_with(work.copy, work.left_s())


def _version(copy: Path) -> int:
    """The schema version as the header has it; one that makes no sense counts as the newest."""
    found = int.from_bytes(part_of(copy, _VERSION_AT, 4), "big")
    return found if 0 < found <= len(LADDER) else len(LADDER)
