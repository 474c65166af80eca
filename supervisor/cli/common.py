"""What most commands share on their command line, and in how they begin and speak."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...protocol.messages.fleet import Status
    from ..home import Home


def add_home(parser: argparse.ArgumentParser) -> None:
    """`--home`: which fleet is meant."""
    parser.add_argument("--home", metavar="DIR", help="the fleet's home (default: $COVEY_HOME or ~/.covey)")


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`: one object on stdout instead of text."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def find_status(home: Home) -> Status | None:
    """How the fleet of `home` stands; None if none runs there. Raises `AskTimeout` where it does not answer."""
    from ...protocol.messages.fleet import Status, StatusQuery
    from ..quick import ask_root
    from ..running import running_root

    info = running_root(home)
    if info is None:
        return None
    status = ask_root(info.sockets, StatusQuery(), timeout_s=5.0)
    assert isinstance(status, Status), "the root answers a status query with a status"
    return status


def nobody_home(home: Home) -> str:
    """The line that says that no fleet runs, and what to do about it."""
    return f"no fleet runs in {home.path}; start one with `covey up --detach`"


def ago(seconds: float) -> str:
    """A duration for people: `0.4 s`, `12 s`, `3 min`, `5.2 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def local_time(unix_ms: int, *, now: float) -> str:
    """A moment in this machine's time zone: `14:05:03`, with the date if it is not that of `now` (Unix seconds)."""
    try:
        at = time.localtime(unix_ms / 1000)
    except (OverflowError, ValueError, OSError):
        return f"Unix time {unix_ms} ms"
    is_today = at[:3] == time.localtime(now)[:3]
    return time.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S", at)
