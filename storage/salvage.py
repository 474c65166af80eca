"""Row by row out of a damaged database into a fresh one: what can be read is kept, what cannot is counted.

First along the trees, closing in on every gap by halves, so that one bad page costs the rows on it and no others; then
over all pages (`leaves`), for rows that no tree leads to any more. The trees are believed before stray pages.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, cast

import msgspec

from ..protocol.errors import StoreError
from . import search
from .database import UNFIT, Database, Row, TooSlow, Value
from .identity import size
from .leaves import Cell, rows_of_page
from .migrations import LADDER, upgrade
from .originals import part_of
from .readonly import Reader, quoted

MAX_ERRORS: Final = 20_000
"""Of one table: after so many reads that failed, what is left of it is given up."""
BATCH: Final = 500
_INT64: Final = (1 << 63) - 1
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "INTEGER": (int,),
    "REAL": (int, float),
    "TEXT": (str,),
    "BLOB": (bytes,),
    "ANY": (int, float, str, bytes),
}


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one table."""

    table: str
    rows: int
    missing: int
    """Gaps in the numbering of the rows that were kept; where rows are never removed, these are lost."""
    unreadable: int
    """Reads that failed."""
    unfit: int
    """Rows that were read, but whose values no sound row has."""


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a fresh table."""

    name: str
    kind: str
    may_be_null: bool
    is_key: bool
    default: str | None
    """As SQL, for rows from before there was such a column."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A table to be filled; `has_rowid`: its key is the row's number."""

    name: str
    columns: tuple[Column, ...]
    has_rowid: bool


class _Tally:
    def __init__(self) -> None:
        self.unreadable = self.unfit = 0
        self.is_known = True
        """False: the schema that was read does not have this table; it may be older, or damaged."""


def salvage(damaged: Path, fresh: Path, *, version: int, deadline_s: float) -> tuple[Saved, ...]:
    """Fill a new database `fresh` of schema `version` with what can be read, then bring it to the newest schema.

    Nobody else may have either open. Raises `TooSlow` at the deadline and `StoreError`; `damaged` is only read.
    """
    end = time.monotonic() + deadline_s
    database = Database(fresh)
    try:
        upgrade(database, LADDER[:version] if 0 < version < len(LADDER) else LADDER)
        targets = [_target(database, name) for name in _names(database)]
        tallies = {target.name: _Tally() for target in targets}
        _along_the_trees(damaged, database, targets, tallies, end)
        _over_all_pages(damaged, database, targets, tallies, end)
        upgrade(database)
        _rebuild_full_text(database)
        return tuple(_saved(database, target, tallies[target.name]) for target in targets)
    finally:
        database.close()


# --- along the trees -------------------------------------------------------------------------------------------------


def _along_the_trees(
    damaged: Path, database: Database, targets: Sequence[Target], tallies: dict[str, _Tally], end: float
) -> None:
    try:
        reader = Reader(damaged, may_recover=True)
    except StoreError:
        for tally in tallies.values():
            tally.is_known = False
        return
    with reader:
        for target in targets:
            with reader.deadline(end - time.monotonic()):
                _fill(database, target, _tree_rows(reader, target, tallies[target.name]), tallies[target.name])


def _tree_rows(reader: Reader, target: Target, tally: _Tally) -> Iterator[Row]:
    try:
        there = reader.columns(target.name)
    except StoreError:
        tally.unreadable += 1
        return
    if not there:
        tally.is_known = False
        return
    chosen = ", ".join(_as_read(column, there) for column in target.columns)
    if target.has_rowid:
        yield from _between(_Span(reader, target.name, chosen, tally), -1, _INT64)
    else:
        yield from _both_ends(reader, target, chosen, tally)


def _as_read(column: Column, there: Sequence[str]) -> str:
    if column.name not in there:
        return column.default or "NULL"
    # Text that is no UTF-8 any more shall not cost its row.
    return f"CAST({quoted(column.name)} AS BLOB)" if column.kind == "TEXT" else quoted(column.name)


class _Span:
    """Reads rows of one table by their numbers, up to the first that cannot be read."""

    def __init__(self, reader: Reader, table: str, chosen: str, tally: _Tally) -> None:
        self._reader, self.tally = reader, tally
        self._sql = f"SELECT rowid, {chosen} FROM {quoted(table)} WHERE rowid > ? AND rowid < ? ORDER BY rowid"

    def read(self, low: int, high: int) -> Iterator[Row | None]:
        """Yield rowid and columns of rows strictly between; None at the end if it was damage that ended it."""
        try:
            yield from self._reader.each(self._sql, (low, high))
        except (StoreError, UnicodeDecodeError):
            self.tally.unreadable += 1
            yield None


def _between(span: _Span, low: int, high: int) -> Iterator[Row]:
    """Yield what can be read of the rows strictly between `low` and `high`, each once."""
    gaps = [(low, high)]
    while gaps and span.tally.unreadable < MAX_ERRORS:
        low, high = gaps.pop()
        for row in span.read(low, high):
            if row is not None:
                low = max(low, cast(int, row[0]))
                yield row[1:]
            elif high - low > 2:
                # Somewhere above `low` is damage; halves close in on it, and all around it is read.
                middle = low + (high - low) // 2
                gaps += [(low, middle + 1), (middle, high)]


