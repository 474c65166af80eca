"""`covey budget list|show|unlock|set-limit|quota`: what may be asked of accounts, and why something waits."""

from __future__ import annotations

import argparse
import math
from typing import TypeAlias

from ...protocol.errors import NoFleet
from ..home import Home
from ..running import running_root
from .common import add_home, add_json

INTERVAL_S = 1.0
SHORTEST_S = 0.1

Actions: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions; without one it is `list`."""
    _add_view(parser, interval_s=INTERVAL_S)
    actions = parser.add_subparsers(metavar="ACTION", dest="budget_action")
    _add_view(_add_action(actions, "list", "all budgets; what is meant without an action"), interval_s=None)
    show = _add_action(actions, "show", "one budget with everything that is known; 3 if it is parked or locked")
    unlock = _add_action(actions, "unlock", "let an account be used again: ends a lock, a park or a pause")
    for action in (show, unlock):
        action.add_argument(
            "budget", metavar="BUDGET", help="its key, a unique beginning of it, or the provider's name"
        )
    limit = _add_action(actions, "set-limit", "change in config.yaml how many calls may be in flight")
    limit.add_argument("budget", metavar="BUDGET|PROVIDER", help="a provider of config.yaml, or a budget's key")
    limit.add_argument("limit", metavar="N", help="calls in flight at once; 0 is no limit")
    limit.add_argument("--model", default=None, metavar="M", help="only for this model, inside the provider's limit")
    quota = _add_action(actions, "quota", "read the quota of accounts from their providers")
    quota.add_argument("provider", nargs="?", default=None, metavar="PROVIDER", help="default: every one at Z.AI")
    for action in (show, unlock, limit, quota):
        _add_common(action)


def run(args: argparse.Namespace) -> int:
    """Do what was asked; the exit code."""
    home = Home.locate(args.home)
    match args.budget_action:
        case None | "list":
            return _list(home, args)
        case "show":
            from .budget_show import show

            return show(_sockets(home), args.budget, as_json=args.json)
        case "unlock":
            from .budget_change import unlock

            return unlock(_sockets(home), args.budget, as_json=args.json)
        case "set-limit":
            from .budget_change import set_limit

            return set_limit(home, args.budget, args.limit, args.model, as_json=args.json)
        case action:
            assert action == "quota", f"argparse let {action} through"
            from .budget_quota import quota

            return quota(home, args.provider, as_json=args.json)


def _list(home: Home, args: argparse.Namespace) -> int:
    from .budget_list import show_list
    from .budget_watch import watch

    if args.watch:
        watch(home, args.interval, as_json=args.json)
    return show_list(home, as_json=args.json)


def _sockets(home: Home) -> str:
    info = running_root(home)
    if info is None:
        raise NoFleet(str(home.path))
    return info.sockets


def _add_action(actions: Actions, name: str, summary: str) -> argparse.ArgumentParser:
    """Declare an action without defaults of its own: they would undo what was said before its name."""
    return actions.add_parser(name, help=summary, description=summary, argument_default=argparse.SUPPRESS)


def _add_view(parser: argparse.ArgumentParser, *, interval_s: float | None) -> None:
    _add_common(parser)
    parser.add_argument("--watch", action="store_true", help="draw it again and again, until Ctrl-C")
    parser.add_argument(
        "--interval",
        type=_interval,
        default=argparse.SUPPRESS if interval_s is None else interval_s,
        metavar="S",
        help=f"seconds between two drawings (default {INTERVAL_S:g})",
    )


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    add_json(parser)


def _interval(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value < SHORTEST_S:
        raise argparse.ArgumentTypeError(f"{text} is too short; it must be {SHORTEST_S:g} or more seconds")
    return value
