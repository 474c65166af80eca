"""`covey sessions search`: messages by their words, with the place where they stand."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from ...protocol.messages.ledger import Found, SearchHit, SearchQuery
from ..session_lookup import find_session
from .common import local_time
from .output import console, print_json
from .sessions_words import visible

if TYPE_CHECKING:
    from rich.text import Text

    from ..books import Books

BEGIN, END = "\x02", "\x03"


def search(books: Books | None, args: argparse.Namespace) -> int:
    """Show what was found; exit code 0 also when that is nothing."""
    found = Found()
    if books is not None:
        session = find_session(books, args.session).session if args.session else None
        query = SearchQuery(text=" ".join(args.text), session=session, before=args.before, limit=args.limit)
        found = books.ask(query, Found)
    next_row = found.hits[-1].row if len(found.hits) == args.limit else None
    if args.json:
        print_json({"hits": [hit_json(hit) for hit in found.hits], "next": next_row, "problem": found.problem})
        return 0
    out = console()
    for hit in found.hits:
        out.print(hit_text(hit, now=time.time()))
    if not found.hits:
        out.print("nothing was found")
    if next_row is not None:
        out.print(f"there may be more: --before {next_row}")
    if found.problem:
        print(f"covey: warning: not everything was looked at: {found.problem}", file=sys.stderr)
    return 0


def hit_text(hit: SearchHit, *, now: float) -> Text:
    """A hit on one line, with what was looked for marked where colours are shown."""
    from rich.text import Text

    text = Text(f"{hit.session} [{hit.index}] {hit.role}, {local_time(hit.at_ms, now=now)}: ")
    plain, _, rest = " ".join(hit.snippet.split()).partition(BEGIN)
    text.append(visible(plain))
    while rest:
        marked, _, after = rest.partition(END)
        text.append(visible(marked), style="bold yellow")
        plain, _, rest = after.partition(BEGIN)
        text.append(visible(plain))
    return text


def hit_json(hit: SearchHit) -> dict[str, Any]:
    """A hit for programs: `matches` are places of what was looked for in `snippet`, in characters."""
    snippet, matches = _placed(hit.snippet)
    return {
        "row": hit.row,
        "session": hit.session,
        "index": hit.index,
        "role": hit.role,
        "at_ms": hit.at_ms,
        "snippet": snippet,
        "matches": matches,
        "compacted": hit.compacted,
    }


def _placed(marked: str) -> tuple[str, list[list[int]]]:
    text, matches = "", []
    for number, piece in enumerate(marked.split(BEGIN)):
        if number == 0:
            text = piece
            continue
        word, _, after = piece.partition(END)
        matches.append([len(text), len(text) + len(word)])
        text += word + after
    return text, matches
