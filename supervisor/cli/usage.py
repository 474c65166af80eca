"""`covey usage`: what calls used and cost, by model, session, tree, day or profile."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...protocol.errors import UsageError
from ..home import Home
from .common import add_home, add_json

if TYPE_CHECKING:
    from ..usage_report import UsageReport

BY: Final = ("model", "session", "tree", "day", "profile")
LIMIT: Final = 1000
TERMINAL: Final = "terminal"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--by", choices=BY, default=BY[0], help="what it is added up by (default: model)")
    parser.add_argument("--since", metavar="WHEN", help="from then on: 90m, 24h, 7d, 2w, or a date (default: ever)")
    parser.add_argument(
        "--plot",
        nargs="?",
        const=TERMINAL,
        metavar="FILE.png",
        help="draw it: here, or into a PNG, which needs the extra `plot`",
    )
    parser.add_argument(
        "--limit", type=int, default=LIMIT, metavar="N", help=f"rows at most (default {LIMIT}); the total has all"
    )
    add_home(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Report; exit code 0 also when nothing was ever recorded."""
    from .usage_chart import picture

    if args.limit < 1:
        raise UsageError(f"--limit {args.limit}: at least 1 row")
    home = Home.locate(args.home)
    file = None if args.plot in (None, TERMINAL) else picture(args.plot)
    found, is_running = _read(home, args)
    if file is not None:
        from .usage_chart import save

        save(found, file)
    if args.json:
        from .output import print_json
        from .usage_json import as_json

        print_json(as_json(found, home=str(home.path), is_running=is_running))
    else:
        _show(found, file, draws=args.plot == TERMINAL)
    return 0


def _read(home: Home, args: argparse.Namespace) -> tuple[UsageReport, bool]:
    from ...protocol.messages.ledger import UsageBy
    from ..books import open_books
    from ..config import load
    from ..running import running_root
    from ..usage_books import read_report
    from .usage_since import since_ms, utc_offset_s

    now = time.time()
    since = None if args.since is None else since_ms(args.since, now=now)
    settings = load(home.config).settings
    with open_books(home) as books:
        found = read_report(
            books,
            settings,
            by=UsageBy(args.by),
            since_ms=since,
            utc_offset_s=utc_offset_s(now),
            limit=args.limit,
        )
    return found, running_root(home) is not None


def _show(found: UsageReport, file: Path | None, *, draws: bool) -> None:
    from .output import console
    from .usage_chart import bars
    from .usage_table import parts

    out = console()
    if file is not None:
        print(f"drawn into {file}")
        return
    for part in bars(found) if draws else parts(found):
        out.print(part)
