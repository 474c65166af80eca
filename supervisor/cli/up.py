"""`covey up`: run the root supervisor, in the foreground or in the background."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from .common import add_home, add_json
from .output import print_json, warn

if TYPE_CHECKING:
    from ..home import Home

HELP = "start the fleet of this home"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    add_home(parser)
    add_json(parser)
    parser.add_argument("--detach", action="store_true", help="return as soon as the fleet serves; it stays")
    parser.add_argument("--ready-fd", type=int, metavar="N", help=argparse.SUPPRESS)
    parser.add_argument("--leash-fd", type=int, metavar="N", help=argparse.SUPPRESS)
    parser.add_argument("--daemon", action="store_true", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Start; exit code 0 after an orderly stop."""
    from ..home import Home

    home = Home.locate(args.home)
    if args.detach:
        return _detach(home, args.json)
    if args.daemon and os.fork():
        # Whoever started us is not to have a child that it never heard of.
        os._exit(0)
    from ..root import run_root

    return run_root(home, ready_fd=args.ready_fd, leash_fd=args.leash_fd, talk=args.ready_fd is None and not args.json)


def _detach(home: Home, as_json: bool) -> int:
    from ..config import load
    from ..launch import launch
    from ..running import refuse_if_running

    refuse_if_running(home)
    warn(load(home.config).warnings)
    ready = launch(home)
    if as_json:
        print_json({"home": str(home.path), "pid": ready.pid, "processes": ready.processes, "ready_s": ready.ready_s})
    else:
        print(
            f"covey is up in {home.path}: {ready.processes} processes, root pid {ready.pid}, "
            f"ready after {ready.ready_s:.2f} s"
        )
        print("see it with `covey status`, stop it with `covey down`")
    return 0
