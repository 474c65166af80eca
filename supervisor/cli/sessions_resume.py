"""`covey sessions resume`: an agent that goes on with a session, and its answer."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...protocol.ids import SessionId
    from ...protocol.messages.fleet import AgentResult
    from ..home import Home


def resume(home: Home, args: argparse.Namespace) -> int:
    """Go on and wait for the end; exit codes as of `covey run`."""
    from ...protocol.messages.ledger import Transcript, TranscriptQuery
    from ..books import open_books
    from ..config import load
    from ..resume import plan
    from ..session_lookup import find_session
    from .agent_end import show_end

    max_turns = args.max_turns or load(home.config).settings.fleet.max_turns
    with open_books(home) as books:
        row = find_session(books, args.session)
        assert books is not None, "a session was found in them"
        transcript = books.ask(TranscriptQuery(session=row.session), Transcript)
    plan(row, transcript, args.text)  # what cannot be meant is said before a fleet is brought up
    result = asyncio.run(_resume(home, row.session, args, max_turns))
    code = show_end(result, as_json=args.json, resumed=row.session)
    if not args.json and result.session != row.session:
        print(f"covey: it goes on as {result.session}", file=sys.stderr)
    return code


async def _resume(home: Home, session: SessionId, args: argparse.Namespace, max_turns: int) -> AgentResult:
    from ..resume import left_spools, resume, taken_in
    from ..visit import visit
    from .agent_watch import watched

    left = left_spools(home)
    async with visit(home, name="covey sessions resume") as fleet:
        # What was said last may still be on its way to state.db.
        await taken_in(left)
        agent = await resume(
            fleet,
            session,
            text=args.text,
            model=args.model,
            workspace=args.workspace,
            max_turns=max_turns,
        )
        return await watched(fleet, agent, wanted=not args.json)
