"""What a tool is: a description for the model, and work that ends with a text.

A tool that cannot do what was asked raises `ToolError`; the model reads its text and may try something else. Any other
exception is a bug of ours and ends the agent.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import msgspec

from ...protocol.dialects.base import ToolSpec
from ...protocol.errors import CoveyError

Arguments = TypeVar("Arguments", bound=msgspec.Struct)


class ToolError(CoveyError):
    """The model's move: what it asked for is not possible. Written for the model to read."""


class Tool(Protocol):
    """One tool of one agent."""

    @property
    def spec(self) -> ToolSpec:
        """What the model is told."""
        ...

    @property
    def is_repeatable(self) -> bool:
        """Whether running it again after an interruption does no harm."""
        ...

    async def run(self, call_id: str, arguments: str) -> str:
        """Do it; cancelled when the agent is stopped, and then leaves nothing running."""
        ...


def parse(kind: type[Arguments], arguments: str) -> Arguments:
    """The arguments as facts; raises `ToolError` that says what is wrong with them."""
    try:
        return msgspec.json.decode(arguments.strip() or "{}", type=kind)
    except msgspec.DecodeError as problem:
        raise ToolError(f"invalid arguments: {problem}") from problem


def spec(name: str, description: str, properties: dict[str, Any], *, required: tuple[str, ...]) -> ToolSpec:
    """A tool's description with its JSON Schema, encoded once."""
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ToolSpec(name=name, description=description, parameters=msgspec.Raw(msgspec.json.encode(schema)))
