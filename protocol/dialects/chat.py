"""Chat completions: the request. OpenAI's shape, as Z.AI, OpenRouter, llama.cpp, vLLM and most others take it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from ..mending import NO_MENDS, Mends
from ..settings import Dialect
from ..transcript import Message, Role, ToolCall
from .ask import Ask, Choice, Layout, NamedTool, Rendered, Thinking, Traits
from .base import NO_NAMES, ToolSpec
from .chat_parts import Content, contents_of
from .chat_reader import ChatReader
from .draft import Draft, draft_of
from .history import encodable
from .posting import all_headers, bearer_headers, cache_fields, endpoint_at, with_fields
from .thinking import Thought

_PATH: Final = "/chat/completions"


class ChatCompletions:
    """The chat-completions dialect (a `WireDialect`)."""

    def render(
        self, ask: Ask, traits: Traits, *, base_url: str, api_key: str | None, mends: Mends = NO_MENDS
    ) -> Rendered:
        """The request, with the history repaired and, in a stream, the usage asked for."""
        draft = draft_of(ask, traits, mends, Dialect.CHAT, Layout.ENVELOPE)
        return Rendered(
            url=endpoint_at(base_url, _PATH),
            headers=all_headers(bearer_headers(api_key), ask, traits),
            body=with_fields(_encode(draft, traits), cache_fields(ask, traits, mends)),
            max_tokens=draft.max_tokens,
            names=draft.names,
        )

    def headers(self, api_key: str | None) -> dict[str, str]:
        """The headers of a request; none for authorisation without a key."""
        return bearer_headers(api_key)

    def reader(
        self, names: Mapping[str, str] = NO_NAMES, *, model: str = "", reasoning_as_text: bool = False
    ) -> ChatReader:
        """A reader for the body of a 2xx response, streamed or not."""
        del model  # the dialect has no signed blocks
        return ChatReader(names, reasoning_as_text=reasoning_as_text)


class _StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = True


class _Tool(msgspec.Struct, frozen=True):
    function: ToolSpec
    type: Literal["function"] = "function"


class _Name(msgspec.Struct, frozen=True):
    name: str


class _Choice(msgspec.Struct, frozen=True):
    function: _Name
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
    content: Content | None
    tool_calls: list[_ToolCall] | msgspec.UnsetType = msgspec.UNSET
    tool_call_id: str | msgspec.UnsetType = msgspec.UNSET


class _Switch(msgspec.Struct, frozen=True):
    type: Literal["enabled", "disabled"]


class _Reasoning(msgspec.Struct, frozen=True, omit_defaults=True):
    effort: str | None = None
    enabled: bool | None = None


class _Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    model: str
    messages: list[_Message]
    stream: bool
    tools: list[_Tool] = []
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    tool_choice: str | _Choice | None = None
    reasoning_effort: str | None = None
    thinking: _Switch | None = None
    reasoning: _Reasoning | None = None


def _encode(draft: Draft, traits: Traits) -> bytes:
    try:
        return msgspec.json.encode(_request(draft, traits))
    except UnicodeEncodeError:
        # Lone surrogates come from file names and broken terminals; no JSON text can hold them.
        messages = tuple(_encodable(message) for message in draft.messages)
        return msgspec.json.encode(_request(msgspec.structs.replace(draft, messages=messages), traits))


def _request(draft: Draft, traits: Traits) -> _Request:
    is_newer = traits.max_tokens_field == "max_completion_tokens"
    thought, way = draft.thought, traits.thinking
    return _Request(
        model=draft.model,
        messages=[
            _wire_message(message, content) for message, content in zip(draft.messages, contents_of(draft), strict=True)
        ],
        tools=[_Tool(function=tool) for tool in draft.tools],
        stream=draft.stream,
        stream_options=_StreamOptions() if draft.stream else None,
        max_tokens=None if is_newer else draft.max_tokens,
        max_completion_tokens=draft.max_tokens if is_newer else None,
        tool_choice=_choice(draft.choice),
        reasoning_effort=thought.word if thought and way in (Thinking.EFFORT, Thinking.SWITCH) else None,
        thinking=_switch(thought, traits) if thought and way is Thinking.SWITCH else None,
        reasoning=_reasoning(thought) if thought and way is Thinking.OBJECT else None,
    )


def _wire_message(message: Message, content: Content) -> _Message:
    if message.tool_calls:
        # Empty text beside tool calls is refused by some, so there it is null, which OpenAI's schema has.
        calls = [_wire_call(call) for call in message.tool_calls]
        return _Message(role=message.role, content=content or None, tool_calls=calls)
    if message.tool_call_id is not None:
        return _Message(role=message.role, content=content, tool_call_id=message.tool_call_id)
    return _Message(role=message.role, content=content)


def _wire_call(call: ToolCall) -> _ToolCall:
    return _ToolCall(id=call.id, function=_Function(name=call.name, arguments=call.arguments))


def _choice(choice: Choice | NamedTool | None) -> str | _Choice | None:
    if isinstance(choice, NamedTool):
        return _Choice(function=_Name(choice.name))
    return choice.value if choice is not None else None


def _switch(thought: Thought, traits: Traits) -> _Switch | None:
    """Nothing for a model that has no switch."""
    return None if traits.always_thinks else _Switch("enabled" if thought.is_on else "disabled")


def _reasoning(thought: Thought) -> _Reasoning:
    if thought.is_on and thought.word is not None:
        return _Reasoning(effort=thought.word)
    return _Reasoning(enabled=thought.is_on)


def _encodable(message: Message) -> Message:
    return Message(
        role=message.role,
        content=encodable(message.content),
        tool_calls=tuple(msgspec.structs.replace(call, id=encodable(call.id)) for call in message.tool_calls),
        tool_call_id=encodable(message.tool_call_id) if message.tool_call_id is not None else None,
    )
