"""Anthropic Messages, read from the provider's side: the same conversation in other words.

Blocks that are neither text nor about tools (pictures, thinking) count as empty. Text beside tool results belongs to
the last of them: clients put reminders there, and those open no new round.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from .provider_chat import Asked, ChatMessage, FunctionCall, ToolCallMade, asked, check, decoded


class Block(msgspec.Struct, frozen=True):
    """One block of content; which fields count depends on `type`."""

    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    tool_use_id: str = ""
    content: str | tuple[Block, ...] | None = None


class Message(msgspec.Struct, frozen=True):
    """One message of the history."""

    role: Literal["user", "assistant"]
    content: str | tuple[Block, ...]


class Tool(msgspec.Struct, frozen=True):
    """A tool the model may call; its schema only counts as tokens."""

    name: str


class ToolChoice(msgspec.Struct, frozen=True):
    """`none`: no tool may be called now."""

    type: str


class MessagesRequest(msgspec.Struct, frozen=True):
    """The fields the simulation looks at; the others are accepted as they are."""

    model: str
    messages: tuple[Message, ...]
    max_tokens: int
    system: str | tuple[Block, ...] = ""
    stream: bool | None = None
    tools: tuple[Tool, ...] | None = None
    tool_choice: ToolChoice | None = None


class _Offered(msgspec.Struct, frozen=True):
    tools: msgspec.Raw = msgspec.Raw(b"null")


_REQUEST = msgspec.json.Decoder(MessagesRequest)
_OFFERED = msgspec.json.Decoder(_Offered)


def read_messages(body: bytes) -> Asked:
    """The request in `body`; raises `Refused` with 1210 for what is no JSON and 1214 for what is no request."""
    request = decoded(body, _REQUEST)
    history = [said for message in request.messages for said in _translated(message)]
    check(history)
    system = _text(request.system)
    if system:
        history.insert(0, ChatMessage(role="system", content=system))
    is_off = request.tool_choice is not None and request.tool_choice.type == "none"
    return asked(
        history,
        model=request.model,
        tools=frozenset(() if is_off else (tool.name for tool in request.tools or ())),
        offered=bytes(_OFFERED.decode(body).tools) if request.tools else b"null",
        is_stream=request.stream is True,
    )


def _translated(message: Message) -> Iterator[ChatMessage]:
    blocks = () if isinstance(message.content, str) else message.content
    text = _text(message.content)
    if message.role == "assistant":
        calls = tuple(
            ToolCallMade(id=block.id, function=FunctionCall(name=block.name, arguments=bytes(block.input).decode()))
            for block in blocks
            if block.type == "tool_use"
        )
        yield ChatMessage(role="assistant", content=text, tool_calls=calls or None)
        return
    results = [block for block in blocks if block.type == "tool_result"]
    for block in results:
        beside = text if block is results[-1] else ""
        yield ChatMessage(role="tool", content=_text(block.content or "") + beside, tool_call_id=block.tool_use_id)
    if not results:
        yield ChatMessage(role="user", content=text)


def _text(content: str | tuple[Block, ...]) -> str:
    if isinstance(content, str):
        return content
    return "".join(block.text for block in content if block.type == "text")
