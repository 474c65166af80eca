"""`covey swarm FILE`: run many goals side by side under the fleet's limits."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .common import add_home, add_json
from .output import print_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...protocol.ids import AgentId
    from ...protocol.messages.broker import CapView
    from ..client import AsyncFleet
    from ..home import Home
    from ..swarm import Child, Swarm
    from .live import LiveView

HELP = "run the tasks of a file as a swarm of agents"

REFRESH_S = 0.2

CAP_REACHED = 3
"""Exit code of a command whose agents ended because what may be spent was spent."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    parser.add_argument("file", type=Path, help="YAML with `tasks:` (each `goal`, optional `context`, `model`)")
    parser.add_argument("--workspace", type=Path, metavar="DIR", help="where the tools work (default: this folder)")
    add_home(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run; exit code 1 if any child failed, else 3 if any met the swarm's budget or the fleet's."""
    from ..home import Home
    from ..swarm_file import read_swarm

    swarm = read_swarm(args.file)
    home = Home.locate(args.home)
    workspace = (args.workspace or Path.cwd()).resolve()
    spent: list[CapView] = []
    children, wall_s = asyncio.run(_run(home, swarm, workspace, quiet=args.json, on_spent=spent.append))
    if args.json:
        print_json(as_json(children, wall_s, *spent))
    else:
        _show(children, wall_s, *spent)
    return _exit_code(children)


def _exit_code(children: list[Child]) -> int:
    if all(child.ok for child in children):
        return 0
    return CAP_REACHED if all(child.ok or child.met_cap for child in children) else 1


def as_json(children: list[Child], wall_s: float, spent: CapView | None = None) -> dict[str, Any]:
    """The outcome as documented in docs/swarm.md."""
    results = [child.result for child in children]
    return {
        "children": len(children),
        "ok": sum(child.ok for child in children),
        "wall_s": round(wall_s, 3),
        "budget": None if spent is None else _budget_json(spent),
        "prompt_tokens": sum(result.prompt_tokens for result in results),
        "completion_tokens": sum(result.completion_tokens for result in results),
        "results": [
            {
                "goal": child.task.goal,
                "agent": child.result.agent,
                "session": child.result.session,
                "outcome": child.result.outcome.value,
                "text": child.result.text,
                "error": child.result.error,
                "turns": child.result.turns,
                "calls": child.result.calls,
                "prompt_tokens": child.result.prompt_tokens,
                "completion_tokens": child.result.completion_tokens,
            }
            for child in children
        ],
    }


def _budget_json(spent: CapView) -> dict[str, Any]:
    return {
        "tokens": spent.tokens,
        "max_tokens": spent.max_tokens,
        "cost_usd": round(spent.cost_usd, 6),
        "max_cost_usd": spent.max_cost_usd,
        "unknown_calls": spent.unknown_calls,
    }


async def _run(
    home: Home, swarm: Swarm, workspace: Path, *, quiet: bool, on_spent: Callable[[CapView], None]
) -> tuple[list[Child], float]:
    from ..swarm import run_swarm
    from ..visit import visit
    from .live import LiveView

    async with visit(home, name="covey swarm") as fleet:
        numbers: dict[AgentId, int] = {}
        with LiveView(wanted=not quiet) as view:
            watcher = asyncio.create_task(_watch(fleet, view, numbers, len(swarm.tasks)))
            try:
                return await run_swarm(
                    fleet,
                    swarm,
                    workspace=workspace,
                    on_spawned=lambda number, agent: numbers.__setitem__(agent, number),
                    on_spent=on_spent,
                )
            finally:
                watcher.cancel()


async def _watch(fleet: AsyncFleet, view: LiveView, numbers: dict[AgentId, int], total: int) -> None:
    from .live import Row

    while view.is_on:
        agents = [agent for agent in await fleet.agents() if agent.id in numbers]
        rows = [
            Row(f"{numbers[agent.id] + 1}", agent.worker or "", agent.state.value, agent.turn, agent.tokens)
            for agent in sorted(agents, key=lambda agent: numbers[agent.id])
        ]
        done = sum(agent.state.is_final for agent in agents)
        view.show(rows, f"{done} of {total} ended, {sum(row.tokens for row in rows)} tokens")
        await asyncio.sleep(REFRESH_S)


def _show(children: list[Child], wall_s: float, spent: CapView | None = None) -> None:
    from .output import console

    out = console()
    for number, child in enumerate(children, 1):
        result = child.result
        color = "yellow" if child.met_cap else "red"
        mark = "[green]done[/]" if child.ok else f"[{color}]{result.outcome.value}[/]"
        out.print(f"{mark} {number}. {_first_line(child.task.goal)}", highlight=False)
        out.print(
            result.text if child.ok else result.error or "",
            markup=False,
            highlight=False,
            style="" if child.ok else color,
        )
    tokens = sum(child.result.prompt_tokens + child.result.completion_tokens for child in children)
    calls = sum(child.result.calls for child in children)
    ok = sum(child.ok for child in children)
    out.print(f"{ok} of {len(children)} children done, {calls} calls, {tokens} tokens, {wall_s:.1f} s", highlight=False)
    if spent is not None:
        out.print(_spent_line(spent), highlight=False)


def _spent_line(spent: CapView) -> str:
    parts = []
    if spent.max_tokens is not None:
        parts.append(f"{spent.tokens} of {spent.max_tokens} tokens")
    if spent.max_cost_usd is not None:
        parts.append(f"{spent.cost_usd:.4f} of {spent.max_cost_usd:.4f} USD")
    estimated = f" ({spent.unknown_calls} calls as estimated: their usage is unknown)" if spent.unknown_calls else ""
    return f"budget: {', '.join(parts)} spent{estimated}"


def _first_line(goal: str) -> str:
    lines = goal.strip().splitlines()
    return lines[0][:100].replace("[", r"\[") if lines else ""
