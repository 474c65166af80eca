"""A swarm: many goals for agents of one fleet. One child's failure never loses another's result."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..protocol.errors import CoveyError
from ..protocol.ids import AgentId, SessionId
from ..protocol.messages.broker import CapView, Priority
from ..protocol.messages.fleet import AgentResult, AgentState
from .client import DEFAULT_TOOLS, AsyncFleet
from .swarm_history import SwarmHistory

_NO_SESSION: Final = SessionId("")


@dataclass(frozen=True, slots=True)
class Task:
    """One goal. `model` is None for the swarm's or the configured default."""

    goal: str
    context: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """What all children and everybody below them may use together. None is no limit."""

    max_tokens: int | None = None
    max_cost_usd: float | None = None


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
    budget: Budget | None = None


@dataclass(frozen=True, slots=True)
class Child:
    """How one task went."""

    task: Task
    result: AgentResult

    @property
    def ok(self) -> bool:
        """Whether it reached its goal by its own account."""
        return self.result.outcome is AgentState.DONE

    @property
    def met_cap(self) -> bool:
        """Whether it ended because what may be spent was spent."""
        return self.result.outcome is AgentState.CAP_REACHED


async def run_swarm(
    fleet: AsyncFleet,
    swarm: Swarm,
    *,
    workspace: Path,
    on_spawned: Callable[[int, AgentId], None] = lambda number, agent: None,
    on_spent: Callable[[CapView], None] = lambda spent: None,
) -> tuple[list[Child], float]:
    """Run every task; returns the children in the order of the file and the wall time in seconds.

    `on_spent` is told what came of the budget, if there is one and the broker says.
    """
    cap = await _declare(fleet, swarm.budget)
    history = SwarmHistory(fleet.records.record, len(swarm.tasks))
    gate = asyncio.Semaphore(swarm.max_children or len(swarm.tasks))
    started = time.monotonic()

    async def run(number: int, task: Task) -> Child:
        async with gate:

            def spawned(agent: AgentId, session: SessionId) -> None:
                history.started(number, task.goal, agent, session)
                on_spawned(number, agent)

            result = await _run_task(fleet, swarm, task, workspace, cap=cap, on_spawned=spawned)
            history.ended(number, result)
            return Child(task, result)

    with history:
        children = await asyncio.gather(*(run(number, task) for number, task in enumerate(swarm.tasks)))
    wall_s = time.monotonic() - started
    if cap is not None:
        await _tell_spent(fleet, cap, on_spent)
    return list(children), wall_s


async def _declare(fleet: AsyncFleet, budget: Budget | None) -> str | None:
    if budget is None:
        return None
    cap = f"swarm-{secrets.token_hex(6)}"
    await fleet.declare_cap(cap, max_tokens=budget.max_tokens, max_cost_usd=budget.max_cost_usd)
    return cap


async def _tell_spent(fleet: AsyncFleet, cap: str, on_spent: Callable[[CapView], None]) -> None:
    with suppress(CoveyError):
        for one in await fleet.caps():
            if one.name == cap:
                on_spent(one)


async def _run_task(
    fleet: AsyncFleet,
    swarm: Swarm,
    task: Task,
    workspace: Path,
    *,
    cap: str | None,
    on_spawned: Callable[[AgentId, SessionId], None],
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
            cap=cap,
            priority=Priority.SUBAGENT,
        )
    except CoveyError as error:
        nobody = AgentId("")
        return AgentResult(agent=nobody, session=_NO_SESSION, outcome=AgentState.FAILED, error=str(error))
    on_spawned(agent.id, agent.session)
    try:
        return await agent.result()
    except CoveyError as error:
        return AgentResult(agent=agent.id, session=agent.session, outcome=AgentState.FAILED, error=str(error))
    except asyncio.CancelledError:
        await asyncio.shield(agent.stop())
        raise
