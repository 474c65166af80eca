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
"""Of one statement; with 21 columns well below SQLite's 32,766 parameters."""


class Bulk:
    """One way to insert rows into one table. `conflict` is the upsert clause; the first column is never NULL."""

    def __init__(self, table: str, columns: Sequence[str], conflict: str) -> None:
        self.table, self.columns, self._conflict = table, tuple(columns), conflict
        self._sql = functools.cache(self._build)

    def insert(self, database: Database, rows: Sequence[Row]) -> None:
        """Insert the rows in their order; if one does not fit (`UNFIT`), none of its part of `MAX_ROWS` is."""
        for start in range(0, len(rows), MAX_ROWS):
            part = rows[start : start + MAX_ROWS]
            count = 1 << (len(part) - 1).bit_length()
            values: list[Value] = [value for row in part for value in row]
            values += [None] * ((count - len(part)) * len(self.columns))
            database.execute(self._sql(count), values)

    def _build(self, count: int) -> str:
        row = f"({', '.join('?' * len(self.columns))})"
        rows = ", ".join([row] * count)
        return (
            f"INSERT INTO {self.table} ({', '.join(self.columns)}) "
            f"SELECT * FROM (VALUES {rows}) WHERE column1 IS NOT NULL {self._conflict}"
        )
