"""Anthropic Messages, written from the provider's side: an answer as one body or as events of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from .provider_answer import Telling, split

_REASONS: Final[dict[str, str]] = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
"""Finish reasons of a script, in this dialect's words; others are sent as they are."""


class MessagesUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one call; the buckets of the prompt do not overlap."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int


class OutputUsage(msgspec.Struct, frozen=True):
    """Tokens of the answer so far."""

    output_tokens: int


class TextBlock(msgspec.Struct, frozen=True, tag="text"):
    """Text."""

    text: str


class ToolUseBlock(msgspec.Struct, frozen=True, tag="tool_use"):
    """A tool call."""

    id: str
    name: str
    input: msgspec.Raw


class AnswerMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer, or its head."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: tuple[TextBlock | ToolUseBlock, ...] = ()
    stop_reason: str | None = None
    stop_sequence: None = None
    usage: MessagesUsage | UnsetType = UNSET


class MessageStart(msgspec.Struct, frozen=True, tag="message_start"):
    """The first event."""

    message: AnswerMessage


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Says nothing."""


class BlockStart(msgspec.Struct, frozen=True, tag="content_block_start"):
    """A block begins, empty."""

    index: int
    content_block: TextBlock | ToolUseBlock


class TextDelta(msgspec.Struct, frozen=True, tag="text_delta"):
    """More of a text."""

    text: str


class InputDelta(msgspec.Struct, frozen=True, tag="input_json_delta"):
    """More of a tool's arguments, torn anywhere."""

    partial_json: str


class BlockDelta(msgspec.Struct, frozen=True, tag="content_block_delta"):
    """A block goes on."""

    index: int
    delta: TextDelta | InputDelta


class BlockStop(msgspec.Struct, frozen=True, tag="content_block_stop"):
    """A block has ended."""

    index: int


class Ending(msgspec.Struct, frozen=True):
    """Why the answer ends."""

    stop_reason: str
    stop_sequence: None = None


class MessageDelta(msgspec.Struct, frozen=True, tag="message_delta"):
    """The answer ends."""

    delta: Ending
    usage: OutputUsage | UnsetType = UNSET


class MessageStop(msgspec.Struct, frozen=True, tag="message_stop"):
    """The last event."""


Event = MessageStart | Ping | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop

_ENCODER = msgspec.json.Encoder()


class MessagesWriter(Telling, frozen=True, kw_only=True):
    """An answer in Anthropic Messages."""

    created_tokens: int = 0
    """Of the prompt's: written to the cache."""

    @property
    def id(self) -> str:
        """The answer's id: unique within one life of the provider."""
        return f"msg_{self.call:08x}"

    @property
    def keep_alive(self) -> bytes:
        """What says in a stream that the model still thinks."""
        return _sse(Ping())

    @property
    def stream_reports_usage(self) -> bool:
        """Whether a stream tells the usage."""
        return self.answer.reports_usage

    def body(self) -> bytes:
        """The whole answer as one JSON object."""
        blocks: list[TextBlock | ToolUseBlock] = [TextBlock(self.answer.text)] if self._has_text else []
        for index, use in enumerate(self.answer.tools):
            blocks.append(ToolUseBlock(self._tool_id(index), use.name, msgspec.Raw(use.arguments.encode())))
        message = AnswerMessage(
            id=self.id,
            model=self.model,
            content=tuple(blocks),
            stop_reason=self._stop_reason,
            usage=self._usage(self.completion_tokens),
        )
        return _ENCODER.encode(message)

    def pieces(self) -> list[bytes]:
        """The answer's events in order, about `chunks` of them; the first also carries the head and a ping."""
        head = AnswerMessage(id=self.id, model=self.model, usage=self._usage(1))
        pieces = [*self._text_pieces(), *self._tool_pieces()]
        return [_sse(MessageStart(head)) + _sse(Ping()) + pieces[0], *pieces[1:]]

    def closing(self) -> bytes:
        """What follows the last piece: the stop reason with the usage, and `message_stop`."""
        usage = OutputUsage(self.completion_tokens) if self.answer.reports_usage else UNSET
        return _sse(MessageDelta(Ending(self._stop_reason), usage)) + _sse(MessageStop())

    @property
    def _has_text(self) -> bool:
        return bool(self.answer.text) or not self.answer.tools

    @property
    def _stop_reason(self) -> str:
        return _REASONS.get(self.answer.finish_reason, self.answer.finish_reason)

    def _text_pieces(self) -> Iterator[bytes]:
        if self._has_text:
            deltas = [TextDelta(text) for text in split(self.answer.text, self.answer.pace.chunks)]
            yield from _block(0, TextBlock(""), deltas)

    def _tool_pieces(self) -> Iterator[bytes]:
        share = max(2, self.answer.pace.chunks // max(1, len(self.answer.tools)))
        for index, use in enumerate(self.answer.tools):
            deltas = [InputDelta(""), *(InputDelta(text) for text in split(use.arguments, share))]
            block = ToolUseBlock(self._tool_id(index), use.name, msgspec.Raw(b"{}"))
            yield from _block(index + self._has_text, block, deltas)

    def _tool_id(self, index: int) -> str:
        return f"toolu_{self.call:08x}_{index}"

    def _usage(self, output: int) -> MessagesUsage | UnsetType:
        if not self.answer.reports_usage:
            return UNSET
        return MessagesUsage(
            input_tokens=self.prompt_tokens - self.cached_tokens - self.created_tokens,
            cache_creation_input_tokens=self.created_tokens,
            cache_read_input_tokens=self.cached_tokens,
            output_tokens=output,
        )


def _block(
    index: int,
    empty: TextBlock | ToolUseBlock,
    deltas: list[TextDelta] | list[TextDelta | InputDelta] | list[InputDelta],
) -> list[bytes]:
    """A block's pieces: its start in one with the first delta, its stop in one with the last."""
    pieces = [_sse(BlockDelta(index, delta)) for delta in deltas] or [b""]
    pieces[0] = _sse(BlockStart(index, empty)) + pieces[0]
    pieces[-1] += _sse(BlockStop(index))
    return pieces


def _sse(event: Event) -> bytes:
    name = str(event.__struct_config__.tag).encode()
    return b"event: " + name + b"\ndata: " + _ENCODER.encode(event) + b"\n\n"
