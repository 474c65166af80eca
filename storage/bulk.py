"""Inserts of many rows by one statement.

Every call into SQLite gives up the interpreter's lock and has to win it back: next to a busy thread, 256 rows one by
one took 270 ms, by four statements 27 ms. So a batch is one statement per table. Its row count is rounded up to a
power of two, to keep the number of prepared statements small; rows of NULLs fill it and are filtered out.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final

from .database import Database, Row, Value

MAX_ROWS: Final = 512
"""Of one statement; with 32 columns well below SQLite's 32,766 parameters."""
KEPT_SQL: Final = 16_384
"""apsw keeps no longer text prepared. To parse 512 rows anew took as long as to insert them."""
_SIZES: Final = tuple(MAX_ROWS >> shift for shift in range(MAX_ROWS.bit_length()))


class Bulk:
    """One way to insert rows into one table. `conflict` is the upsert clause; the first column is never NULL."""

    def __init__(self, table: str, columns: Sequence[str], conflict: str) -> None:
        self.table, self.columns, self._conflict = table, tuple(columns), conflict
        self._sql = functools.cache(self._build)
        self.most = next(rows for rows in _SIZES if rows == 1 or len(self._build(rows)) < KEPT_SQL)
        """Rows of one statement at most."""

    def insert(self, database: Database, rows: Sequence[Row]) -> None:
        """Insert the rows in their order; if one does not fit (`UNFIT`), none of its part of `most` is."""
        for start in range(0, len(rows), self.most):
            part = rows[start : start + self.most]
            count = 1 << (len(part) - 1).bit_length()
            values: list[Value] = [value for row in part for value in row]
            values += [None] * ((count - len(part)) * len(self.columns))
            database.execute(self._sql(count), values)

    def _build(self, count: int) -> str:
        row = f"({','.join('?' * len(self.columns))})"
        rows = ",".join([row] * count)
        return (
            f"INSERT INTO {self.table} ({', '.join(self.columns)}) "
            f"SELECT * FROM (VALUES {rows}) WHERE column1 IS NOT NULL {self._conflict}"
        )
