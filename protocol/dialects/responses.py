"""OpenAI Responses: the request. Nothing is left with the provider: the whole history goes along each time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

from ..transcript import Message, Role
from .base import ToolSpec
from .history import history_of
from .posting import bearer_headers, endpoint_at
from .responses_reader import ResponsesReader

_PATH: Final = "/responses"


class Responses:
    """The Responses dialect (a `WireDialect`)."""

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
        """The request as JSON, with the history repaired and the system's words as instructions."""
        history = history_of(messages)
        request = _Request(
            model=model,
            input=[item for message in history.messages for item in _items(message)],
            stream=stream,
            store=False,
            instructions=history.system,
            tools=[_Tool(tool.name, tool.description, tool.parameters) for tool in tools],
            max_output_tokens=max_tokens,
        )
        return msgspec.json.encode(request)

    def reader(self) -> ResponsesReader:
        """A reader for the body of a 2xx response, streamed or not."""
        return ResponsesReader()


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


_Item = _Said | _Call | _Output


class _Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    model: str
    input: list[_Item]
    stream: bool
    store: bool
    instructions: str = ""
    tools: list[_Tool] = []
    max_output_tokens: int | None = None


def _items(message: Message) -> Iterator[_Item]:
    if message.tool_call_id is not None:
        yield _Output(message.tool_call_id, message.content)
        return
    if message.content.strip() or message.role is Role.USER:
        yield _Said(message.role, message.content)
    for call in message.tool_calls:
        yield _Call(call.id, call.name, call.arguments)
