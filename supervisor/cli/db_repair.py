"""`covey db repair` and `covey db vacuum`: what needs a state.db that no fleet has open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import StoreError
from ...storage.database import TooSlow
from ...storage.repair import How, repair
from ...storage.upkeep import vacuum
from ..running import refuse_if_running
from .budget_words import printable
from .db_words import many, progress, rows_words, size_words
from .output import print_json, print_line

if TYPE_CHECKING:
    from ...storage.repair import Repaired
    from ..home import Home

WORDS = {
    How.SOUND: "is sound; nothing was done",
    How.REPLAYED: "is sound again: its WAL was taken in",
    How.REBUILT: "is sound again: what is derived from its rows was built anew, and no row was lost",
    How.SALVAGED: "is sound again: what could be read was carried over into a new one",
}


def repair_db(home: Home, *, timeout_s: float, as_json: bool) -> int:
    """Repair; says what was wrong, what was done and what was lost."""
    refuse_if_running(home)
    with progress() as shown:
        try:
            done = repair(home.state_db, deadline_s=timeout_s, on_step=lambda step: shown.say(step, at_once=True))
        except TooSlow:
            raise StoreError(
                f"{home.state_db} was not repaired within {timeout_s:g} s and is as it was; say --timeout"
            ) from None
    if as_json:
        print_json(done)
    else:
        _say_repaired(done)
    return 0


def vacuum_db(home: Home, *, as_json: bool) -> int:
    """Vacuum; says how much room came back."""
    refuse_if_running(home)
    with progress() as shown:
        shown.say(f"writing {home.state_db} anew", at_once=True)
        done = vacuum(home.state_db)
    if as_json:
        print_json(done)
    else:
        before, after = size_words(done.bytes_before), size_words(done.bytes_after)
        print_line(f"{done.path}: {before} before, {after} now, in {done.took_s:.2f} s")
    return 0


def _say_repaired(done: Repaired) -> None:
    print_line(f"{done.path} {WORDS[done.how]}")
    for line in done.findings:
        print_line(f"was wrong: {printable(line)}")
    print_line(f"it holds {rows_words(done.rows)}")
    for table in done.tables:
        lost = [
            *([f"{many(table.missing, 'row')} missing"] if table.missing else []),
            *([f"{many(table.unfit, 'row')} made no sense"] if table.unfit else []),
        ]
        if lost or table.unreadable:
            said = ", ".join(lost) if lost else "all there, as far as their numbers tell"
            print_line(f"{table.table}: {table.rows:,} kept, {said}")
    if done.how is How.SALVAGED:
        print_line("rows at the end of a table leave no gap: what came last may be missing, too")
    if done.originals is not None:
        print_line(f"the files as they were: {done.originals}")
