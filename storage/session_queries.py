"""The list of sessions: newest activity first, page by page."""

from __future__ import annotations

from typing import Final

from ..protocol.messages.ledger import Place, SessionQuery, SessionRow, Sessions, SessionsQuery
from .database import Database, Row, Value
from .rows import SESSION_ROW_COLUMNS, session_of

_INT64: Final = (1 << 63) - 1
_TOP: Final = Place(activity=_INT64, row=_INT64)
_ROUTE: Final = ("provider", "model", "base_url")


def _column(name: str) -> str:
    # The route as calls took it, which is accounted elsewhere, before the one the session was opened with.
    return f"coalesce(session_tokens.{name}, sessions.{name})" if name in _ROUTE else f"sessions.{name}"


_SELECT: Final = (
    "SELECT activity, sessions.id, (SELECT max(idx) FROM messages WHERE session = sessions.session),"
    f" {', '.join(_column(name) for name in SESSION_ROW_COLUMNS)}"
    " FROM sessions LEFT JOIN session_tokens ON session_tokens.session = sessions.session"
)
_PAGE: Final = "(activity, sessions.id) < (?1, ?2) ORDER BY activity DESC, sessions.id DESC LIMIT ?3"

FILTERS: Final = {"source": "source = ?4", "profile": "profile = ?5", "parent": "parent = ?6", "top": "parent IS NULL"}
"""Conditions by the field of the query that asks for them."""
SESSION: Final = f"{_SELECT} WHERE sessions.session = ?"


def sessions_statement(filters: tuple[str, ...]) -> str:
    """Return the statement for one page with these of `FILTERS`."""
    conditions = "".join(f"{FILTERS[name]} AND " for name in filters)
    return f"{_SELECT} WHERE {conditions}{_PAGE}"


def sessions(database: Database, query: SessionsQuery) -> Sessions:
    """Return a page of sessions."""
    before = query.before or _TOP
    asked = {
        "source": query.source is not None,
        "profile": query.profile is not None,
        "parent": query.parent is not None,
        "top": query.top,
    }
    values: tuple[Value, ...] = (
        _int64(before.activity),
        _int64(before.row),
        max(_int64(query.limit), 0),
        query.source,
        query.profile,
        query.parent,
    )
    filters = tuple(name for name, is_asked in asked.items() if is_asked)
    needed = max((number for number in range(1, 7) if f"?{number}" in sessions_statement(filters)), default=3)
    return _sessions(database.execute(sessions_statement(filters), values[:needed]))


def session(database: Database, query: SessionQuery) -> Sessions:
    """Return one session, or none."""
    return _sessions(database.execute(SESSION, (query.session,)))


def _sessions(rows: list[Row]) -> Sessions:
    found: tuple[SessionRow, ...] = tuple(session_of(row) for row in rows)
    return Sessions(rows=found)


def _int64(number: int) -> int:
    return min(max(number, -_INT64), _INT64)
