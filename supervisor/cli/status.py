"""`covey status`: what runs, what it costs, and who waits for what."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from .common import add_home, add_json, ago, find_status, nobody_home
from .output import print_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console

    from ...protocol.messages.broker import BudgetView
    from ...protocol.messages.fleet import AgentView, Status
    from ...protocol.messages.ledger import LedgerStats

HELP = "show processes, budgets, agents and the ledger"

MAX_AGENTS_SHOWN = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    add_home(parser)
    add_json(parser)
    parser.add_argument("--all", action="store_true", help="list ended agents too")


def run(args: argparse.Namespace) -> int:
    """Show; exit code 0 also when nothing runs."""
    from ..home import Home

    home = Home.locate(args.home)
    status = find_status(home)
    if status is None:
        if args.json:
            print_json({"running": False, "home": str(home.path), "processes": [], "budgets": [], "agents": []})
        else:
            print(nobody_home(home))
        return 0
    if args.json:
        print_json(as_json(status))
    else:
        _show(status, everything=args.all)
    return 0


def as_json(status: Status) -> dict[str, Any]:
    """The status as documented in docs/status.md; later versions only add keys."""
    import msgspec

    from .budget_json import budget_json

    ledger = status.ledger
    return {
        "running": True,
        "home": status.home,
        "config_problem": status.config_problem,
        "processes": [
            {
                "role": process.role,
                "name": process.name,
                "pid": process.pid,
                "uptime_s": process.uptime_s,
                "restarts": process.restarts,
                "rss_mb": process.rss_mb,
                "threads": process.threads,
                "state": process.state,
                "over_limit": process.over_limit,
            }
            for process in status.processes
        ],
        "budgets": [budget_json(budget) for budget in status.budgets or ()],
        "agents": [
            {
                "id": agent.id,
                "parent": agent.parent,
                "session": agent.session,
                "state": agent.state.value,
                "turn": agent.turn,
                "tokens": agent.tokens,
                "worker": agent.worker,
                "goal": agent.goal,
                "waits_for": agent.waits_for,
                "age_s": agent.age_s,
            }
            for agent in status.agents
        ],
        "ledger": None if ledger is None else msgspec.structs.asdict(ledger),
        "unanswered": [name for name, part in (("broker", status.budgets), ("ledger", status.ledger)) if part is None],
    }


def _show(status: Status, *, everything: bool) -> None:
    from .output import console

    out = console()
    out.print(f"fleet in {status.home}", highlight=False)
    if status.config_problem:
        out.print(f"config.yaml is not used as it stands: {status.config_problem}", highlight=False, markup=False)
    _show_processes(out, status)
    _show_budgets(out, status)
    _show_agents(out, status, everything=everything)
    _show_ledger(out, status)


def _show_processes(out: Console, status: Status) -> None:
    from .output import table

    rows = table("process", ">pid", ">up", ">restarts", ">RSS MB", ">threads", "state")
    for process in status.processes:
        rows.add_row(
            process.name,
            str(process.pid),
            ago(process.uptime_s),
            str(process.restarts),
            f"{process.rss_mb:.1f}",
            str(process.threads),
            f"{process.state}, over its limit: {process.over_limit}" if process.over_limit else process.state,
        )
    out.print(rows)


def _show_budgets(out: Console, status: Status) -> None:
    from rich.text import Text

    from .budget_words import STYLES, reason_words
    from .output import table

    if status.budgets is None:
        out.print("budgets: the broker did not answer in time")
        return
    if not status.budgets:
        out.print("budgets: none (no provider has max_concurrent)")
        return
    rows = table("budget", "state", ">limit", ">in flight", ">queued", ">peak", ">granted", "waiting longest")
    for budget in status.budgets:
        rows.add_row(
            budget.key,
            Text(budget.state.value, style=STYLES[budget.state]),
            str(budget.limit),
            str(budget.in_flight),
            str(budget.queued),
            str(budget.peak_in_flight),
            str(budget.granted),
            _longest(budget),
        )
    out.print(rows)
    for budget in status.budgets:
        if why := reason_words(budget, now=time.time()):
            out.print(Text(why, style=STYLES[budget.state]))


def _longest(budget: BudgetView) -> str:
    if budget.oldest_wait_s is None:
        return ""
    if not budget.waiters:
        return ago(budget.oldest_wait_s)
    who = max(budget.waiters, key=lambda waiter: waiter.waited_s)
    return f"{who.agent or who.holder} for {who.model}, {ago(who.waited_s)}, place {who.position}"


def _show_agents(out: Console, status: Status, *, everything: bool) -> None:
    from .output import table

    shown = [agent for agent in status.agents if everything or not agent.state.is_final]
    ended = len(status.agents) - sum(1 for agent in status.agents if not agent.state.is_final)
    if not shown:
        out.print(f"agents: none alive, {ended} ended" + ("" if everything or not ended else " (--all lists them)"))
        return
    rows = table("agent", "state", ">turn", ">tokens", "worker", "waits for", "goal")
    depth: dict[str, int] = {}
    for agent in shown[:MAX_AGENTS_SHOWN]:
        depth[agent.id] = depth.get(agent.parent or "", -1) + 1
        rows.add_row(
            "  " * depth[agent.id] + agent.id,
            agent.state.value,
            str(agent.turn),
            str(agent.tokens),
            agent.worker or "",
            _waits_for(agent, status.budgets or ()),
            agent.goal.splitlines()[0][:60] if agent.goal else "",
        )
    out.print(rows)
    if len(shown) > MAX_AGENTS_SHOWN:
        out.print(f"… and {len(shown) - MAX_AGENTS_SHOWN} more agents (`--json` has all)")


def _waits_for(agent: AgentView, budgets: Iterable[BudgetView]) -> str:
    """What it waits for; of a provider whose budgets let nothing out, until when as well."""
    from ...protocol.messages.broker import BudgetState
    from ...protocol.messages.fleet import AgentState
    from .budget_words import state_words

    waits_for = agent.waits_for or ""
    of_provider = [budget for budget in budgets if budget.provider == agent.waits_for]
    closed = [budget for budget in of_provider if budget.state is not BudgetState.OPEN]
    if agent.state is not AgentState.WAITING or not closed or len(closed) < len(of_provider):
        return waits_for
    return f"{waits_for}, {state_words(closed[0], now=time.time())}"


def _show_ledger(out: Console, status: Status) -> None:
    ledger = status.ledger
    if ledger is None:
        out.print("ledger: did not answer in time")
        return
    size = ledger.db_bytes / 1e6
    out.print(f"ledger: {ledger.rows} rows, backlog {ledger.backlog}, state.db {size:.1f} MB", highlight=False)
    for trouble in _ledger_troubles(ledger):
        out.print(trouble, style="red", highlight=False, markup=False)


def _ledger_troubles(ledger: LedgerStats) -> Iterator[str]:
    if ledger.fault is not None and ledger.is_fault_lasting:
        kept = f"{ledger.journaled} records are kept in state.db.pending for the next one"
        yield f"state.db is given up: {ledger.fault}; {kept}"
    elif ledger.fault is not None:
        yield f"nothing is committed now: {ledger.fault}; records wait"
    if ledger.foreign_writes:
        yield f"somebody else wrote to state.db {ledger.foreign_writes} times; only the ledger may"
    if ledger.is_wal_large:
        yield f"the WAL of state.db has {ledger.wal_bytes / 1e6:.0f} MB: some reader keeps it from being written back"
