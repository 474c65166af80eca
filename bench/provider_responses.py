"""OpenAI Responses, read from the provider's side: items of a history instead of messages.

An assistant's calls stand beside its words as items of their own; together they are one turn. Reasoning that is sent
back, and kinds of items that nobody here knows, count as nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from .provider_chat import Asked, ChatMessage, FunctionCall, Part, ToolCallMade, asked, check, decoded
from .provider_errors import Refused, refusal


class Item(msgspec.Struct, frozen=True):
    """One item of the history; which fields count depends on `type`. A message may leave its type out."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | tuple[Part, ...] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: str | tuple[Part, ...] = ""


class Tool(msgspec.Struct, frozen=True):
    """A tool the model may call; those of the provider's own have no name."""

    type: str
    name: str = ""


class ResponsesRequest(msgspec.Struct, frozen=True):
    """The fields the simulation looks at; the others are accepted as they are."""

    model: str
    input: str | tuple[Item, ...]
    instructions: str | None = None
    stream: bool | None = None
    tools: tuple[Tool, ...] | None = None
    tool_choice: msgspec.Raw = msgspec.Raw(b"null")


class _Offered(msgspec.Struct, frozen=True):
    tools: msgspec.Raw = msgspec.Raw(b"null")


_REQUEST = msgspec.json.Decoder(ResponsesRequest)
_OFFERED = msgspec.json.Decoder(_Offered)


def read_responses(body: bytes) -> Asked:
    """The request in `body`; raises `Refused` with 1210 for what is no JSON and 1214 for what is no request."""
    request = decoded(body, _REQUEST)
    items = (Item(role="user", content=request.input),) if isinstance(request.input, str) else request.input
    history = _translated(items)
    check(history)
    if request.instructions:
        history.insert(0, ChatMessage(role="system", content=request.instructions))
    is_off = bytes(request.tool_choice) == b'"none"'
    return asked(
        history,
        model=request.model,
        tools=frozenset(() if is_off else (tool.name for tool in request.tools or () if tool.name)),
        offered=bytes(_OFFERED.decode(body).tools) if request.tools else b"null",
        is_stream=request.stream is True,
    )


def _translated(items: Iterable[Item]) -> list[ChatMessage]:
    history: list[ChatMessage] = []
    for index, item in enumerate(items):
        match item.type:
            case "message":
                if item.role is None:
                    raise Refused(refusal("1214", f"input[{index}] is a message of nobody: role is missing"))
                history.append(ChatMessage(role=item.role, content=item.content))
            case "function_call":
                call = ToolCallMade(id=item.call_id, function=FunctionCall(name=item.name, arguments=item.arguments))
                _add_call(history, call)
            case "function_call_output":
                history.append(ChatMessage(role="tool", content=item.output, tool_call_id=item.call_id))
            case _:
                pass
    return history


def _add_call(history: list[ChatMessage], call: ToolCallMade) -> None:
    last = history[-1] if history else None
    if last is None or last.role != "assistant":
        history.append(ChatMessage(role="assistant", tool_calls=(call,)))
    else:
        history[-1] = msgspec.structs.replace(last, tool_calls=(*(last.tool_calls or ()), call))
