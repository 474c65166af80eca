"""What every dialect offers: requests as bytes, answers from bytes, with the same words for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Protocol

import msgspec

from ..fault_kinds import Fault
from ..mending import NO_MENDS, Mends
from ..transcript import Message, Role, Signed, ToolCall
from ..usage import Usage
from .ask import Ask, Rendered, Traits
from .tool_spec import ToolSpec

__all__ = [
    "Answer",
    "Finish",
    "ReasoningDelta",
    "StreamEvent",
    "StreamReader",
    "TextDelta",
    "ToolCallDelta",
    "ToolSpec",
    "WireDialect",
]


class Finish(StrEnum):
    """Why the model stopped, in the provider's own words; tool calls may come with any of them."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    """The output cap or the window was reached: the text, or the last tool call, may be cut."""
    FILTERED = "filtered"
    UNKNOWN = "unknown"
    """No reason was given, or one we do not know."""


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """More of the answer."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    """More of the model's thinking: to be shown, never to be stored or sent back."""

    text: str


class ToolCallDelta(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """More of a tool call. To be shown: only `Answer.tool_calls` may be run."""

    index: int
    """Which call of the answer, from 0."""
    name: str
    """As far as it is known."""
    arguments: str
    """The new piece of the JSON text."""


NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})

StreamEvent = TextDelta | ReasoningDelta | ToolCallDelta


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """All of an answer. If not `complete`, there are no tool calls and no usage, and `text` is what had arrived."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    finish: Finish
    complete: bool
    """The dialect's own terminal fact was seen."""
    usage: Usage | None
    """None: the provider reported nothing."""
    model: str | None
    """The model that answered, which need not be the one asked for."""
    response_id: str | None
    fault: Fault | None
    """What the provider said went wrong; None for a stream that just ended early."""
    signed: tuple[Signed, ...] = ()
    """Blocks that the dialect wants back; only of a complete answer."""

    @property
    def message(self) -> Message:
        """The answer as a message of the conversation (`transcript.is_storable` may refuse it)."""
        return Message(role=Role.ASSISTANT, content=self.text, tool_calls=self.tool_calls, signed=self.signed)


class StreamReader(Protocol):
    """Reads one answer. Owned by the call that made it; takes bytes in any slices."""

    @property
    def is_over(self) -> bool:
        """Whether the end was seen: nothing further needs to be read, even if the connection stays open."""
        ...

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Take bytes of a successful response's body; bytes after the end change nothing. Never raises."""
        ...

    def close(self) -> Answer:
        """Take the end of the body and return the answer. Call once, also after `is_over`."""
        ...


class WireDialect(Protocol):
    """One wire format. Stateless; one instance serves all calls."""

    def render(
        self, ask: Ask, traits: Traits, *, base_url: str, api_key: str | None, mends: Mends = NO_MENDS
    ) -> Rendered:
        """The request as `traits` want it, the history repaired. The same arguments give the same bytes."""
        ...

    def headers(self, api_key: str | None) -> dict[str, str]:
        """The headers of a request, names in lower case."""
        ...

    def reader(
        self, names: Mapping[str, str] = NO_NAMES, *, model: str = "", reasoning_as_text: bool = False
    ) -> StreamReader:
        """A reader for the body of a 2xx response, streamed or not.

        `names` are those of `Rendered`. `model` is the one that was asked, for `Signed`; empty: the one that answers.
        `reasoning_as_text`: a whole answer that says nothing and calls no tool says what was reasoned.
        """
        ...
