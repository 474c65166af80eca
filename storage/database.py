"""The connection to state.db: bound to its thread and process, WAL, synchronous FULL, no cursor ever left open.

What apsw does not guard any more is guarded here: a forked child that used its parent's connection wrote without an
error. All errors of SQLite leave this module as a `StoreError`, except those that concern one statement's values.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

import apsw

from ..protocol.errors import ForeignDatabase, StoreDamaged, StoreError, StoreMoved
from .faults import store_error
from .identity import Identity, wal_size
from .logs import log_event
from .schema import APPLICATION_ID

Value = int | float | str | bytes | None
Row = tuple[Value, ...]

UNFIT: Final = (OverflowError, UnicodeEncodeError, apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError)
"""A statement's values do not fit; the statement changed nothing and the transaction goes on."""

BUSY_TIMEOUT_MS: Final = 1000
JOURNAL_SIZE_LIMIT: Final = 32 << 20
_FRAME_BYTES: Final = 4096 + 24
_PROGRESS_STEPS: Final = 10_000
_PROGRESS_PAGES: Final = 200
"""A check counts pages, not steps: 10,000 of a cold file took 0.7 s."""


log = logging.getLogger(__name__)


class TooSlow(Exception):
    """A statement was stopped at its deadline."""


class Database:
    """One connection. Owned by the thread that opened it; anything else that touches it is refused."""

    def __init__(self, path: Path) -> None:
        """Open or create the file (0600); raises `ForeignDatabase` and leaves the file alone if it is not ours."""
        self.path = path
        self.wal_pages = 0
        """Pages in the WAL after the last commit, at the start as many as it may hold; 0 once all are moved."""
        self.moved_pages = 0
        """So many of them are in the database already, but still in the way."""
        self._pid = os.getpid()
        self._thread = threading.get_ident()
        refuse_foreign(path)
        with _translated(path):
            self._connection = _connect(path)
        try:
            self._identity = self._identify()
            self._require_ours()
        except BaseException:
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self._connection.close()
            raise

    def use_wal(self) -> None:
        """Switch to WAL and to the pragmas of a writer that must not lose what it acknowledged."""
        mode = self.execute("PRAGMA journal_mode = WAL")[0][0]
        if mode != "wal":
            raise StoreError(f"{self.path} cannot use a WAL here (journal mode {mode!s}); put it on a local disk")
        self.execute("PRAGMA synchronous = FULL")
        self.execute(f"PRAGMA journal_size_limit = {JOURNAL_SIZE_LIMIT}")
        self._connection.wal_autocheckpoint(0)
        self._connection.set_wal_hook(self._count_wal)
        self.wal_pages = wal_size(self.path) // _FRAME_BYTES

    def execute(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        """Run one statement and return all its rows."""
        self._guard()
        try:
            return self._connection.execute(sql, values).fetchall()
        except UNFIT:
            raise
        except apsw.InterruptError:
            raise TooSlow from None
        except apsw.Error as error:
            raise store_error(error, self.path, self._connection.system_errno) from error

    def number(self, sql: str, values: Sequence[Value] = ()) -> int:
        """Run a statement that returns one number."""
        found = self.execute(sql, values)[0][0]
        assert isinstance(found, int), "the statement returns one integer"
        return found

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write under the write lock; commits on leaving, or rolls back if anything was raised.

        The files' identity is checked last, so that nothing is committed to a file that is not there any more; and
        again after that: what was committed while they were exchanged went to the wrong one, and counts as not done.
        """
        self.check()
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.check()
            self.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        self.check()

    @contextmanager
    def deadline(self, seconds: float, *, is_check: bool = False) -> Iterator[None]:
        """Statements inside that go on beyond `seconds` from now raise `TooSlow`."""
        end = time.monotonic() + seconds
        steps = _PROGRESS_PAGES if is_check else _PROGRESS_STEPS
        self._connection.set_progress_handler(lambda: time.monotonic() > end, steps)
        try:
            yield
        finally:
            self._connection.set_progress_handler(None)

    def check(self) -> None:
        """Raise `StoreMoved` if a file of this database is not in its place."""
        self._guard()
        self._identity.check()

    def quick_check(self) -> None:
        """Raise `StoreDamaged` if SQLite finds the file malformed."""
        finding = self.execute("PRAGMA quick_check(1)")[0][0]
        if finding != "ok":
            raise StoreDamaged(str(self.path), str(finding))

    def checkpoint(self, *, truncate: bool) -> bool:
        """Move the WAL into the database, as far as readers let us; whether all of it was moved."""
        self.check()
        mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if truncate else apsw.SQLITE_CHECKPOINT_PASSIVE
        # Readers are not worth waiting for: there is a next time.
        self._connection.set_busy_timeout(0)
        try:
            in_wal, moved = self._connection.wal_checkpoint("main", mode)
        except apsw.BusyError:
            return False
        except apsw.Error as error:
            raise store_error(error, self.path, self._connection.system_errno) from error
        finally:
            self._connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        self._identity.settle()
        self.moved_pages = moved
        if in_wal == moved:
            self.wal_pages = self.moved_pages = 0
        return in_wal == moved

    def set_aside(self) -> list[str]:
        """Keep our WAL away from a database that was put in the place of ours; the new names of what was moved.

        Nothing is to be written any more after that.
        """
        self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        return self._identity.set_aside()

    def helped(self, in_wal: int, moved: int) -> None:
        """Somebody else has moved so many pages of so many in the WAL; commits may have begun it anew since."""
        self._identity.settle()
        if self.wal_pages >= in_wal:
            self.moved_pages = moved

    def close(self) -> None:
        """Close the connection. Files that are not in their place are left to whoever put others there."""
        self._guard()
        try:
            self._identity.check()
        except StoreMoved:
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        try:
            self._connection.close()
        except apsw.Error as error:
            # Of the last checkpoint: what it did not move is in the WAL, and there for the next one who opens.
            log_event(log, "checkpoint_at_close_failed", level=logging.ERROR, path=self.path, error=error)

    def _guard(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError(
                f"{self.path} was opened by process {self._pid}; a forked child opens nothing of its parent"
            )
        assert threading.get_ident() == self._thread, "the connection belongs to one thread"

    def _roll_back(self) -> None:
        # SQLite has rolled back by itself after most I/O errors.
        if os.getpid() == self._pid and self._connection.in_transaction:
            self.execute("ROLLBACK")

    def _count_wal(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        if pages < self.wal_pages:
            self.moved_pages = 0  # all had been moved, and the WAL begins anew
        self.wal_pages = pages
        return apsw.SQLITE_OK

    def _require_ours(self) -> None:
        found = self.number("PRAGMA application_id")
        if found != APPLICATION_ID and (found or self.execute("SELECT 1 FROM sqlite_schema LIMIT 1")):
            raise ForeignDatabase(str(self.path))

    def _identify(self) -> Identity:
        identity = Identity(self.path)
        identity.check()
        # The name was looked up twice, by SQLite and for the identity: only SQLite can say whether it was the same.
        moved = ctypes.c_int(0)
        self._connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(moved))
        if moved.value:
            raise StoreMoved(str(self.path), "was replaced")
        return identity


def refuse_foreign(path: Path) -> None:
    """Raise `ForeignDatabase` if `path` holds anything but a database of ours; nothing is written, not even a WAL."""
    try:
        if os.stat(path).st_size == 0:
            return
    except FileNotFoundError:
        return
    # Immutable: neither a lock nor a recovery. Our id is in the file itself from the first commit on.
    probe = apsw.Connection(
        f"file:{quote(str(path))}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )
    try:
        found = probe.execute("PRAGMA application_id").fetchall()[0][0]
        is_empty = found == 0 and not probe.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
    except apsw.NotADBError:
        raise ForeignDatabase(str(path)) from None
    except apsw.CorruptError as error:
        # Whoever was killed in a checkpoint left half of it in the file and all of it in the WAL: sound together.
        if wal_size(path):
            return
        raise store_error(error, path, probe.system_errno) from error
    except apsw.Error as error:
        raise store_error(error, path, probe.system_errno) from error
    finally:
        probe.close()
    if found != APPLICATION_ID and not is_empty:
        raise ForeignDatabase(str(path))


def _connect(path: Path) -> apsw.Connection:
    # WAL and shared memory take the database's mode. Others of this process only get less for this instant.
    before = os.umask(0o077)
    try:
        connection = apsw.Connection(str(path))
    finally:
        os.umask(before)
    os.chmod(path, 0o600)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    for option in (apsw.SQLITE_DBCONFIG_DQS_DML, apsw.SQLITE_DBCONFIG_DQS_DDL, apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA):
        connection.config(option, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    for pragma in ("foreign_keys = ON", "recursive_triggers = ON", "mmap_size = 0", "cache_size = -16384"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise store_error(error, path, 0) from error
