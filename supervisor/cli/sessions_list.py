"""`covey sessions list`: a page of sessions, the last active first."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...protocol.messages.ledger import SessionRow, Sessions, SessionsQuery
from ..session_lookup import find_session
from .common import local_time
from .output import console, print_json
from .sessions_words import first_line, state_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..books import Books


def show_list(books: Books | None, args: argparse.Namespace) -> int:
    """Show; exit code 0 also when there are none."""
    from .sessions import PAGE

    limit = args.limit or PAGE
    rows: tuple[SessionRow, ...] = ()
    # One more than is shown says whether there is more.
    if books is not None:
        rows = books.ask(_query(books, args, limit + 1), Sessions).rows
    shown, has_more = rows[:limit], len(rows) > limit
    if args.json:
        print_json({"sessions": [row_json(row) for row in shown], "next": shown[-1].session if has_more else None})
        return 0
    out = console()
    out.print(sessions_table(shown, now=time.time()) if shown else "no sessions")
    if has_more:
        out.print(f"more: covey sessions list --after {shown[-1].session}")
    return 0


def sessions_table(rows: Sequence[SessionRow], *, now: float) -> RenderableType:
    """The rows as people read them."""
    from rich.text import Text

    from .output import table

    drawn = table("session", "state", "active", "source", "model", ">messages", "goal")
    for row in rows:
        active = row.active_at_ms or row.opened_at_ms
        drawn.add_row(
            Text(row.session),
            state_of(row),
            local_time(active, now=now) if active is not None else "",
            Text(row.source or ""),
            Text(row.model or ""),
            str(row.messages),
            Text(first_line(row.goal or "")),
        )
    return drawn


def row_json(row: SessionRow) -> dict[str, Any]:
    """A session for programs, as docs/usage.md has it; later versions only add keys."""
    return {
        "session": row.session,
        "agent": row.agent,
        "state": state_of(row),
        "goal": row.goal,
        "source": row.source,
        "profile": row.profile,
        "provider": row.provider,
        "model": row.model,
        "parent": row.parent,
        "swarm": row.swarm,
        "conversation": row.conversation,
        "messages": row.messages,
        "opened_at_ms": row.opened_at_ms,
        "active_at_ms": row.active_at_ms,
        "ended_at_ms": row.ended_at_ms,
        "outcome": row.outcome,
        "result": row.result,
        "error": row.error,
    }


def _query(books: Books, args: argparse.Namespace, limit: int) -> SessionsQuery:
    return SessionsQuery(
        source=args.source,
        parent=find_session(books, args.below).session if args.below else None,
        top=bool(args.top),
        before=find_session(books, args.after).place if args.after else None,
        limit=limit,
    )
