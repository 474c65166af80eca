"""`covey config get|set|check`: read, change and check config.yaml."""

from __future__ import annotations

import argparse

from ...protocol.errors import ConfigError, UsageError
from ..config import Accepted, Effective, Origin, Refused, examine, load
from ..config_edit import Change, require_known, set_value
from ..config_keys import split_key
from ..config_kinds import write_plain
from ..config_text import read_text
from ..home import Home
from .common import add_home, add_json
from .output import print_json, print_line, warn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare get, set and check."""
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="config_action")
    get = actions.add_parser("get", help="print effective values and where they come from")
    get.add_argument("key", nargs="?", metavar="KEY", help="a key or a section, such as providers.zai; all without it")
    set_ = actions.add_parser("set", help="change one value; comments stay as they are")
    set_.add_argument("key", metavar="KEY", help="such as providers.zai.max_concurrent")
    set_.add_argument("value", metavar="VALUE", help="3 is a number, true a truth value, the rest is text")
    check = actions.add_parser("check", help="report everything that is wrong with the file")
    for action in (get, set_, check):
        add_home(action)
    for action in (get, check):
        add_json(action)


def run(args: argparse.Namespace) -> int:
    """Do what was asked; the exit code."""
    home = Home.locate(args.home)
    match args.config_action:
        case "get":
            return _get(home, args.key, as_json=args.json)
        case "set":
            return _set(home, args.key, args.value)
        case action:
            assert action == "check", f"argparse let {action} through"
            return _check(home, as_json=args.json)


def _get(home: Home, key: str | None, *, as_json: bool) -> int:
    if key is not None:
        require_known(split_key(key))
    accepted = load(home.config)
    values = [value for value in accepted.values if key is None or f"{value.key}.".startswith(f"{key}.")]
    if not values:
        names = ", ".join(accepted.settings.providers)
        raise UsageError(f"{key}: there is no such provider; there are: {names}")
    if as_json:
        print_json({"file": str(home.config), "values": values})
        return 0
    for value in values:
        print_line(f"{value.key}: {_shown(value)}  # {_source(home, value)}")
    warn(accepted.warnings)
    return 0


def _set(home: Home, key: str, text: str) -> int:
    change = set_value(home, key, text)
    print_line(f"{change.after.key}: {_shown(change.after)}  # {_source(home, change.after)}{_was(change)}")
    warn(change.accepted.warnings)
    return 0


def _check(home: Home, *, as_json: bool) -> int:
    file = str(home.config)
    found = _examine(home)
    errors = found.errors if isinstance(found, Refused) else ()
    warnings = found.warnings if isinstance(found, Accepted) else ()
    if as_json:
        print_json(
            {"ok": not errors, "file": file, "errors": [_plain(error) for error in errors], "warnings": warnings}
        )
    elif errors:
        for error in errors:
            print_line(str(error))
    else:
        print_line(f"{file}: " + ("valid" if home.config.exists() else "not there; everything is at its default"))
    warn(() if as_json else warnings)
    return 2 if errors else 0


def _examine(home: Home) -> Accepted | Refused:
    try:
        return examine(read_text(home.config), str(home.config))
    except ConfigError as error:
        return Refused((error,))


def _shown(value: Effective) -> str:
    return "(not set)" if value.value is None else write_plain(value.value)


def _source(home: Home, value: Effective) -> str:
    return f"{home.config}:{value.line}" if value.origin is Origin.FILE else value.origin.value


def _was(change: Change) -> str:
    if change.before is None or change.before.value is None:
        return ", was not set"
    return f", was {_shown(change.before)}"


def _plain(error: ConfigError) -> dict[str, str | int | None]:
    return {
        "file": error.file,
        "line": error.line,
        "key": error.key,
        "problem": error.problem,
        "valid": error.valid,
    }
