"""Chat completions, read from the provider's side: what a client asks, and where its conversation stands.

Strict where real providers are: a request that one of them would refuse is refused here, with Z.AI's codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar

import msgspec

from .provider_errors import Refused, refusal
from .provider_knobs import Knobs
from .script_player import Situation


class Part(msgspec.Struct, frozen=True):
    """A piece of a message's content; pieces that are no text count as empty."""

    type: str
    text: str = ""


class FunctionCall(msgspec.Struct, frozen=True):
    """The tool and its arguments, a JSON text."""

    name: str
    arguments: str


class ToolCallMade(msgspec.Struct, frozen=True):
    """A tool call in the history."""

    id: str
    function: FunctionCall


class ChatMessage(msgspec.Struct, frozen=True):
    """One message of the history."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | tuple[Part, ...] | None = None
    tool_calls: tuple[ToolCallMade, ...] | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """All its text."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "".join(part.text for part in self.content)


class FunctionOffered(msgspec.Struct, frozen=True):
    """A function's name; its schema only counts as tokens."""

    name: str


class ToolOffered(msgspec.Struct, frozen=True):
    """A tool the model may call."""

    function: FunctionOffered


class StreamOptions(msgspec.Struct, frozen=True):
    """`include_usage`: report the tokens in a last chunk without choices."""

    include_usage: bool | None = None


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a request asks for, whatever dialect it was written in."""

    situation: Situation
    is_stream: bool
    wants_usage_chunk: bool
    """Whether a stream is to report its tokens in a chunk of their own; chat completions only."""
    prompt_tokens: int
    seen_tokens: int
    """Of those, what came before the assistant's last turn: a prompt cache would have it."""
    texts: tuple[str, ...]
    """What its messages say."""
    knobs: Knobs = Knobs()

    @property
    def model(self) -> str:
        """The model that is asked."""
        return self.situation.model


class ChatRequest(msgspec.Struct, frozen=True):
    """The fields the simulation looks at; the others are accepted as they are."""

    model: str
    messages: tuple[ChatMessage, ...]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: msgspec.Raw = msgspec.Raw(b"null")
    tool_choice: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def wants_usage_chunk(self) -> bool:
        """Whether a stream is to report its tokens."""
        return self.stream_options is not None and self.stream_options.include_usage is True


Shape = TypeVar("Shape")

_REQUEST = msgspec.json.Decoder(ChatRequest)
_TOOLS = msgspec.json.Decoder(tuple[ToolOffered, ...] | None)


def read_chat(body: bytes) -> Asked:
    """The request in `body`; raises `Refused` with 1210 for what is no JSON and 1214 for what is no request."""
    request = decoded(body, _REQUEST)
    check(request.messages)
    return asked(
        request.messages,
        model=request.model,
        tools=_callable_tools(request),
        offered=bytes(request.tools),
        is_stream=request.stream is True,
        wants_usage_chunk=request.wants_usage_chunk,
    )


def decoded(body: bytes, decoder: msgspec.json.Decoder[Shape]) -> Shape:
    """The body as the decoder's type; raises `Refused`."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Refused(refusal("1214", str(error))) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(refusal("1210", f"The request body is no JSON: {error}")) from error


def check(messages: Sequence[ChatMessage]) -> None:
    """Raise `Refused` for a history that a real provider would not take."""
    if not messages:
        raise Refused(refusal("1214", "messages must not be empty"))
    _check_pairs(messages)


def asked(
    messages: Sequence[ChatMessage],
    *,
    model: str,
    tools: frozenset[str],
    offered: bytes,
    is_stream: bool,
    wants_usage_chunk: bool = False,
) -> Asked:
    """What a request with these messages asks for; `tools` may be called, `offered` is their JSON."""
    spoken = [index for index, message in enumerate(messages) if message.role == "assistant"]
    return Asked(
        situation=_situation(messages, model, tools),
        is_stream=is_stream,
        wants_usage_chunk=wants_usage_chunk,
        prompt_tokens=_prompt_tokens(messages, offered),
        seen_tokens=_prompt_tokens(messages[: spoken[-1]], offered) if spoken else 0,
        texts=tuple(message.text for message in messages),
    )


def _situation(messages: Sequence[ChatMessage], model: str, tools: frozenset[str]) -> Situation:
    users = [index for index, message in enumerate(messages) if message.role == "user"]
    since = messages[users[-1] + 1 :] if users else messages
    results = [message.text for message in since if message.role == "tool"]
    return Situation(
        model=model,
        goal=messages[users[-1]].text if users else "",
        opening=messages[users[0]].text if users else "",
        rounds=sum(1 for message in since if message.tool_calls),
        last_result=results[-1] if results else None,
        tools=tools,
    )


def _prompt_tokens(messages: Sequence[ChatMessage], offered: bytes) -> int:
    """4 characters each, rounded up, and 4 for each message; tools by their JSON text."""
    characters = 0 if offered == b"null" else len(offered)
    for message in messages:
        characters += len(message.text)
        characters += sum(len(call.function.name) + len(call.function.arguments) for call in message.tool_calls or ())
    return tokens(characters) + 4 * len(messages)


def tokens(characters: int) -> int:
    """Tokens of so many characters."""
    return -(-characters // 4)


def _callable_tools(request: ChatRequest) -> frozenset[str]:
    if bytes(request.tool_choice) == b'"none"':
        return frozenset()
    try:
        offered = _TOOLS.decode(request.tools)
    except msgspec.ValidationError as error:
        raise Refused(refusal("1214", f"tools: {error}")) from error
    return frozenset(tool.function.name for tool in offered or ())


def _check_pairs(messages: Sequence[ChatMessage]) -> None:
    """Raise `Refused` unless every tool call is answered, once, before anybody else speaks."""
    open_calls: set[str | None] = set()
    for index, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in open_calls:
                raise _unpaired(index, f"answers no open tool call ({message.tool_call_id!r})")
            open_calls.discard(message.tool_call_id)
        elif open_calls:
            raise _unpaired(index, f"comes before the answers to {_listed(open_calls)}")
        if message.tool_calls:
            open_calls = {call.id for call in message.tool_calls}
    if open_calls:
        raise _unpaired(len(messages) - 1, f"leaves tool calls open: {_listed(open_calls)}")


def _unpaired(index: int, problem: str) -> Refused:
    return Refused(refusal("1214", f"messages[{index}] {problem}"))


def _listed(calls: Iterable[str | None]) -> str:
    return ", ".join(sorted(str(call) for call in calls))
