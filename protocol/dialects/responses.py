"""OpenAI Responses: the request. Nothing is left with the provider: the whole history goes along each time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

from ..mending import NO_MENDS, Mend, Mends
from ..settings import Dialect
from ..transcript import Message, Role
from .ask import Ask, Choice, Layout, NamedTool, Rendered, Thinking, Traits
from .base import NO_NAMES
from .draft import Draft, draft_of
from .history import split
from .posting import all_headers, bearer_headers, cache_fields, endpoint_at, with_fields
from .responses_reader import ResponsesReader
from .signed_blocks import raw_blocks

_PATH: Final = "/responses"
_ENCRYPTED: Final = "reasoning.encrypted_content"


class Responses:
    """The Responses dialect (a `WireDialect`)."""

    def render(
        self, ask: Ask, traits: Traits, *, base_url: str, api_key: str | None, mends: Mends = NO_MENDS
    ) -> Rendered:
        """The request, with the history repaired and the system's words as instructions."""
        draft = draft_of(ask, traits, mends, Dialect.RESPONSES, Layout.NONE)
        # Reasoning is not kept by the provider, so it comes along, for the next request to bring it back.
        has_reasoning = traits.thinking is not Thinking.NONE and Mend.SAY_NO_EFFORT not in mends.done
        body = msgspec.json.encode(_request(draft, (_ENCRYPTED,) if has_reasoning else ()))
        return Rendered(
            url=endpoint_at(base_url, _PATH),
            headers=all_headers(bearer_headers(api_key), ask, traits),
            body=with_fields(body, cache_fields(ask, traits, mends)),
            max_tokens=draft.max_tokens,
            names=draft.names,
        )

    def headers(self, api_key: str | None) -> dict[str, str]:
        """The headers of a request; none for authorisation without a key."""
        return bearer_headers(api_key)

    def reader(
        self, names: Mapping[str, str] = NO_NAMES, *, model: str = "", reasoning_as_text: bool = False
    ) -> ResponsesReader:
        """A reader for the body of a 2xx response, streamed or not."""
        return ResponsesReader(names, model=model, reasoning_as_text=reasoning_as_text)


class _Tool(msgspec.Struct, frozen=True):
    name: str
    description: str
    parameters: msgspec.Raw
    type: Literal["function"] = "function"
    strict: bool = False
    """Left out, OpenAI takes it for true and refuses most schemas."""


class _Said(msgspec.Struct, frozen=True, tag="message"):
    role: Role
    content: str


class _Call(msgspec.Struct, frozen=True, tag="function_call"):
    call_id: str
    name: str
    arguments: str


class _Output(msgspec.Struct, frozen=True, tag="function_call_output"):
    call_id: str
    output: str


class _Choice(msgspec.Struct, frozen=True):
    name: str
    type: Literal["function"] = "function"


class _Reasoning(msgspec.Struct, frozen=True):
    effort: str


_Item = _Said | _Call | _Output | msgspec.Raw
"""Raw are encrypted items of reasoning."""


class _Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    model: str
    input: list[_Item]
    stream: bool
    store: bool
    instructions: str = ""
    tools: list[_Tool] = []
    max_output_tokens: int | None = None
    tool_choice: str | _Choice | None = None
    reasoning: _Reasoning | None = None
    include: tuple[str, ...] = ()


def _request(draft: Draft, include: tuple[str, ...]) -> _Request:
    history = split(draft.messages)
    word = draft.thought.word if draft.thought is not None else None
    return _Request(
        model=draft.model,
        input=[item for message in history.messages for item in _items(message)],
        stream=draft.stream,
        store=False,
        instructions=history.system,
        tools=[_Tool(tool.name, tool.description, tool.parameters) for tool in draft.tools],
        max_output_tokens=draft.max_tokens,
        tool_choice=_choice(draft.choice),
        reasoning=_Reasoning(word) if word is not None else None,
        include=include,
    )


def _choice(choice: Choice | NamedTool | None) -> str | _Choice | None:
    if isinstance(choice, NamedTool):
        return _Choice(choice.name)
    return choice.value if choice is not None else None


def _items(message: Message) -> Iterator[_Item]:
    if message.tool_call_id is not None:
        yield _Output(message.tool_call_id, message.content)
        return
    if message.role is Role.ASSISTANT:
        yield from raw_blocks(message.signed)
    if message.content.strip() or message.role is Role.USER:
        yield _Said(message.role, message.content)
    for call in message.tool_calls:
        yield _Call(call.id, call.name, call.arguments)
