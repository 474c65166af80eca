"""`covey run GOAL`: one agent with tools, and its answer."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from .common import add_home, add_json

if TYPE_CHECKING:
    from ...protocol.messages.fleet import AgentResult
    from ..home import Home

HELP = "run one agent and print its answer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    parser.add_argument("goal", help="what the agent is to achieve")
    parser.add_argument("--context", metavar="TEXT", help="what it should know")
    parser.add_argument("--model", metavar="NAME", help="a model of the default provider, or PROVIDER/NAME")
    parser.add_argument("--workspace", type=Path, metavar="DIR", help="where its tools work (default: this folder)")
    parser.add_argument("--max-turns", type=int, metavar="N", help="model calls at most (default: fleet.max_turns)")
    parser.add_argument("--conversation", metavar="KEY", help="what it goes on with: providers keep that warm")
    add_home(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run; exit code 1 if the agent failed or was stopped, 3 if it met the fleet's budget."""
    from ...protocol.errors import UsageError
    from ..home import Home
    from .agent_end import show_end

    if not args.goal.strip():
        raise UsageError("the goal is empty; say what the agent is to achieve")
    result = asyncio.run(_run(Home.locate(args.home), args))
    return show_end(result, as_json=args.json)


async def _run(home: Home, args: argparse.Namespace) -> AgentResult:
    from ...protocol.messages.broker import Priority
    from ..visit import visit
    from .agent_watch import watched

    async with visit(home, name="covey run") as fleet:
        agent = await fleet.spawn(
            args.goal,
            context=args.context,
            model=args.model,
            workspace=args.workspace,
            max_turns=args.max_turns,
            source="run",
            conversation=args.conversation or None,
            priority=Priority.INTERACTIVE,
        )
        return await watched(fleet, agent, wanted=not args.json)
