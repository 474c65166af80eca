"""Finding messages by their words."""

from __future__ import annotations

from typing import Final

from ..protocol.errors import StoreError
from ..protocol.messages.ledger import Found, SearchQuery
from . import search
from .database import Database, Row
from .rows import hit_of
from .search_text import expression

_INT64: Final = (1 << 63) - 1
MAX_HITS: Final = 1000
_SNIPPET: Final = f"snippet({search.INDEX}, -1, char(2), char(3), '…', 24)"
_SELECT: Final = (
    f"SELECT m.id, m.session, m.idx, m.role, m.at_ms, m.compacted, {_SNIPPET}"
    f" FROM {search.INDEX} CROSS JOIN messages AS m ON m.id = {search.INDEX}.rowid"
    f" WHERE {search.INDEX} MATCH ?1 AND {search.INDEX}.rowid < ?2"
)
_NEWEST: Final = f"ORDER BY {search.INDEX}.rowid DESC LIMIT ?3"

SEARCH: Final = f"{_SELECT} {_NEWEST}"
SEARCH_SESSION: Final = f"{_SELECT} AND m.session = ?4 {_NEWEST}"


def find(database: Database, query: SearchQuery) -> Found:
    """Return the newest hits; a fault of the index is an answer without hits, and the index is off from then on."""
    problem = search.problem(database)
    text = expression(query.text)
    if text is None or not search.is_on(database):
        return Found(problem=problem)
    try:
        rows = _rows(database, query, text)
    except StoreError as error:
        if not search.is_of_index(error):
            raise
        with search.turned_off(database, str(error)):
            pass
        return Found(problem=str(error))
    return Found(hits=tuple(hit_of(row) for row in rows), problem=problem)


def _rows(database: Database, query: SearchQuery, text: str) -> list[Row]:
    before = _INT64 if query.before is None else min(max(query.before, -_INT64), _INT64)
    limit = min(max(query.limit, 0), MAX_HITS)
    if query.session is None:
        return database.execute(SEARCH, (text, before, limit))
    return database.execute(SEARCH_SESSION, (text, before, limit, query.session))
