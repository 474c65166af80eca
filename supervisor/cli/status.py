"""`covey status`: what runs, what it costs, and who waits for what."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from .common import add_home, add_json, ago
from .output import print_json

if TYPE_CHECKING:
    from rich.console import Console

    from ...protocol.messages.broker import BudgetView
    from ...protocol.messages.fleet import Status

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
    from ..running import running_root

    home = Home.locate(args.home)
    info = running_root(home)
    if info is None:
        if args.json:
            print_json({"running": False, "home": str(home.path), "processes": [], "budgets": [], "agents": []})
        else:
            print(f"no fleet runs in {home.path}; start one with `covey up --detach`")
        return 0
    from ...protocol.messages.fleet import Status, StatusQuery
    from ..quick import ask_root

    status = ask_root(info.sockets, StatusQuery(), timeout_s=5.0)
    assert isinstance(status, Status), "the root answers a status query with a status"
    if args.json:
        print_json(as_json(status))
    else:
        _show(status, everything=args.all)
    return 0


def as_json(status: Status) -> dict[str, Any]:
    """The status as documented in docs/status.md; later versions only add keys."""
    import msgspec

    ledger = status.ledger
    return {
        "running": True,
        "home": status.home,
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
            }
            for process in status.processes
        ],
        "budgets": [_budget_json(budget) for budget in status.budgets or ()],
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


def _budget_json(budget: BudgetView) -> dict[str, Any]:
    return {
        "key": budget.key,
        "provider": budget.provider,
        "limit": budget.limit,
        "in_flight": budget.in_flight,
        "queued": budget.queued,
        "oldest_wait_s": budget.oldest_wait_s,
        "granted": budget.granted,
        "peak_in_flight": budget.peak_in_flight,
        "wait_p50_ms": budget.wait_p50_ms,
        "wait_p99_ms": budget.wait_p99_ms,
        "holders": [
            {"call": h.call, "pid": h.pid, "holder": h.holder, "model": h.model, "held_s": h.held_s, "agent": h.agent}
            for h in budget.holders
        ],
        "waiters": [
            {
                "call": w.call,
                "pid": w.pid,
                "holder": w.holder,
                "model": w.model,
                "waited_s": w.waited_s,
                "position": w.position,
                "priority": w.priority.value,
                "agent": w.agent,
            }
            for w in budget.waiters
        ],
    }


def _show(status: Status, *, everything: bool) -> None:
    from .output import console

    out = console()
    out.print(f"fleet in {status.home}", highlight=False)
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
            process.state,
        )
    out.print(rows)


def _show_budgets(out: Console, status: Status) -> None:
    from .output import table

    if status.budgets is None:
        out.print("budgets: the broker did not answer in time")
        return
    if not status.budgets:
        out.print("budgets: none (no provider has max_concurrent)")
        return
    rows = table("budget", ">limit", ">in flight", ">queued", ">peak", ">granted", "waiting longest")
    for budget in status.budgets:
        rows.add_row(
            budget.key,
            str(budget.limit),
            str(budget.in_flight),
            str(budget.queued),
            str(budget.peak_in_flight),
            str(budget.granted),
            _longest(budget),
        )
    out.print(rows)


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
            agent.waits_for or "",
            agent.goal.splitlines()[0][:60] if agent.goal else "",
        )
    out.print(rows)
    if len(shown) > MAX_AGENTS_SHOWN:
        out.print(f"… and {len(shown) - MAX_AGENTS_SHOWN} more agents (`--json` has all)")


def _show_ledger(out: Console, status: Status) -> None:
    ledger = status.ledger
    if ledger is None:
        out.print("ledger: did not answer in time")
        return
    size = ledger.db_bytes / 1e6
    out.print(f"ledger: {ledger.rows} rows, backlog {ledger.backlog}, state.db {size:.1f} MB", highlight=False)
