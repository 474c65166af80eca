"""The ladder of schemas: step n makes version n + 1 out of version n; all missing steps happen in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..protocol.errors import SchemaTooNew
from .database import Database
from .schema import APPLICATION_ID, VERSION_1, VERSION_2

Step = Sequence[str]

LADDER: Final[tuple[Step, ...]] = (VERSION_1, VERSION_2)


def upgrade(database: Database, ladder: Sequence[Step] = LADDER) -> None:
    """Bring the schema to the top of the ladder, or leave the database as it was.

    Raises `SchemaTooNew` for one that is above it.
    """
    if database.number("PRAGMA user_version") == len(ladder):
        return
    with database.transaction():
        # Read again under the write lock: what was read before may have been changed since.
        found = database.number("PRAGMA user_version")
        if found > len(ladder):
            raise SchemaTooNew(str(database.path), found, len(ladder))
        for step in ladder[found:]:
            for statement in step:
                database.execute(statement)
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.execute(f"PRAGMA user_version = {len(ladder)}")
