"""The fleet of the home: whether it answers, who owns state.db, and what is left of fleets before it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from ..protocol.errors import CoveyError
from ..protocol.messages.fleet import Status, StatusQuery
from ..protocol.version import VERSION
from ..storage.inspection import Condition, inspect
from .doctor_findings import Finding, fail, ok, warn
from .doctor_host import check_drift
from .home import Home, RootInfo
from .leftovers import survivors
from .quick import ask_root

ANSWER_S = 0.3
PARTS_S = 0.15


def check_fleet(home: Home, info: RootInfo | None) -> Iterator[Finding]:
    """Look at the fleet whose root is `info`, or at what was left behind if there is none."""
    if info is not None:
        yield from _check_running(info)
    else:
        yield ok("fleet", "no fleet runs; `covey up --detach` starts one")
        yield _check_database(home)
        yield _check_leftovers(home)


def variables_of(info: RootInfo) -> frozenset[str] | None:
    """The names of the variables the running fleet was started with, never what is in them; None if we may not look."""
    try:
        found = Path(f"/proc/{info.pid}/environ").read_bytes()
    except OSError:
        return None
    return frozenset(entry.partition(b"=")[0].decode(errors="replace") for entry in found.split(b"\0") if b"=" in entry)


def _check_running(info: RootInfo) -> Iterator[Finding]:
    try:
        status = ask_root(info.sockets, StatusQuery(deadline_s=PARTS_S), timeout_s=ANSWER_S)
    except CoveyError as error:
        yield fail("fleet", f"root pid {info.pid} does not answer: {error}", "see `covey logs root`; else `covey down`")
        return
    assert isinstance(status, Status), "the root answers a status query with a status"
    silent = [name for name, part in (("broker", status.budgets), ("ledger", status.ledger)) if part is None]
    down = [process.name for process in status.processes if process.state != "running"]
    if silent or down:
        says = f"the fleet answers, but not all of it: {', '.join(dict.fromkeys(silent + down))}"
        yield warn("fleet", says, "look again; if it stays so, `covey logs` says why")
    else:
        yield ok("fleet", f"the fleet answers: {len(status.processes)} processes, root pid {info.pid}")
    if status.config_problem is not None:
        says = f"the running fleet keeps an earlier config.yaml: {status.config_problem}"
        yield warn("fleet", says, "correct it; `covey config check` says where")
    if info.version != VERSION:
        yield warn("fleet", f"it runs covey {info.version}, this is {VERSION}", "`covey down` and `covey up`")
    boottime = time.clock_gettime(time.CLOCK_BOOTTIME)
    yield check_drift(info.started_unix, info.start_ticks, now=time.time(), boottime=boottime)
    yield from _check_ledger(status)


def _check_ledger(status: Status) -> Iterator[Finding]:
    ledger = status.ledger
    if ledger is None:
        return
    if ledger.fault is not None:
        yield fail("state.db", f"nothing is committed: {ledger.fault}", "clear that; records wait until then")
    if ledger.foreign_writes:
        says = f"somebody else wrote to state.db, {ledger.foreign_writes} times"
        yield fail("state.db", says, "find out which program opens state.db; only the ledger may")
    if ledger.fault is None and not ledger.foreign_writes:
        yield ok("state.db", f"owned by the running ledger: {ledger.rows} rows, {ledger.backlog} waiting")


def _check_database(home: Home) -> Finding:
    path = home.state_db
    found = inspect(path)
    match found.condition:
        case Condition.ABSENT:
            return ok("state.db", "there is none yet")
        case Condition.SOUND:
            return ok("state.db", "nobody owns it, and SQLite finds nothing wrong")
        case Condition.UNCHECKED:
            return ok("state.db", f"not checked: {found.detail}")
        case Condition.OWNED:
            to_do = "`covey down`; if it stays so, end the process that holds state.db.lock"
            return warn("state.db", "a ledger owns it although no fleet runs here", to_do)
        case Condition.TOO_NEW:
            return fail("state.db", f"it was written by a newer covey: {found.detail}", "install that one")
        case Condition.FOREIGN:
            return fail("state.db", found.detail, "move it away, or choose another home")
        case Condition.DAMAGED:
            return fail("state.db", f"it is damaged: {found.detail}", "restore a backup; the file was not changed")


def _check_leftovers(home: Home) -> Finding:
    left = survivors(home.processes)
    if left:
        pids = ", ".join(str(owner.pid) for owner in left[:10])
        says = f"{len(left)} processes of an earlier fleet are left: {pids}"
        return warn("leftovers", says, "`covey up` ends them before it starts anything")
    return ok("leftovers", "no process of an earlier fleet is left")
