"""The connection to state.db: bound to its thread and process, WAL, synchronous FULL, no cursor ever left open.

What apsw does not guard any more is guarded here: a forked child that used its parent's connection wrote without an
error. All errors of SQLite leave this module as a `StoreError`, except those that concern one statement's values.
"""

from __future__ import annotations

import ctypes
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
from .identity import Identity
from .schema import APPLICATION_ID

Value = int | float | str | bytes | None
Row = tuple[Value, ...]

UNFIT: Final = (OverflowError, UnicodeEncodeError, apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError)
"""A statement's values do not fit; the statement changed nothing and the transaction goes on."""

BUSY_TIMEOUT_MS: Final = 1000
JOURNAL_SIZE_LIMIT: Final = 32 << 20
_PROGRESS_STEPS: Final = 10_000


class TooSlow(Exception):
    """A statement was stopped at its deadline."""


class Database:
    """One connection. Owned by the thread that opened it; anything else that touches it is refused."""

    def __init__(self, path: Path) -> None:
        """Open or create the file (0600); raises `ForeignDatabase` and leaves the file alone if it is not ours."""
        self.path = path
        self.wal_pages = 0
        """Pages in the WAL after the last commit."""
        self._pid = os.getpid()
        self._thread = threading.get_ident()
        refuse_foreign(path)
        with _translated(path):
            self._connection = _connect(path)
        try:
            self._identity = self._identify()
        except BaseException:
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

        The file's identity is checked last, so that nothing is committed to a file that is not there any more.
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

    @contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        """Statements inside that go on beyond `seconds` from now raise `TooSlow`."""
        end = time.monotonic() + seconds
        self._connection.set_progress_handler(lambda: time.monotonic() > end, _PROGRESS_STEPS)
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
        if in_wal == moved:
            self.wal_pages = 0
        return in_wal == moved

    def close(self) -> None:
        """Close the connection. Files that are not in their place are left to whoever put others there."""
        self._guard()
        try:
            self._identity.check()
        except StoreMoved:
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._connection.close()

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
        self.wal_pages = pages
        return apsw.SQLITE_OK

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
