"""Sessions of state.db as they are given to other programs, page by page: no read lasts, whatever the size.

A session whose rows come in meanwhile is exported with what was there when its turn came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, cast

import msgspec

from ..protocol.errors import UsageError
from .database import Row, Value
from .readonly import Reader, quoted

PAGE: Final = 500
_BEFORE_ALL: Final = -(1 << 63)

Part = Literal["session", "message", "call"]


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """One row; JSON that a column holds is JSON here, too. The row's number is not part of it."""

    part: Part
    columns: dict[str, object]


class Export:
    """An open export. Owned by one thread; `close` it."""

    def __init__(self, path: Path) -> None:
        """Open state.db for reading; raises `StoreError`."""
        self._reader = Reader(path)
        try:
            self._reader.require_ours()
            self._columns = {table: self._reader.columns(table) for table in ("sessions", "messages", "calls")}
        except BaseException:
            self._reader.close()
            raise

    def sessions(self, wanted: Sequence[str] | None) -> Iterator[Exported]:
        """Yield all sessions in the order in which they came, or the wanted ones in that of their names.

        Raises `UsageError` for a name that no session has; what was yielded before is right.
        """
        if wanted is not None:
            for name in wanted:
                found = self._page("sessions", "session = ?", (name,), after=0)
                if not found:
                    raise UsageError(f"there is no session {name} in {self._reader.path}")
                yield self._exported("session", "sessions", found[0])
            return
        for row in self._all("sessions", "1", ()):
            yield self._exported("session", "sessions", row)

    def messages(self, session: str) -> Iterator[Exported]:
        """Yield a session's messages in their order."""
        after: Value = None
        while True:
            rows = self._read(
                "messages", "session = ? AND idx > ?", (session, _BEFORE_ALL if after is None else after), "idx"
            )
            for row in rows:
                exported = self._exported("message", "messages", row)
                after = cast(int, exported.columns["idx"])
                yield exported
            if len(rows) < PAGE:
                return

    def calls(self, session: str | None) -> Iterator[Exported]:
        """Yield a session's calls, or those that belong to none, as they were recorded."""
        for row in self._all("calls", "session IS ?", (session,)):
            yield self._exported("call", "calls", row)

    def close(self) -> None:
        """Close it."""
        self._reader.close()

    def _all(self, table: str, condition: str, values: tuple[Value, ...]) -> Iterator[Row]:
        after = 0
        while rows := self._page(table, condition, values, after=after):
            yield from rows
            after = cast(int, rows[-1][0])

    def _page(self, table: str, condition: str, values: tuple[Value, ...], *, after: int) -> list[Row]:
        return self._read(table, f"{condition} AND id > ?", (*values, after), "id")

    def _read(self, table: str, condition: str, values: tuple[Value, ...], order: str) -> list[Row]:
        names = ", ".join(quoted(name) for name in self._columns[table])
        return self._reader.rows(f"SELECT {names} FROM {table} WHERE {condition} ORDER BY {order} LIMIT {PAGE}", values)

    def _exported(self, part: Part, table: str, row: Row) -> Exported:
        named = dict(zip(self._columns[table], row, strict=True))
        columns = {name: _plain(name, value) for name, value in named.items() if name != "id"}
        return Exported(part=part, columns=columns)


def _plain(name: str, value: Value) -> object:
    if name not in ("tool_calls", "signed") or not isinstance(value, str):
        return value
    try:
        return cast(object, msgspec.json.decode(value))
    except (msgspec.DecodeError, RecursionError):
        return value
