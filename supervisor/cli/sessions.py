"""`covey sessions list|show|search|export|resume`: conversations that were kept, and going on with them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..home import Home
from .common import add_home, add_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..books import Books

Actions: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

PAGE = 30
HITS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions; without one it is `list`."""
    _add_list(parser, is_action=False)
    actions = parser.add_subparsers(metavar="ACTION", dest="sessions_action")
    _add_list(_add_action(actions, "list", "sessions, the last active first; what is meant without an action"))
    show = _add_action(actions, "show", "one session: how it stands, what it cost, and all that was said")
    show.add_argument("session", metavar="SESSION", help="its id, or a beginning that only it has among the newest")
    show.add_argument(
        "--full", action="store_true", default=False, help="long messages in full, and those a summary stands for"
    )
    search = _add_action(actions, "search", "messages that hold all words, the newest first")
    search.add_argument("text", nargs="+", metavar="WORD", help='words; "words in quotes" together, a* for a beginning')
    search.add_argument("--session", default=None, metavar="SESSION", help="only in this one")
    search.add_argument("--limit", type=_count, default=HITS, metavar="N", help=f"hits at most (default {HITS})")
    search.add_argument(
        "--before", type=int, default=None, metavar="ROW", help="go on behind this hit of the page before"
    )
    export = _add_action(actions, "export", "sessions with messages and calls as JSON lines")
    export.add_argument("sessions", nargs="*", default=[], metavar="SESSION", help="as in show (default: all)")
    export.add_argument(
        "--out", type=Path, default=None, metavar="FILE", help="a file, for you alone (default: stdout)"
    )
    export.add_argument("--force", action="store_true", default=False, help="replace the file")
    resume = _add_action(actions, "resume", "go on with a session: an agent that remembers it")
    resume.add_argument("session", metavar="SESSION", help="as in show")
    resume.add_argument("text", nargs="?", default=None, metavar="TEXT", help="what to say to it")
    resume.add_argument(
        "--model", default=None, metavar="NAME", help="another model than the session's, as in `covey run`"
    )
    resume.add_argument(
        "--workspace", type=Path, default=None, metavar="DIR", help="where its tools work (default: this folder)"
    )
    resume.add_argument("--max-turns", type=_count, default=None, metavar="N", help="model calls at most from now on")
    for action in (show, search, resume):
        add_home(action)
        add_json(action)
    add_home(export)


def run(args: argparse.Namespace) -> int:
    """Do what was asked; the exit code."""
    home = Home.locate(args.home)
    match args.sessions_action:
        case None | "list":
            from .sessions_list import show_list

            return _with_books(home, lambda books: show_list(books, args))
        case "show":
            from .sessions_show import show

            return _with_books(home, lambda books: show(books, args.session, full=args.full, as_json=args.json))
        case "search":
            from .sessions_search import search

            return _with_books(home, lambda books: search(books, args))
        case "export":
            from .sessions_export import export

            return export(home, args.sessions, args.out, overwrite=args.force)
        case action:
            assert action == "resume", f"argparse let {action} through"
            from .sessions_resume import resume

            return resume(home, args)


def _with_books(home: Home, use: Callable[[Books | None], int]) -> int:
    from ..books import open_books

    with open_books(home) as books:
        return use(books)


def _add_action(actions: Actions, name: str, summary: str) -> argparse.ArgumentParser:
    return actions.add_parser(name, help=summary, description=summary, argument_default=argparse.SUPPRESS)


def _add_list(parser: argparse.ArgumentParser, *, is_action: bool = True) -> None:
    """An action has no defaults of its own: they would undo what was said before its name."""
    missing = argparse.SUPPRESS if is_action else None
    parser.add_argument("--limit", type=_count, default=missing, metavar="N", help=f"at most so many (default {PAGE})")
    parser.add_argument("--after", default=missing, metavar="SESSION", help="the page behind this session")
    parser.add_argument("--top", action="store_true", default=missing, help="only those that no other session began")
    parser.add_argument("--below", default=missing, metavar="SESSION", help="only those that this session began")
    parser.add_argument("--source", default=missing, metavar="WORD", help="only of this source: run, swarm, client, …")
    add_home(parser)
    add_json(parser)


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is too few; at least 1")
    return value
