"""How a file gets the schema it is to have: additions by comparison, data by a ladder.

What is declared and missing is added, whatever the file's version. The ladder is for data only: step n makes version
n + 1 out of version n, after the additions. All of it is one transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ..protocol.errors import SchemaTooNew
from . import search
from .database import Database
from .schema import APPLICATION_ID, SCHEMA, Schema, Table

Step = Sequence[str]

_TO_3: Final[Step] = (
    # Sessions were in the order of their beginning; now they are in the order of what happened last.
    "UPDATE sessions SET activity = last.id, active_at_ms = last.at_ms"
    " FROM (SELECT session, max(id) AS id, at_ms FROM messages GROUP BY session) AS last"
    " WHERE last.session = sessions.session",
    "UPDATE sessions SET active_at_ms = coalesce(ended_at_ms, opened_at_ms) WHERE active_at_ms IS NULL",
)

LADDER: Final[tuple[Step, ...]] = ((), (), _TO_3)
"""Versions 1 and 2 (restarts) were additions."""


def upgrade(database: Database, ladder: Sequence[Step] = LADDER, schema: Schema = SCHEMA) -> None:
    """Bring the file to the schema and to the top of the ladder, or leave it as it was.

    Raises `SchemaTooNew` for one that is above the ladder. What is in a table of ours and not declared stays.
    """
    found = database.number("PRAGMA user_version")
    if found == len(ladder) and not list(missing(database, schema)) and not search.is_missing(database):
        return
    with database.transaction():
        # Read again under the write lock: what was read before may have been changed since.
        found = database.number("PRAGMA user_version")
        if found > len(ladder):
            raise SchemaTooNew(str(database.path), found, len(ladder))
        for statement in list(missing(database, schema)):
            database.execute(statement)
        for step in ladder[found:] if found else ():
            for statement in step:
                database.execute(statement)
        if search.is_missing(database):
            search.install(database)
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.execute(f"PRAGMA user_version = {len(ladder)}")


def missing(database: Database, schema: Schema = SCHEMA) -> Iterator[str]:
    """The statements that make what is declared and not there, and end indices of ours that are not declared."""
    rows = database.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    there = {row[0]: row[1] for row in rows}
    added = [statement for table in schema.tables for statement in _additions(database, table)]
    declared = {part.name: part for part in schema.parts}
    # First what goes, because a column may be waited for by what stands in its way; last what needs the columns.
    for kind, name in _replaced(database, schema):
        yield f"DROP {kind} {name}"
    yield from added
    for name, part in declared.items():
        if there.get(name) != part.sql:
            yield part.sql


def _additions(database: Database, table: Table) -> Iterator[str]:
    there = {str(row[0]) for row in database.execute("SELECT name FROM pragma_table_info(?)", (table.name,))}
    if not there:
        yield table.sql
        return
    for name, kind in table.columns.items():
        if name not in there:
            yield f"ALTER TABLE {table.name} ADD COLUMN {name} {kind}"


def _replaced(database: Database, schema: Schema) -> Iterator[tuple[str, str]]:
    """Parts of our tables whose text is another now, and indices that nothing asks for any more."""
    declared = {part.name: part.sql for part in schema.parts}
    tables = {table.name for table in schema.tables}
    rows = database.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE type IN ('index', 'view', 'trigger') AND sql NOTNULL"
    )
    for kind, name, table, sql in rows:
        is_old_index = kind == "index" and table in tables and name not in declared
        if is_old_index or (name in declared and declared[str(name)] != sql):
            yield str(kind).upper(), str(name)
