"""`covey db check` and `covey db stats`: whether state.db is sound, and what is in it. Both only read."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ...storage.checkup import check, stats
from .budget_words import printable
from .common import local_time
from .db_words import many, progress, rows_words, size_words
from .output import console, print_json, print_line, table

if TYPE_CHECKING:
    from ...storage.checkup import Checkup, Span, Stats
    from ..home import Home

SHOWN = 20


def check_db(home: Home, *, is_full: bool, timeout_s: float | None, as_json: bool) -> int:
    """Check; exit code 1 if it is damaged, or was not read to its end."""
    with progress() as shown:
        shown.say(f"reading {home.state_db}", at_once=True)
        found = check(home.state_db, is_full=is_full, deadline_s=timeout_s)
    if as_json:
        print_json(found)
    else:
        _say_checked(found)
    return 0 if found.is_sound and found.is_whole else 1


def show_stats(home: Home, *, as_json: bool) -> int:
    """Show what there is."""
    found = stats(home.state_db)
    if as_json:
        print_json(found)
    else:
        _say_stats(found)
    return 0


def _say_checked(found: Checkup) -> None:
    for line in found.findings[:SHOWN]:
        print_line(f"damaged: {printable(line)}")
    if len(found.findings) > SHOWN:
        print_line(f"… and {len(found.findings) - SHOWN} more (`--json` has all)")
    if not found.is_sound:
        print_line("stop the fleet with `covey down`, then run `covey db repair`; originals are kept")
    elif not found.is_whole:
        print_line(f"{found.path}: not read to its end; nothing wrong so far. Give it more time with --timeout")
    else:
        how = "every page and index" if found.is_full else "every page (`--full` compares the indexes, too)"
        print_line(f"{found.path} is sound: {how}, in {found.took_s:.2f} s")
    if found.user_version is not None and found.user_version > found.known_version:
        print_line(f"it is of a newer covey: schema {found.user_version}, this one knows {found.known_version}")
    owner = f"open in the ledger, pid {found.owner_pid}" if found.owner_pid is not None else "nobody has it open"
    free = f", {many(found.free_pages, 'free page')}" if found.free_pages else ""
    print_line(
        f"{size_words(found.db_bytes)} in {many(found.pages or 0, 'page')}{free}, WAL {size_words(found.wal_bytes)},"
        f" schema {found.user_version}; {owner}"
    )


def _say_stats(found: Stats) -> None:
    now = time.time()
    print_line(f"{found.path}: {rows_words(found.rows)}")
    free = f", {size_words(found.free_bytes)} of it unused" if found.free_bytes else ""
    print_line(f"{size_words(found.db_bytes)}{free}, WAL {size_words(found.wal_bytes)}, schema {found.user_version}")
    for name in ("sessions", "messages", "calls"):
        span: Span = getattr(found, name)
        if span.oldest_ms is not None and span.newest_ms is not None:
            print_line(f"{name}: {local_time(span.oldest_ms, now=now)} to {local_time(span.newest_ms, now=now)}")
    if found.largest:
        from rich.text import Text

        rows = table("session", ">messages", ">characters", "goal")
        for one in found.largest:
            goal = printable(one.goal or "")
            rows.add_row(Text(printable(one.session)), f"{one.messages:,}", f"{one.characters:,}", Text(goal[:60]))
        console().print(rows)
