"""Chat completions: the request. OpenAI's shape, as Z.AI, OpenRouter, llama.cpp, vLLM and most others take it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from ..transcript import Message, Role, ToolCall, repair
from .base import ToolSpec
from .chat_reader import ChatReader
from .posting import bearer_headers, endpoint_at

_PATH = "/chat/completions"


class ChatCompletions:
    """The chat-completions dialect (a `WireDialect`)."""

    def endpoint(self, base_url: str) -> str:
        """The URL to post to; one that names the path already is kept, and so is a query."""
        return endpoint_at(base_url, _PATH)

    def headers(self, api_key: str | None) -> dict[str, str]:
        """The headers of a request; none for authorisation without a key."""
        return bearer_headers(api_key)

    def request_body(
        self,
        *,
        model: str,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        stream: bool = True,
        max_tokens: int | None = None,
    ) -> bytes:
        """The request as JSON, with the history repaired and, in a stream, the usage asked for."""
        request = _Request(
            model=model,
            messages=[_wire_message(message) for message in repair(messages)],
            tools=[_Tool(function=tool) for tool in tools],
            stream=stream,
            stream_options=_StreamOptions() if stream else None,
            max_tokens=max_tokens,
        )
        return _encode(request)

    def reader(self) -> ChatReader:
        """A reader for the body of a 2xx response, streamed or not."""
        return ChatReader()


class _StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = True


class _Tool(msgspec.Struct, frozen=True):
    function: ToolSpec
    type: Literal["function"] = "function"


class _Function(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class _ToolCall(msgspec.Struct, frozen=True):
    id: str
    function: _Function
    type: Literal["function"] = "function"


class _Message(msgspec.Struct, frozen=True):
    role: Role
    content: str | None
    tool_calls: list[_ToolCall] | msgspec.UnsetType = msgspec.UNSET
    tool_call_id: str | msgspec.UnsetType = msgspec.UNSET


class _Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    model: str
    messages: list[_Message]
    stream: bool
    tools: list[_Tool] = []
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None


def _wire_message(message: Message) -> _Message:
    if message.tool_calls:
        # Empty text beside tool calls is refused by some, so there it is null, which OpenAI's schema has.
        calls = [_wire_call(call) for call in message.tool_calls]
        return _Message(role=message.role, content=message.content or None, tool_calls=calls)
    if message.tool_call_id is not None:
        return _Message(role=message.role, content=message.content, tool_call_id=message.tool_call_id)
    return _Message(role=message.role, content=message.content)


def _wire_call(call: ToolCall) -> _ToolCall:
    return _ToolCall(id=call.id, function=_Function(name=call.name, arguments=call.arguments))


def _encode(request: _Request) -> bytes:
    try:
        return msgspec.json.encode(request)
    except UnicodeEncodeError:
        # Lone surrogates come from file names and broken terminals; no JSON text can hold them.
        messages = [_without_surrogates(message) for message in request.messages]
        return msgspec.json.encode(msgspec.structs.replace(request, messages=messages))


def _without_surrogates(message: _Message) -> _Message:
    if message.content is None:
        return message
    return msgspec.structs.replace(message, content=message.content.encode("utf-8", "replace").decode())
