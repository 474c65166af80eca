"""`covey db check|backup|repair|export|vacuum|stats|import`: look after state.db, take it along, bring others' in."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TypeAlias

from ..home import Home
from .common import add_home, add_json

REPAIR_S = 600.0

Actions: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions."""
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="db_action")
    _add_check(actions)
    _add_backup(actions)
    _add_repair(actions)
    _add_export(actions)
    _add_action(actions, "vacuum", "give back the room that state.db does not use any more; needs a stopped fleet")
    _add_action(actions, "stats", "what state.db holds: rows, sizes, the largest sessions")
    _add_import(actions)


def run(args: argparse.Namespace) -> int:
    """Do what was asked; the exit code."""
    home = Home.locate(args.home)
    match args.db_action:
        case "check":
            from .db_check import check_db

            return check_db(home, is_full=args.full, timeout_s=args.timeout, as_json=args.json)
        case "stats":
            from .db_check import show_stats

            return show_stats(home, as_json=args.json)
        case "backup":
            from .db_backup import backup_db

            return backup_db(home, args.dest, overwrite=args.force, keep=args.keep, as_json=args.json)
        case "repair":
            from .db_repair import repair_db

            return repair_db(home, timeout_s=args.timeout, as_json=args.json)
        case "vacuum":
            from .db_repair import vacuum_db

            return vacuum_db(home, as_json=args.json)
        case "export":
            from .db_export import export_db

            return export_db(
                home, args.dest, sessions=args.sessions, form=args.format, overwrite=args.force, as_json=args.json
            )
        case action:
            assert action == "import", f"argparse let {action} through"
            from .db_import import import_db

            return import_db(home, args.path, is_rehearsal=args.dry_run, as_json=args.json)


def _add_check(actions: Actions) -> None:
    check = _add_action(actions, "check", "whether state.db is sound, also while a fleet runs; 1 if it is damaged")
    check.add_argument("--full", action="store_true", help="compare every index with its rows, too")
    check.add_argument("--timeout", type=_seconds, metavar="S", help="stop after S seconds (default: read all of it)")


def _add_backup(actions: Actions) -> None:
    backup = _add_action(actions, "backup", "copy state.db, also while a fleet runs, and read the copy back")
    backup.add_argument(
        "dest", nargs="?", type=Path, metavar="DEST", help="a file or a folder (default: backups/ in the home)"
    )
    backup.add_argument("--force", action="store_true", help="replace DEST if it exists")
    backup.add_argument(
        "--keep", type=_count, metavar="N", help="then keep the N newest in the folder; only where the name is ours"
    )


def _add_repair(actions: Actions) -> None:
    repair = _add_action(actions, "repair", "make a damaged state.db sound; needs a stopped fleet, keeps the originals")
    repair.add_argument(
        "--timeout",
        type=_seconds,
        default=REPAIR_S,
        metavar="S",
        help=f"give up after S seconds (default {REPAIR_S:g})",
    )


def _add_export(actions: Actions) -> None:
    export = _add_action(actions, "export", "write sessions with their messages and calls as JSON")
    export.add_argument("dest", nargs="?", default="-", metavar="DEST", help="a file; - is stdout (default)")
    export.add_argument("--sessions", nargs="+", metavar="ID", help="only these")
    export.add_argument(
        "--format", choices=("jsonl", "json"), default="jsonl", help="one object a line (default), or one document"
    )
    export.add_argument("--force", action="store_true", help="replace DEST if it exists")


def _add_import(actions: Actions) -> None:
    import_ = _add_action(actions, "import", "bring over sessions, messages and usage of another program")
    import_.add_argument("program", choices=("hermes",), help="hermes: a state.db of hermes-agent")
    import_.add_argument("path", type=Path, metavar="PATH", help="its database, or the folder it is in; only read")
    import_.add_argument("--dry-run", action="store_true", help="only say what would be brought over")


def _add_action(actions: Actions, name: str, summary: str) -> argparse.ArgumentParser:
    action = actions.add_parser(name, help=summary, description=summary)
    add_home(action)
    add_json(action)
    return action


def _seconds(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is too few; at least 1 backup is kept")
    return value
