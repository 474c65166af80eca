"""`covey sessions show`: one session, what its tree used, and its transcript to be read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from ...protocol.messages.ledger import (
    MessageRow,
    SessionRow,
    Sessions,
    SessionsQuery,
    Totals,
    TotalsQuery,
    Transcript,
    TranscriptQuery,
)
from ...protocol.transcript import Message, Role
from ..session_lookup import find_session
from .common import local_time
from .output import console, print_json
from .sessions_list import row_json
from .sessions_words import shortened, state_of, totals_words, visible

if TYPE_CHECKING:
    from rich.text import Text

    from ..books import Books

CHILDREN = 100
STYLES = {Role.USER: "bold cyan", Role.ASSISTANT: "bold green", Role.TOOL: "magenta", Role.SYSTEM: "dim"}


def show(books: Books | None, name: str, *, full: bool, as_json: bool) -> int:
    """Show; raises `UsageError` for a session that is not there."""
    row = find_session(books, name)
    assert books is not None, "a session was found in them"
    transcript = books.ask(TranscriptQuery(session=row.session, rows=True, compacted=full), Transcript)
    totals = books.ask(TotalsQuery(session=row.session, tree=True), Totals)
    children = books.ask(SessionsQuery(parent=row.session, limit=CHILDREN), Sessions).rows
    if as_json:
        print_json(
            {
                **row_json(row),
                "children": [child.session for child in children],
                "tree": msgspec.structs.asdict(totals),
                "transcript": [message_json(message) for message in transcript.rows],
            }
        )
        return 0
    out = console()
    for line in head_lines(row, totals, children, now=time.time()):
        out.print(visible(line), markup=False)
    for part in transcript_parts(transcript.rows, full=full):
        out.print(part)
    return 0


def head_lines(row: SessionRow, totals: Totals, children: tuple[SessionRow, ...], *, now: float) -> Iterator[str]:
    """What is known of the session as a whole."""
    yield f"session   {row.session}, {state_of(row)}" + (f": {row.error}" if row.error else "")
    if row.goal:
        yield f"goal      {' '.join(row.goal.split())}"
    route = "/".join(part for part in (row.provider, row.model) if part)
    yield f"from      {row.source or 'unknown'}, agent {row.agent or 'unknown'}" + (f", {route}" if route else "")
    if row.parent:
        yield f"parent    {row.parent}"
    if row.conversation:
        yield f"goes on   {row.conversation}"
    times = [("began", row.opened_at_ms), ("active", row.active_at_ms), ("ended", row.ended_at_ms)]
    said = ", ".join(f"{word} {local_time(at, now=now)}" for word, at in times if at is not None)
    if said:
        yield f"times     {said}"
    if children:
        more = "…" if len(children) == CHILDREN else ""
        yield f"children  {', '.join(f'{child.session} ({state_of(child)})' for child in children)}{more}"
    yield f"tree      {totals_words(totals)}"


def transcript_parts(rows: tuple[MessageRow, ...], *, full: bool) -> Iterator[Text]:
    """The messages, each with who spoke; long ones shortened unless `full`."""
    from rich.text import Text

    names = {call.id: call.name for row in rows for call in row.message.tool_calls}
    for row in rows:
        if row.display_kind == "hidden" and not full:
            continue
        message = row.message
        yield Text(f"\n[{row.index}] {_speaker(row, names)}", style=STYLES[message.role])
        if message.content.strip():
            yield Text(shortened(message.content.rstrip(), full=full))
        for call in message.tool_calls:
            yield Text(f"→ {visible(call.name)}({shortened(call.arguments, full=full)})", style="yellow")


def message_json(row: MessageRow) -> dict[str, Any]:
    """A message for programs."""
    message: Message = row.message
    return {
        "index": row.index,
        "role": message.role.value,
        "content": message.content,
        "tool_calls": [msgspec.structs.asdict(call) for call in message.tool_calls],
        "tool_call_id": message.tool_call_id,
        "at_ms": row.at_ms,
        "display_kind": row.display_kind,
        "compacted": row.compacted,
    }


def _speaker(row: MessageRow, names: dict[str, str]) -> str:
    message = row.message
    words = [message.role.value]
    if message.role is Role.TOOL:
        words.append(names.get(message.tool_call_id or "", ""))
    if row.display_kind:
        words.append(f"({row.display_kind})")
    if row.compacted:
        words.append("(a summary stands for it)")
    return visible(" ".join(word for word in words if word))
