"""`covey logs`: what the fleet's processes logged, in the order of time."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from .common import add_home

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..home import Home
    from ..log_tail import Line, LogFile

HELP = "show what the fleet's processes logged"

LOOK_S = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    parser.add_argument("name", nargs="?", metavar="ROLE|NAME", help="only of this process, or of all of this role")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is logged from now on")
    parser.add_argument("-n", "--lines", type=_count, default=50, metavar="N", help="the last N lines (default 50)")
    add_home(parser)


def run(args: argparse.Namespace) -> int:
    """Show; exit code 2 if there is no such log. With `-f`, until Ctrl-C."""
    from ...protocol.errors import UsageError
    from ..home import Home
    from ..log_tail import LogFile, find, merged

    home = Home.locate(args.home)
    files = [LogFile(path) for path in find(home.logs, args.name)]
    if not files and not (args.follow and args.name is None):
        known = ", ".join(path.name.removesuffix(".log") for path in find(home.logs, None)) or "none yet"
        raise UsageError(f"no log of {args.name or 'any process'} in {home.logs}; there are: {known}")
    is_many = args.name is None or len(files) > 1
    try:
        newest = list(merged([file.newest(args.lines) for file in files]))
        _print(newest[max(0, len(newest) - args.lines) :], is_many)
        if args.follow:
            _follow(home, args.name, files, is_many)
    finally:
        for file in files:
            file.close()
    return 0


def _follow(home: Home, name: str | None, files: list[LogFile], is_many: bool) -> None:
    from ..log_tail import LogFile, find, merged

    while True:
        known = {file.name for file in files}
        files += [file for file in map(LogFile, find(home.logs, name)) if file.name not in known]
        _print(merged([file.more() for file in files]), is_many)
        time.sleep(LOOK_S)


def _print(lines: Iterable[Line], is_many: bool) -> None:
    for line in lines:
        text = line.text.encode("utf-8", "replace").decode()
        sys.stdout.write(f"{line.name:<9} {text}\n" if is_many else f"{text}\n")
    sys.stdout.flush()


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is not a number of lines; it must be 0 or more")
    return value
