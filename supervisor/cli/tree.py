"""`covey tree`: every process of the fleet under who supervises it, with its agents."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .common import add_home, add_json, ago, find_status, nobody_home
from .output import print_json

if TYPE_CHECKING:
    from rich.tree import Tree

    from ...protocol.messages.fleet import AgentView, ProcessView, Status

HELP = "show the process tree with its agents"

MAX_AGENTS_SHOWN = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    add_home(parser)
    add_json(parser)
    parser.add_argument("--all", action="store_true", help="show ended agents too")


def run(args: argparse.Namespace) -> int:
    """Show; exit code 0 also when nothing runs."""
    from ..home import Home

    home = Home.locate(args.home)
    status = find_status(home)
    if status is None:
        if args.json:
            print_json({"running": False, "home": str(home.path), "strategy": None, "tree": None})
        else:
            print(nobody_home(home))
        return 0
    if args.json:
        print_json(as_json(status, everything=args.all))
    else:
        _show(status, everything=args.all)
    return 0


def as_json(status: Status, *, everything: bool) -> dict[str, Any]:
    """The tree as nested objects; later versions only add keys."""
    root, zygote, children = _parts(status)
    below = _agents_by_worker(_shown(status.agents, everything=everything))
    nested = [{**_process_json(one), "agents": _agents_json(below.pop(one.name, []))} for one in children]
    return {
        "running": True,
        "home": status.home,
        "strategy": status.strategy,
        "tree": {**_process_json(root), "zygote": _process_json(zygote) if zygote else None, "children": nested},
        "unplaced": _agents_json([agent for agents in below.values() for agent in agents]),
    }


def _process_json(process: ProcessView) -> dict[str, Any]:
    return {
        "role": process.role,
        "name": process.name,
        "pid": process.pid,
        "incarnation": process.incarnation or None,
        "rank": process.rank,
        "restart": process.restart or None,
        "state": process.state,
        "uptime_s": process.uptime_s,
        "restarts": process.restarts,
        "restarts_left": process.restarts_left,
        "last_exit": process.last_exit,
        "rss_mb": process.rss_mb,
        "threads": process.threads,
        "over_limit": process.over_limit,
    }


def _agents_json(agents: Iterable[AgentView]) -> list[dict[str, Any]]:
    return [
        {
            "id": agent.id,
            "parent": agent.parent,
            "state": agent.state.value,
            "turn": agent.turn,
            "waits_for": agent.waits_for,
            "age_s": agent.age_s,
            "goal": agent.goal,
        }
        for agent in agents
    ]


def _show(status: Status, *, everything: bool) -> None:
    from rich.text import Text
    from rich.tree import Tree

    from .output import console

    root, zygote, children = _parts(status)
    below = _agents_by_worker(_shown(status.agents, everything=everything))
    top = Tree(Text(f"{_line(root)}, {status.strategy}, home {status.home}"))
    trunk = top.add(Text(_line(zygote))) if zygote is not None else top
    rank: Tree | None = None
    for number, process in enumerate(children):
        if rank is None or process.rank != children[number - 1].rank:
            rank = trunk.add(Text(f"rank {process.rank}"))
        _add_agents(rank.add(Text(_line(process))), below.pop(process.name, []))
    unplaced = [agent for agents in below.values() for agent in agents]
    if unplaced:
        _add_agents(top.add(Text("without a worker")), unplaced)
    console().print(top)


def _parts(status: Status) -> tuple[ProcessView, ProcessView | None, list[ProcessView]]:
    """The root, its zygote, and the children of the tree in order of rank."""
    by_role = {process.role: process for process in status.processes}
    children = [process for process in status.processes if process.role not in ("root", "zygote")]
    return by_role["root"], by_role.get("zygote"), sorted(children, key=lambda process: process.rank)


def _line(process: ProcessView) -> str:
    words = [process.name, f"pid {process.pid}" if process.pid else "no process"]
    if process.incarnation:
        words.append(f"incarnation {process.incarnation}")
    if process.restart:
        words.append(process.restart)
    words.append(f"{process.state} for {ago(process.uptime_s)}" if process.state == "running" else process.state)
    if process.restarts:
        words.append(f"restarted {process.restarts} times" if process.restarts > 1 else "restarted once")
    if process.restarts_left is not None:
        words.append(f"{process.restarts_left} restarts left")
    if process.last_exit is not None:
        words.append(f"last ended: {process.last_exit}")
    if process.over_limit is not None:
        words.append(f"over its limit: {process.over_limit}")
    if process.rss_mb:
        words.append(f"{process.rss_mb:.0f} MB")
    return ", ".join(words)


def _shown(agents: Iterable[AgentView], *, everything: bool) -> list[AgentView]:
    return [agent for agent in agents if everything or not agent.state.is_final]


def _agents_by_worker(agents: Iterable[AgentView]) -> dict[str, list[AgentView]]:
    found: dict[str, list[AgentView]] = {}
    for agent in agents:
        found.setdefault(agent.worker or "", []).append(agent)
    return found


def _add_agents(branch: Tree, agents: list[AgentView]) -> None:
    """Agents below their worker, and below their parent where that is in the same one."""
    from rich.text import Text

    branches: dict[str, Tree] = {}
    for agent in agents[:MAX_AGENTS_SHOWN]:
        over = branches.get(agent.parent or "", branch)
        branches[agent.id] = over.add(Text(_agent_line(agent)))
    if len(agents) > MAX_AGENTS_SHOWN:
        branch.add(Text(f"… and {len(agents) - MAX_AGENTS_SHOWN} more agents (`--json` has all)"))


def _agent_line(agent: AgentView) -> str:
    goal = agent.goal.splitlines()[0][:60] if agent.goal else ""
    waits = f", waits for {agent.waits_for}" if agent.waits_for else ""
    return f"{agent.id} {agent.state.value}, turn {agent.turn}, {ago(agent.age_s)}{waits}: {goal}"
