"""state.db read by somebody who is not the ledger: all its queries, and nothing can be written.

Only for processes that have nothing to do with the ledger's (see `readonly`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self, cast

from ..protocol.errors import SchemaTooNew, StoreError
from ..protocol.messages.ledger import StoreQuery, StoreReply
from .answers import answer
from .database import Database, Row, Value
from .migrations import LADDER
from .readonly import Reader


class Archive:
    """An open state.db. Owned by the thread that opened it; `close` it, or use it as a context."""

    def __init__(self, path: Path) -> None:
        """Open a file of ours; raises `StoreError`, also for one whose schema is not the present one."""
        self.path = path
        self._reader = Reader(path)
        try:
            self._reader.require_ours()
            self._reader.forbid_writes()
            self._require_schema()
        except BaseException:
            self._reader.close()
            raise

    def answer(self, query: StoreQuery, *, deadline_s: float) -> StoreReply:
        """Answer a query as the ledger would; raises `TooSlow`, `StoreError`."""
        with self._reader.deadline(deadline_s):
            # They read, through these few methods; what would write is refused by SQLite and below.
            return answer(cast(Database, _Statements(self._reader)), query)

    def close(self) -> None:
        """Close it; a second time does nothing."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _require_schema(self) -> None:
        found = self._reader.number("PRAGMA user_version")
        if found > len(LADDER):
            raise SchemaTooNew(str(self.path), found, len(LADDER))
        if found < len(LADDER):
            raise StoreError(f"{self.path} was written by an older covey; `covey up --detach` brings it up to date")


class _Statements:
    """A reader with the names that statements are run by."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.path = reader.path

    def execute(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        return self._reader.rows(sql, values)

    def number(self, sql: str, values: Sequence[Value] = ()) -> int:
        return self._reader.number(sql, values)

    def transaction(self) -> NoReturn:
        raise StoreError(f"{self.path} needs to be mended: `covey up --detach`, and ask again")
