"""delegate_task: hand goals to child agents and wait for all their results.

The ids of the children follow from the parent's session, the tool call and the number of the task. So a parent that is
resumed after a crash asks for the same children again, and the fleet, which starts an agent only once, hands it the
results of those that already ran.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

import msgspec

from ..protocol.dialects.base import ToolSpec
from ..protocol.errors import CoveyError
from ..protocol.ids import AgentId, SessionId
from ..protocol.messages.broker import Priority
from ..protocol.messages.fleet import AgentResult, AgentSpec, AgentState
from .conversation import bounded
from .ports import Children
from .tools.base import ToolError, parse, spec

AT_ONCE: Final = 10
MAX_TASKS: Final = 100
TEXT_CHARS: Final = 24_000
ALL_CHARS: Final = 90_000
LEAST_CHARS: Final = 200
ASK_AGAIN_S: Final = 1.0
ASK_TRIES: Final = 5
STOP_S: Final = 10.0

NAME: Final = "delegate_task"


class _Task(msgspec.Struct, frozen=True):
    goal: str
    context: str | None = None


class _Tasks(msgspec.Struct, frozen=True):
    tasks: list[_Task]


class ChildReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the model reads about one child."""

    task: int
    agent: AgentId
    outcome: AgentState
    text: str = ""
    error: str | None = None
    turns: int = 0


class DelegateTask:
    """Child agents in the same fleet, at most `at_once` of this call at a time; the others wait for their turn here."""

    is_repeatable = True

    def __init__(
        self,
        parent: AgentSpec,
        children: Children,
        *,
        max_depth: int,
        delegating: Callable[[], AbstractContextManager[None]],
        at_once: int = AT_ONCE,
    ) -> None:
        """`delegating` is entered while children are waited for."""
        self._parent, self._children, self._max_depth = parent, children, max_depth
        self._delegating, self._at_once = delegating, at_once
        self.spec: ToolSpec = spec(
            NAME,
            "Hand tasks to child agents that work in parallel with the same tools and workspace, and wait for their"
            f" results. A child knows only its goal and context. At most {MAX_TASKS} tasks,"
            f" {at_once} of them at once.",
            {
                "tasks": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "properties": {"goal": {"type": "string"}, "context": {"type": "string"}},
                        "required": ["goal"],
                    },
                }
            },
            required=("tasks",),
        )

    async def run(self, call_id: str, arguments: str) -> str:
        """One JSON object with a report for each task, in their order; a failed child does not lose the others.

        Cancelled, it stops the children before it ends.
        """
        tasks = parse(_Tasks, arguments).tasks
        self._check(tasks)
        specs = [self._child(call_id, number, task) for number, task in enumerate(tasks)]
        gate = asyncio.Semaphore(self._at_once)
        with self._delegating():
            try:
                async with asyncio.TaskGroup() as group:
                    running = [group.create_task(self._one(number, child, gate)) for number, child in enumerate(specs)]
            except BaseException:
                await self._stop(tuple(child.agent for child in specs))
                raise
        return _joined([task.result() for task in running])

    def _check(self, tasks: list[_Task]) -> None:
        if self._parent.depth >= self._max_depth:
            raise ToolError(
                f"this agent is at depth {self._parent.depth} and fleet.max_spawn_depth is {self._max_depth}:"
                " it cannot delegate; do the work yourself"
            )
        if not 1 <= len(tasks) <= MAX_TASKS:
            raise ToolError(f"{len(tasks)} tasks; between 1 and {MAX_TASKS} are possible")
        for number, task in enumerate(tasks):
            if not task.goal.strip():
                raise ToolError(f"task {number} has no goal")

    def _child(self, call_id: str, number: int, task: _Task) -> AgentSpec:
        parent = self._parent
        agent, session = child_ids(parent.session, call_id, number)
        depth = parent.depth + 1
        return AgentSpec(
            agent=agent,
            session=session,
            goal=task.goal,
            context=task.context,
            workspace=parent.workspace,
            model=parent.model,
            tools=tuple(name for name in parent.tools if name != NAME or depth < self._max_depth),
            parent=parent.agent,
            parent_session=parent.session,
            tree=parent.tree,
            depth=depth,
            max_turns=parent.max_turns,
            max_answer_tokens=parent.max_answer_tokens,
            priority=Priority.SUBAGENT,
            cap=parent.cap,
            source="delegate",
        )

    async def _one(self, number: int, child: AgentSpec, gate: asyncio.Semaphore) -> ChildReport:
        async with gate:
            try:
                await self._children.spawn(child)
                result = await self._result(child.agent)
            except CoveyError as refused:
                return ChildReport(task=number, agent=child.agent, outcome=AgentState.FAILED, error=str(refused))
        return _report(number, result)

    async def _result(self, child: AgentId) -> AgentResult:
        """Its end; asks again when the way to it broke, because the child may well live."""
        for _ in range(ASK_TRIES - 1):
            try:
                return await self._children.result(child)
            except CoveyError as broken:
                if not broken.retryable:
                    raise
                await asyncio.sleep(ASK_AGAIN_S)
        return await self._children.result(child)

    async def _stop(self, children: tuple[AgentId, ...]) -> None:
        try:
            async with asyncio.timeout(STOP_S):
                await self._children.stop(children)
        except (CoveyError, TimeoutError):
            return  # whoever stops this agent stops its whole tree as well


def child_ids(parent: SessionId, call_id: str, number: int) -> tuple[AgentId, SessionId]:
    """The ids of the child for task `number` of a tool call: the same for the same call, and for no other."""
    digest = hashlib.sha256(msgspec.json.encode([parent, call_id, number])).hexdigest()
    return AgentId(f"ag_{digest[:12]}"), SessionId(f"ses_{digest[12:24]}")


def _report(number: int, result: AgentResult) -> ChildReport:
    return ChildReport(
        task=number,
        agent=result.agent,
        outcome=result.outcome,
        text=result.text,
        error=result.error,
        turns=result.turns,
    )


def _joined(reports: list[ChildReport]) -> str:
    """All reports as JSON, their texts short enough that the whole need not be cut."""
    room = TEXT_CHARS
    while True:
        text = msgspec.json.encode({"results": [_short(report, room) for report in reports]}).decode()
        if len(text) <= ALL_CHARS or room <= LEAST_CHARS:
            return text
        room //= 2


def _short(report: ChildReport, room: int) -> ChildReport:
    error = None if report.error is None else bounded(report.error, room)
    return msgspec.structs.replace(report, text=bounded(report.text, room), error=error)