def _both_ends(reader: Reader, target: Target, chosen: str, tally: _Tally) -> Iterator[Row]:
    """Yield rows of a small table without row numbers, some twice."""
    keys = [quoted(column.name) for column in target.columns if column.is_key]
    for order in ("ASC", "DESC"):
        by = ", ".join(f"{key} {order}" for key in keys)
        try:
            yield from reader.each(f"SELECT {chosen} FROM {quoted(target.name)} ORDER BY {by}")
        except StoreError:
            tally.unreadable += 1
        else:
            return


# --- over all pages --------------------------------------------------------------------------------------------------


def _over_all_pages(
    damaged: Path, database: Database, targets: Sequence[Target], tallies: dict[str, _Tally], end: float
) -> None:
    needed = [target for target in targets if target.has_rowid and _may_be_missed(tallies[target.name])]
    if not needed:
        return
    page_bytes = database.number("PRAGMA page_size")

    def page(number: int) -> bytes:
        return part_of(damaged, (number - 1) * page_bytes, page_bytes)

    strays: dict[str, list[Row]] = {target.name: [] for target in needed}
    for number in range(1, size(damaged) // page_bytes + 1):
        if time.monotonic() > end:
            raise TooSlow
        for rowid, cells in rows_of_page(number, page, page_bytes=page_bytes):
            for target in needed:
                if (row := _as_row_of(target, rowid, cells)) is not None:
                    strays[target.name].append(row)
        for target in needed:
            if len(strays[target.name]) >= BATCH:
                _fill(database, target, iter(strays[target.name]), tallies[target.name])
                strays[target.name].clear()
    for target in needed:
        _fill(database, target, iter(strays[target.name]), tallies[target.name])


def _may_be_missed(tally: _Tally) -> bool:
    return tally.unreadable > 0 or not tally.is_known


def _as_row_of(target: Target, rowid: int, cells: Sequence[Cell]) -> Row | None:
    """Return the cells as a row of this table, None if they cannot be one."""
    # The number of a row is not stored a second time; a column that was added later may be missing at the end.
    if rowid <= 0 or not cells or cells[0] is not None or len(cells) > len(target.columns):
        return None
    values: list[Value] = [rowid, *cells[1:], *(_default(column) for column in target.columns[len(cells) :])]
    fits = all(_fits(column, value) for column, value in zip(target.columns, values, strict=True))
    return tuple(values) if fits else None


def _default(column: Column) -> Value:
    return int(column.default) if column.default is not None and column.default.isdigit() else None


def _fits(column: Column, value: Value) -> bool:
    if value is None:
        return column.may_be_null
    return isinstance(value, _KINDS.get(column.kind, ()))


# --- the fresh database ----------------------------------------------------------------------------------------------


def _names(database: Database) -> list[str]:
    found = database.execute("SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'")
    return sorted(str(name) for (name,) in found if not str(name).startswith("sqlite_"))


def _target(database: Database, table: str) -> Target:
    found = database.execute('SELECT name, type, "notnull", pk, dflt_value FROM pragma_table_info(?)', (table,))
    columns = tuple(
        Column(
            name=str(name),
            kind=str(kind).upper(),
            may_be_null=not required and not key,
            is_key=bool(key),
            default=cast("str | None", default),
        )
        for name, kind, required, key, default in found
    )
    keys = [column for column in columns if column.is_key]
    has_rowid = len(keys) == 1 and keys[0] is columns[0] and keys[0].kind == "INTEGER"
    return Target(name=table, columns=columns, has_rowid=has_rowid)


def _fill(database: Database, target: Target, rows: Iterator[Row], tally: _Tally) -> None:
    names = ", ".join(quoted(column.name) for column in target.columns)
    marks = ", ".join("?" * len(target.columns))
    sql = f"INSERT OR IGNORE INTO {quoted(target.name)} ({names}) VALUES ({marks})"
    texts = [column.kind == "TEXT" for column in target.columns]
    with database.transaction():
        for row in rows:
            values = [_text(value) if is_text else value for value, is_text in zip(row, texts, strict=True)]
            try:
                database.execute(sql, values)
            except UNFIT:
                tally.unfit += 1


def _text(value: Value) -> Value:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _rebuild_full_text(database: Database) -> None:
    found = database.execute("SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE%fts5%'")
    for (name,) in found:
        table = quoted(str(name))
        database.execute(f"INSERT INTO {table} ({table}) VALUES ('rebuild')")
    # What was said of the old index is not true of this one.
    database.execute("DELETE FROM meta WHERE key IN (?, ?, ?)", (search.OFF, search.UPTO, search.DONE))


def _saved(database: Database, target: Target, tally: _Tally) -> Saved:
    table = quoted(target.name)
    rows = database.number(f"SELECT count(*) FROM {table}")
    last = database.number(f"SELECT coalesce(max(id), 0) FROM {table}") if target.has_rowid else rows
    return Saved(
        table=target.name,
        rows=rows,
        missing=max(0, last - rows),
        unreadable=tally.unreadable,
        unfit=tally.unfit,
    )
