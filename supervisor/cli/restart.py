"""`covey restart`: replace one process of the fleet, or a role, and wait until the successors serve."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from .common import add_home, add_json
from .output import print_json

if TYPE_CHECKING:
    from ...protocol.messages.fleet import ProcessView

HELP = "replace processes of the running fleet"

LOOK_S = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    parser.add_argument("target", metavar="ROLE|NAME", help="ledger, broker, worker (all of them), worker-1, …")
    add_home(parser)
    add_json(parser)
    parser.add_argument(
        "--timeout", type=float, default=30.0, metavar="S", help="how long the successors may take (default 30)"
    )


def run(args: argparse.Namespace) -> int:
    """Replace and wait; exit code 1 if a successor does not serve in time, 2 if nobody is called that."""
    from ...protocol.errors import AskTimeout, NoFleet, RemoteError, UsageError
    from ...protocol.messages.fleet import Restarting, RestartProcesses
    from ..home import Home
    from ..quick import ask_root
    from ..running import running_root

    home = Home.locate(args.home)
    info = running_root(home)
    if info is None:
        raise NoFleet(str(home.path))
    if args.target in ("root", "zygote"):
        raise UsageError(f"the {args.target} cannot be replaced in a running fleet; use `covey down` and `covey up`")
    started = time.monotonic()
    try:
        reply = ask_root(info.sockets, RestartProcesses(target=args.target), timeout_s=5.0)
    except RemoteError as error:
        raise UsageError(error.message) from error
    assert isinstance(reply, Restarting), "the root answers with whom it replaces"
    before = {process.name: process for process in reply.processes}
    after = _wait(info.sockets, before, started + args.timeout)
    took = time.monotonic() - started
    if after is None:
        raise AskTimeout("restart", args.target, args.timeout)
    if args.json:
        print_json({"target": args.target, "took_s": round(took, 3), "processes": _as_json(before, after)})
        return 0
    for name, process in after.items():
        print(f"{name}: pid {before[name].pid} is now pid {process.pid} ({process.incarnation})")
    print(f"replaced {len(after)} of the fleet in {home.path} in {took:.2f} s")
    return 0


def _wait(sockets: str, before: dict[str, ProcessView], deadline: float) -> dict[str, ProcessView] | None:
    """Everybody's successor once all of them serve; None when that takes too long."""
    from ...protocol.messages.fleet import Status, StatusQuery
    from ..quick import ask_root

    while (left_s := deadline - time.monotonic()) > 0:
        status = ask_root(sockets, StatusQuery(deadline_s=0.0), timeout_s=max(left_s, 0.1))
        assert isinstance(status, Status), "the root answers a status query with a status"
        after = {process.name: process for process in status.processes if process.name in before}
        if len(after) == len(before) and all(_is_successor(before[name], one) for name, one in after.items()):
            return after
        time.sleep(LOOK_S)
    return None


def _is_successor(before: ProcessView, after: ProcessView) -> bool:
    return after.state == "running" and after.incarnation != before.incarnation


def _as_json(before: dict[str, ProcessView], after: dict[str, ProcessView]) -> list[dict[str, object]]:
    return [
        {"name": name, "pid_before": before[name].pid, "pid": process.pid, "incarnation": process.incarnation}
        for name, process in after.items()
    ]
