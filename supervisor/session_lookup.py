"""Finding the session that is meant."""

from __future__ import annotations

from typing import Final

from ..protocol.errors import UsageError
from ..protocol.ids import SessionId
from ..protocol.messages.ledger import SessionQuery, SessionRow, Sessions, SessionsQuery
from .books import Books

NEWEST: Final = 1000
"""A beginning of an id is looked for among so many sessions; a whole id among all."""


def find_session(books: Books | None, name: str) -> SessionRow:
    """The session called `name`, or whose id alone begins with it; raises `UsageError`."""
    if books is None:
        raise UsageError(f"there is no session {name}: nothing was ever kept in this home")
    if exact := books.ask(SessionQuery(session=SessionId(name)), Sessions).rows:
        return exact[0]
    newest = books.ask(SessionsQuery(limit=NEWEST), Sessions).rows if name else ()
    found = [row for row in newest if row.session.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(row.session for row in found[:4])
        raise UsageError(f"{len(found)} sessions begin with {name}: {names}{', …' if len(found) > 4 else ''}")
    raise UsageError(f"there is no session {name}; `covey sessions list` shows them")
