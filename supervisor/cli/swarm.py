"""`covey swarm FILE`: run many goals side by side under the fleet's limits."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .common import add_home, add_json
from .output import print_json

if TYPE_CHECKING:
    from ...protocol.ids import AgentId
    from ..client import AsyncFleet
    from ..home import Home
    from ..swarm import Child, Swarm
    from .live import LiveView

HELP = "run the tasks of a file as a swarm of agents"

REFRESH_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    parser.add_argument("file", type=Path, help="YAML with `tasks:` (each `goal`, optional `context`, `model`)")
    parser.add_argument("--workspace", type=Path, metavar="DIR", help="where the tools work (default: this folder)")
    add_home(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run; exit code 1 if any child failed."""
    from ..home import Home
    from ..swarm_file import read_swarm

    swarm = read_swarm(args.file)
    home = Home.locate(args.home)
    workspace = (args.workspace or Path.cwd()).resolve()
    children, wall_s = asyncio.run(_run(home, swarm, workspace, quiet=args.json))
    if args.json:
        print_json(as_json(children, wall_s))
    else:
        _show(children, wall_s)
    return 0 if all(child.ok for child in children) else 1


def as_json(children: list[Child], wall_s: float) -> dict[str, Any]:
    """The outcome as documented in docs/swarm.md."""
    results = [child.result for child in children]
    return {
        "children": len(children),
        "ok": sum(child.ok for child in children),
        "wall_s": round(wall_s, 3),
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


async def _run(home: Home, swarm: Swarm, workspace: Path, *, quiet: bool) -> tuple[list[Child], float]:
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


def _show(children: list[Child], wall_s: float) -> None:
    from .output import console

    out = console()
    for number, child in enumerate(children, 1):
        result = child.result
        mark = "[green]done[/]" if child.ok else f"[red]{result.outcome.value}[/]"
        out.print(f"{mark} {number}. {_first_line(child.task.goal)}", highlight=False)
        out.print(
            result.text if child.ok else result.error or "",
            markup=False,
            highlight=False,
            style="" if child.ok else "red",
        )
    tokens = sum(child.result.prompt_tokens + child.result.completion_tokens for child in children)
    calls = sum(child.result.calls for child in children)
    ok = sum(child.ok for child in children)
    out.print(f"{ok} of {len(children)} children done, {calls} calls, {tokens} tokens, {wall_s:.1f} s", highlight=False)


def _first_line(goal: str) -> str:
    lines = goal.strip().splitlines()
    return lines[0][:100].replace("[", r"\[") if lines else ""
