"""A connection that cannot write: to a state.db that a ledger may have open, or to a database of another program.

For processes that have nothing to do with the ledger's. It takes part in SQLite's locking and reads the WAL, so what
it sees is one state of a database that others write. Nothing is changed in the file; beside one in WAL mode that nobody
has open, an empty WAL and the shared memory may be left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

import apsw

from ..protocol.errors import ForeignDatabase, StoreDamaged, StoreError
from .database import BUSY_TIMEOUT_MS, Row, TooSlow, Value
from .faults import store_error
from .schema import APPLICATION_ID

_STEPS: Final = 20_000
_READ_ONLY: Final = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI


class Reader:
    """One read-only connection. Owned by the thread that opened it; no cursor is left open between two calls."""

    def __init__(self, path: Path, *, is_still: bool = False, may_recover: bool = False) -> None:
        """Open a file that exists. `is_still`: nobody writes it, so neither locks nor a WAL are looked for.

        `may_recover` reads on where SQLite would refuse all of a file because a part is missing or its schema is
        malformed. Raises `StoreError`.
        """
        if not path.is_file():
            raise StoreError(f"{path} does not exist; nothing was done")
        self.path = path
        self._end = float("inf")
        self._on_step: Callable[[], None] | None = None
        mode = "immutable=1" if is_still else "mode=ro"
        try:
            self._connection = apsw.Connection(f"file:{quote(str(path))}?{mode}", flags=_READ_ONLY)
        except apsw.Error as error:
            raise store_error(error, path, 0) from error
        self._connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        # It also lets Ctrl-C in: Python hears of signals only while Python runs.
        self._connection.set_progress_handler(self._step, _STEPS)
        self._connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        if may_recover:
            self._connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
            self._connection.execute("PRAGMA writable_schema = ON").fetchall()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        """Run one statement and return all its rows; raises `StoreError`, or `TooSlow` at the deadline."""
        return list(self.each(sql, values))

    def each(self, sql: str, values: Sequence[Value] = ()) -> Iterator[Row]:
        """Yield the rows of one statement as they are read; the database is held until the last, so do not dawdle."""
        try:
            yield from self._connection.execute(sql, values)
        except apsw.InterruptError:
            raise TooSlow from None
        except apsw.Error as error:
            raise store_error(error, self.path, self._connection.system_errno) from error

    def number(self, sql: str, values: Sequence[Value] = ()) -> int:
        """Run a statement that returns one number."""
        found = self.rows(sql, values)[0][0]
        assert isinstance(found, int), "the statement returns one integer"
        return found

    def tables(self) -> tuple[str, ...]:
        """Names of the tables that hold rows of their own: neither views nor what a virtual table is made of."""
        found = self.rows("SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' ORDER BY name")
        return tuple(str(name) for (name,) in found if not str(name).startswith("sqlite_"))

    def columns(self, table: str) -> tuple[str, ...]:
        """Names of a table's columns, none if there is no such table."""
        return tuple(str(name) for (name,) in self.rows("SELECT name FROM pragma_table_info(?)", (table,)))

    def full_text_tables(self) -> tuple[str, ...]:
        """Names of the tables that are FTS5 indexes."""
        found = self.rows("SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE%fts5%' ORDER BY name")
        return tuple(str(name) for (name,) in found)

    def require_ours(self) -> None:
        """Raise `ForeignDatabase` for a database of another program, `StoreDamaged` for what is none at all."""
        if self.number("PRAGMA application_id") != APPLICATION_ID:
            raise ForeignDatabase(str(self.path))

    def forbid_writes(self) -> None:
        """Refuse every statement that would change something, on top of a file that cannot be written."""
        self._connection.execute("PRAGMA query_only = ON").fetchall()

    @contextmanager
    def deadline(self, seconds: float | None, *, on_step: Callable[[], None] | None = None) -> Iterator[None]:
        """Statements inside that go on beyond `seconds` from now raise `TooSlow`; `on_step` is called now and then."""
        self._end = time.monotonic() + seconds if seconds is not None else float("inf")
        self._on_step = on_step
        try:
            yield
        finally:
            self._end, self._on_step = float("inf"), None

    def vacuum_into(self, path: Path) -> None:
        """Write a compact copy, as of now, into the empty file `path`; readers and a writer go on meanwhile."""
        self.rows("VACUUM INTO ?", (str(path),))

    def close(self) -> None:
        """Close the connection; a second time does nothing."""
        self._connection.close()

    def _step(self) -> bool:
        if self._on_step is not None:
            self._on_step()
        return time.monotonic() > self._end


def quoted(name: str) -> str:
    """Return a name of a table or column as SQL takes it."""
    return '"' + '""'.join(name.split('"')) + '"'


def findings(reader: Reader, *, is_full: bool, most: int = 100) -> tuple[str, ...]:
    """What SQLite finds wrong with the file, at most `most` lines, none if it is sound; the quick way skips indexes."""
    pragma = "integrity_check" if is_full else "quick_check"
    try:
        said = [str(line) for (line,) in reader.rows(f"PRAGMA {pragma}({most})")]
    except StoreDamaged as error:
        return (error.finding,)
    return () if said == ["ok"] else tuple(line for text in said for line in text.splitlines())
