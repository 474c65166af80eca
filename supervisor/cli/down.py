"""`covey down`: stop the fleet, and see to it that it is gone."""

from __future__ import annotations

import argparse
import os
import select
import signal
import time

from .common import add_home, add_json
from .output import print_json

HELP = "stop the fleet of this home"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    add_home(parser)
    add_json(parser)
    parser.add_argument(
        "--timeout", type=float, default=30.0, metavar="S", help="kill what has not ended after S seconds (default 30)"
    )


def run(args: argparse.Namespace) -> int:
    """Stop; exit code 0 when nothing runs any more (also when nothing did)."""
    from ...storage.owners import open_pidfd
    from ..home import Home
    from ..running import running_root

    home = Home.locate(args.home)
    info = running_root(home)
    pidfd = open_pidfd(info.owner) if info is not None else None
    if info is None or pidfd is None:
        if args.json:
            print_json({"home": str(home.path), "running": False, "stopped": 0})
        else:
            print(f"no fleet runs in {home.path}; nothing to stop")
        return 0
    started = time.monotonic()
    stopped = _request(info.sockets)
    how = "stopped"
    if stopped is None:
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
    if not _gone(pidfd, args.timeout):
        # The tree does not outlive its root: the kernel and the zygote see to that.
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        how = "killed"
        _gone(pidfd, 5.0)
    os.close(pidfd)
    took = time.monotonic() - started
    if args.json:
        print_json({"home": str(home.path), "running": False, "stopped": stopped, "how": how, "took_s": round(took, 3)})
    else:
        count = f"{stopped} processes" if stopped is not None else "all processes"
        print(f"{how} the fleet in {home.path}: {count}, root pid {info.pid}, in {took:.2f} s")
    return 0


def _request(sockets: str) -> int | None:
    """Ask the root to stop; how many processes that were, None if it did not answer."""
    from ...protocol.errors import CoveyError
    from ...protocol.messages.fleet import Shutdown, ShuttingDown
    from ..quick import ask_root

    try:
        reply = ask_root(sockets, Shutdown(reason="covey down"), timeout_s=2.0)
    except CoveyError:
        return None
    return len(reply.processes) if isinstance(reply, ShuttingDown) else None


def _gone(pidfd: int, timeout_s: float) -> bool:
    return bool(select.select([pidfd], [], [], timeout_s)[0])
