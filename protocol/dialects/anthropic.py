"""Anthropic Messages: the request, as Anthropic, Z.AI's `/api/anthropic` and gateways take it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, Literal

import msgspec

from ..transcript import Message, Role
from .anthropic_reader import AnthropicReader
from .base import ToolSpec
from .history import history_of
from .posting import endpoint_at, json_headers

VERSION: Final = "2023-06-01"
"""Of the API; the only one there is (docs.anthropic.com)."""

MAX_TOKENS: Final = 16_384
"""The dialect has no answer without a bound, and refuses one above the model's own."""

WORDLESS: Final = "(nothing said)"
"""Stands in where the user has to speak and did not: at the beginning, and for an empty last word."""

_PATH: Final = "/v1/messages"
_OWN_KEY: Final = "sk-ant-"


class AnthropicMessages:
    """The Anthropic Messages dialect (a `WireDialect`)."""

    def endpoint(self, base_url: str) -> str:
        """The URL to post to; one that names the path, or its version, already is kept, and so is a query."""
        return endpoint_at(base_url, _PATH, but_for="/v1")

    def headers(self, api_key: str | None) -> dict[str, str]:
        """The headers of a request; none for authorisation without a key."""
        headers = {**json_headers(), "anthropic-version": VERSION}
        key = (api_key or "").strip()
        if not key:
            return headers
        headers["x-api-key"] = key
        # Z.AI takes either, some gateways only the second; Anthropic takes that for a login and not for a key.
        return headers if key.startswith(_OWN_KEY) else {**headers, "authorization": f"Bearer {key}"}

    def request_body(
        self,
        *,
        model: str,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        stream: bool = True,
        max_tokens: int | None = None,
    ) -> bytes:
        """The request as JSON, with the history repaired, the system's words apart and the two roles in turns."""
        history = history_of(messages)
        request = _Request(
            model=model,
            max_tokens=MAX_TOKENS if max_tokens is None else max_tokens,
            messages=list(_turns(history.messages)),
            stream=stream,
            system=history.system,
            tools=[_Tool(tool.name, tool.description, tool.parameters) for tool in tools],
        )
        return msgspec.json.encode(request)

    def reader(self) -> AnthropicReader:
        """A reader for the body of a 2xx response, streamed or not."""
        return AnthropicReader()


class _Tool(msgspec.Struct, frozen=True):
    name: str
    description: str
    input_schema: msgspec.Raw


class _Text(msgspec.Struct, frozen=True, tag="text"):
    text: str


class _ToolUse(msgspec.Struct, frozen=True, tag="tool_use"):
    id: str
    name: str
    input: msgspec.Raw


class _ToolResult(msgspec.Struct, frozen=True, tag="tool_result"):
    tool_use_id: str
    content: str


_Block = _Text | _ToolUse | _ToolResult


class _Message(msgspec.Struct, frozen=True):
    role: Literal["user", "assistant"]
    content: list[_Block]


class _Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    model: str
    max_tokens: int
    messages: list[_Message]
    stream: bool
    system: str = ""
    tools: list[_Tool] = []


def _turns(messages: Iterable[Message]) -> Iterator[_Message]:
    """Each role's words in a row as one message; a tool's results are the user's, and come before his words."""
    is_first = True
    for is_assistant, said in groupby(messages, key=lambda message: message.role is Role.ASSISTANT):
        if is_first and is_assistant:
            yield _Message("user", [_Text(WORDLESS)])
        is_first = False
        blocks = [block for message in said for block in _blocks(message)]
        yield _Message("assistant" if is_assistant else "user", blocks or [_Text(WORDLESS)])
    if is_first:
        yield _Message("user", [_Text(WORDLESS)])


def _blocks(message: Message) -> Iterator[_Block]:
    if message.tool_call_id is not None:
        yield _ToolResult(message.tool_call_id, message.content)
        return
    if message.content.strip():
        yield _Text(message.content)
    for call in message.tool_calls:
        yield _ToolUse(call.id, call.name, msgspec.Raw(call.arguments.encode()))
