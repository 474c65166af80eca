"""A swarm: many goals for agents of one fleet, from a file. One child's failure never loses another's result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from ..protocol.errors import ConfigError, CoveyError
from ..protocol.ids import AgentId, SessionId
from ..protocol.messages.broker import Priority
from ..protocol.messages.fleet import AgentResult, AgentState
from .client import DEFAULT_TOOLS, AsyncFleet
from .config_text import compose, describe, line_at, pairs, read_text, scalar

MAX_TASKS: Final = 10_000
_NO_SESSION: Final = SessionId("")


@dataclass(frozen=True, slots=True)
class Task:
    """One goal. `model` is None for the swarm's or the configured default."""

    goal: str
    context: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Swarm:
    """A swarm file as it was read."""

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


def read_swarm(path: Path) -> Swarm:
    """Read a swarm file; raises `ConfigError` with file, line and key for anything that cannot be meant."""
    text = read_text(path)
    reader = _Reader(text, str(path))
    root = compose(text, str(path))
    if root is None:
        reader.refuse(None, "tasks", "the file is empty or missing", "`tasks:` with a list of `goal: …`")
    return reader.swarm(root)


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


class _Reader:
    """Turns nodes into a `Swarm`, and knows the line of everything it refuses."""

    def __init__(self, text: str, file: str) -> None:
        self._text = text
        self._file = file

    def refuse(self, node: Node | None, key: str | None, problem: str, valid: str) -> NoReturn:
        """Raise the `ConfigError` for this place."""
        line = line_at(self._text, node.start_mark.index) if node is not None else None
        raise ConfigError(problem, file=self._file, line=line, key=key, valid=valid)

    def swarm(self, root: MappingNode | None) -> Swarm:
        """The whole file."""
        assert root is not None, "an empty file was refused"
        known = ("tasks", "model", "max_children", "tools", "max_answer_tokens")
        fields = dict(self._fields(root, "", known))
        if "tasks" not in fields:
            self.refuse(root, "tasks", "there are no tasks", "a list of `goal: …`")
        return Swarm(
            tasks=tuple(self._tasks(fields["tasks"])),
            model=self._text_of(fields["model"], "model") if "model" in fields else None,
            max_children=self._count(fields, "max_children"),
            tools=tuple(self._tools(fields["tools"])) if "tools" in fields else DEFAULT_TOOLS,
            max_answer_tokens=self._count(fields, "max_answer_tokens"),
        )

    def _tasks(self, node: Node) -> Iterator[Task]:
        if not isinstance(node, SequenceNode) or not 0 < len(node.value) <= MAX_TASKS:
            self.refuse(
                node, "tasks", f"it is {describe(node)}", f"a list of 1 to {MAX_TASKS} tasks, each with a `goal`"
            )
        for number, item in enumerate(node.value):
            key = f"tasks[{number}]"
            if not isinstance(item, MappingNode):
                self.refuse(item, key, f"it is {describe(item)}", "a mapping with `goal`, `context`, `model`")
            fields = dict(self._fields(item, key + ".", ("goal", "context", "model")))
            if "goal" not in fields:
                self.refuse(item, f"{key}.goal", "it is missing", "what the child is to achieve")
            yield Task(**{name: self._text_of(value, f"{key}.{name}") for name, value in fields.items()})

    def _fields(self, node: MappingNode, prefix: str, known: tuple[str, ...]) -> Iterator[tuple[str, Node]]:
        seen: set[str] = set()
        for key_node, value in pairs(node):
            if not isinstance(key_node, ScalarNode):
                self.refuse(key_node, prefix[:-1] or None, f"{describe(key_node)} is used as a key", ", ".join(known))
            key = str(key_node.value)
            if key not in known:
                self.refuse(key_node, prefix + key, "an unknown key", ", ".join(known))
            if key in seen:
                self.refuse(key_node, prefix + key, "it stands here twice", "each key once")
            seen.add(key)
            yield key, value

    def _text_of(self, node: Node, key: str) -> str:
        value = scalar(node) if isinstance(node, ScalarNode) else None
        if not isinstance(value, str) or not value.strip():
            self.refuse(node, key, "it is no text", "text, in quotes if it looks like a number")
        return str(value)

    def _tools(self, node: Node) -> Iterator[str]:
        valid = f"a list of some of {', '.join(DEFAULT_TOOLS)}, each once; [] for none"
        if not isinstance(node, SequenceNode):
            self.refuse(node, "tools", f"it is {describe(node)}", valid)
        seen: set[str] = set()
        for number, item in enumerate(node.value):
            name = self._text_of(item, f"tools[{number}]")
            if name not in DEFAULT_TOOLS:
                self.refuse(item, f"tools[{number}]", f"there is no tool {name!r}", valid)
            if name in seen:
                self.refuse(item, f"tools[{number}]", f"{name} stands here twice", valid)
            seen.add(name)
            yield name

    def _count(self, fields: dict[str, Node], key: str) -> int | None:
        if key not in fields:
            return None
        node = fields[key]
        value = scalar(node) if isinstance(node, ScalarNode) else None
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.refuse(node, key, "it is no count", "a whole number from 1")
        assert isinstance(value, int), "everything else was refused"
        return value
