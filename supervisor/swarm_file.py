"""The swarm file: YAML to `Swarm`, and the place of everything that is refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from ..protocol.errors import ConfigError
from .client import DEFAULT_TOOLS
from .config_text import compose, describe, line_at, pairs, read_text, scalar
from .swarm import Budget, Swarm, Task

MAX_TASKS: Final = 10_000


def read_swarm(path: Path) -> Swarm:
    """Read a swarm file; raises `ConfigError` with file, line and key for anything that cannot be meant."""
    text = read_text(path)
    reader = _Reader(text, str(path))
    root = compose(text, str(path))
    if root is None:
        reader.refuse(None, "tasks", "the file is empty or missing", "`tasks:` with a list of `goal: …`")
    return reader.swarm(root)


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
        known = ("tasks", "model", "max_children", "tools", "max_answer_tokens", "budget")
        fields = dict(self._fields(root, "", known))
        if "tasks" not in fields:
            self.refuse(root, "tasks", "there are no tasks", "a list of `goal: …`")
        return Swarm(
            tasks=tuple(self._tasks(fields["tasks"])),
            model=self._text_of(fields["model"], "model") if "model" in fields else None,
            max_children=self._count(fields, "max_children"),
            tools=tuple(self._tools(fields["tools"])) if "tools" in fields else DEFAULT_TOOLS,
            max_answer_tokens=self._count(fields, "max_answer_tokens"),
            budget=self._budget(fields["budget"]) if "budget" in fields else None,
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

    def _budget(self, node: Node) -> Budget:
        valid = "a mapping with `max_tokens`, `max_cost_usd` or both"
        if not isinstance(node, MappingNode):
            self.refuse(node, "budget", f"it is {describe(node)}", valid)
        fields = dict(self._fields(node, "budget.", ("max_tokens", "max_cost_usd")))
        if not fields:
            self.refuse(node, "budget", "it is empty", valid)
        return Budget(self._count(fields, "max_tokens", "budget."), self._dollars(fields, "max_cost_usd", "budget."))

    def _dollars(self, fields: dict[str, Node], key: str, prefix: str) -> float | None:
        if key not in fields:
            return None
        node = fields[key]
        value = scalar(node) if isinstance(node, ScalarNode) else None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < float(value or 0) < math.inf:
            self.refuse(node, prefix + key, "it is no amount", "US dollars, a number above 0")
        return float(value or 0)

    def _count(self, fields: dict[str, Node], key: str, prefix: str = "") -> int | None:
        if key not in fields:
            return None
        node = fields[key]
        value = scalar(node) if isinstance(node, ScalarNode) else None
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.refuse(node, prefix + key, "it is no count", "a whole number from 1")
        assert isinstance(value, int), "everything else was refused"
        return value
