"""A swarm: many goals for agents of one fleet. One child's failure never loses another's result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..protocol.errors import CoveyError
from ..protocol.ids import AgentId, SessionId
from ..protocol.messages.broker import Priority
from ..protocol.messages.fleet import AgentResult, AgentState
from .client import DEFAULT_TOOLS, AsyncFleet

_NO_SESSION: Final = SessionId("")


@dataclass(frozen=True, slots=True)
class Task:
    """One goal. `model` is None for the swarm's or the configured default."""

    goal: str
    context: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Swarm:
    """What is to be run, and how."""

    tasks: tuple[Task, ...]
    model: str | None = None
    max_children: int | None = None
    """Children alive at once; None starts all."""
    tools: tuple[str, ...] = DEFAULT_TOOLS
    """What every child may use."""
    max_answer_tokens: int | None = None
    """Where answers are cut; None leaves it to the provider."""


@dataclass(frozen=True, slots=True)
class Child:
    """How one task went."""

    task: Task
    result: AgentResult

    @property
    def ok(self) -> bool:
        """Whether it reached its goal by its own account."""
        return self.result.outcome is AgentState.DONE


async def run_swarm(
    fleet: AsyncFleet,
    swarm: Swarm,
    *,
    workspace: Path,
    on_spawned: Callable[[int, AgentId], None] = lambda number, agent: None,
) -> tuple[list[Child], float]:
    """Run every task; returns the children in the order of the file and the wall time in seconds."""
    gate = asyncio.Semaphore(swarm.max_children or len(swarm.tasks))
    started = time.monotonic()

    async def run(number: int, task: Task) -> Child:
        async with gate:
            return Child(task, await _run_task(fleet, swarm, task, workspace, lambda agent: on_spawned(number, agent)))

    children = await asyncio.gather(*(run(number, task) for number, task in enumerate(swarm.tasks)))
    return list(children), time.monotonic() - started


async def _run_task(
    fleet: AsyncFleet, swarm: Swarm, task: Task, workspace: Path, on_spawned: Callable[[AgentId], None]
) -> AgentResult:
    try:
        agent = await fleet.spawn(
            task.goal,
            context=task.context,
            model=task.model or swarm.model,
            workspace=workspace,
            tools=swarm.tools,
            max_answer_tokens=swarm.max_answer_tokens,
            source="swarm",
            priority=Priority.SUBAGENT,
        )
    except CoveyError as error:
        nobody = AgentId("")
        return AgentResult(agent=nobody, session=_NO_SESSION, outcome=AgentState.FAILED, error=str(error))
    on_spawned(agent.id)
    try:
        return await agent.result()
    except CoveyError as error:
        return AgentResult(agent=agent.id, session=agent.session, outcome=AgentState.FAILED, error=str(error))
    except asyncio.CancelledError:
        await asyncio.shield(agent.stop())
        raise
