"""The tools of one agent, by name."""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.dialects.base import ToolSpec
from ...protocol.transcript import ToolCall
from .base import Tool, ToolError


class Toolbox:
    """What one agent may use; a name it does not hold is answered to the model, not raised."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is told, in a fixed order."""
        return tuple(tool.spec for tool in self._tools.values())

    @property
    def repeatable(self) -> frozenset[str]:
        """Names of tools that may be run again when nobody knows whether they ran."""
        return frozenset(name for name, tool in self._tools.items() if tool.is_repeatable)

    async def run(self, call: ToolCall) -> str:
        """The tool's result, or an error the model can read; never raises for what the model did."""
        tool = self._tools.get(call.name)
        if tool is None:
            return f"error: there is no tool {call.name!r}; there are: {', '.join(self._tools) or 'none'}"
        try:
            return await tool.run(call.id, call.arguments)
        except ToolError as refused:
            return f"error: {refused}"
        except TimeoutError:
            return f"error: {call.name} did not finish in time; whether it had an effect is not known"
