"""Messages of a conversation, as they are kept and as they may be sent."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool the model asked for. `arguments` is the JSON text as the model wrote it: it may not parse."""

    id: str
    name: str
    arguments: str


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message. `tool_calls` only on the assistant's, `tool_call_id` only on a tool's."""

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
