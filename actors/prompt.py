"""What an agent is told before its goal. Short, and the same in every turn, so that providers can cache it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..protocol.messages.fleet import AgentSpec

STATIC: Final = "\n".join(
    (
        "You are an agent that works on one goal until it is reached.",
        "Nobody answers questions: decide yourself, and say what you assumed.",
        "When the goal is reached, or cannot be, answer without calling a tool. That answer is your result"
        " and the only thing that is handed on: say what you found or did, where it is, and what is left open.",
    )
)
"""How every prompt begins, whoever the agent is: agents with the same tools share it in a provider's cache."""


def system_prompt(spec: AgentSpec, tools: Iterable[str]) -> str:
    """Who the agent is, how it ends and where it works."""
    names = ", ".join(tools)
    lines = [
        STATIC,
        f"Your workspace is {spec.workspace}; paths are relative to it and cannot leave it." if names else "",
        f"Tools: {names}. Call them to find out and to act; their results come back to you." if names else "",
    ]
    return "\n".join(line for line in lines if line)


def request(spec: AgentSpec) -> str:
    """The first message: the goal, and what is known about it."""
    return f"{spec.goal}\n\nContext:\n{spec.context}" if spec.context else spec.goal
