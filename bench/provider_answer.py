"""Chat completions, written from the provider's side: an answer as one body or as events of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from .provider_chat import tokens
from .script_player import Answer


class CachedTokens(msgspec.Struct, frozen=True):
    """What came out of the prompt cache: 0 unless the mood says that there is one."""

    cached_tokens: int = 0


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one call."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens = CachedTokens()


class FunctionText(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call's function, or a piece of it: the name comes first, the arguments in pieces."""

    arguments: str | UnsetType = UNSET
    name: str | None = None


class ToolCallText(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call, or a piece of it. `index` only in a stream."""

    function: FunctionText
    index: int | UnsetType = UNSET
    id: str | None = None
    type: Literal["function"] | None = None


class Spoken(msgspec.Struct, frozen=True, kw_only=True):
    """An assistant's message, or a piece of it."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    tool_calls: tuple[ToolCallText, ...] | UnsetType = UNSET


class DeltaChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The one choice, in a stream."""

    index: int = 0
    delta: Spoken
    finish_reason: str | None = None


class MessageChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The one choice, in one body."""

    index: int = 0
    message: Spoken
    finish_reason: str


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """What every object of one answer begins with."""

    id: str
    object: Literal["chat.completion", "chat.completion.chunk"]
    created: int
    model: str
    choices: tuple[DeltaChoice, ...] | tuple[MessageChoice] = ()
    usage: UsageReport | UnsetType | None = UNSET


_ENCODER = msgspec.json.Encoder()


class Telling(msgspec.Struct, frozen=True, kw_only=True):
    """One answer on its way to one client, whatever the dialect."""

    answer: Answer
    call: int
    model: str
    created: int
    """Unix seconds."""
    prompt_tokens: int
    cached_tokens: int = 0
    """Of the prompt's: read from the cache."""

    @property
    def keep_alive(self) -> bytes:
        """What says in a stream that the model still thinks."""
        return b": keep-alive\n\n"

    @property
    def completion_tokens(self) -> int:
        """Tokens of all that the answer says; at least 1."""
        used = sum(tokens(len(use.name) + len(use.arguments)) for use in self.answer.tools)
        return max(1, tokens(len(self.answer.text)) + used)


class ChatWriter(Telling, frozen=True, kw_only=True):
    """An answer in chat completions."""

    wants_usage_chunk: bool = False

    @property
    def id(self) -> str:
        """The answer's id: unique within one life of the provider."""
        return f"chatcmpl-{self.call:08x}"

    @property
    def stream_reports_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return self.answer.reports_usage and self.wants_usage_chunk

    def body(self) -> bytes:
        """The whole answer as one JSON object."""
        calls = tuple(
            ToolCallText(
                id=self._tool_id(i), type="function", function=FunctionText(name=u.name, arguments=u.arguments)
            )
            for i, u in enumerate(self.answer.tools)
        )
        message = Spoken(role="assistant", content=self.answer.text or None, tool_calls=calls or UNSET)
        choice = MessageChoice(message=message, finish_reason=self.answer.finish_reason)
        usage = self._usage() if self.answer.reports_usage else UNSET
        return _ENCODER.encode(self._envelope("chat.completion", (choice,), usage))

    def pieces(self) -> list[bytes]:
        """The answer's events in order, about `chunks` of them; the first also carries the role."""
        deltas = [*self._text_deltas(), *self._tool_deltas()] or [Spoken(content="")]
        events = [self._event(DeltaChoice(delta=delta)) for delta in deltas]
        events[0] = self._event(DeltaChoice(delta=Spoken(role="assistant", content=""))) + events[0]
        return events

    def closing(self) -> bytes:
        """What follows the last piece: the finish reason, the usage if it was asked for, and `[DONE]`."""
        events = self._event(DeltaChoice(delta=Spoken(), finish_reason=self.answer.finish_reason))
        if self.stream_reports_usage:
            events += _sse(self._envelope("chat.completion.chunk", (), self._usage()))
        return events + b"data: [DONE]\n\n"

    def _text_deltas(self) -> Iterator[Spoken]:
        for piece in split(self.answer.text, self.answer.pace.chunks):
            yield Spoken(content=piece)

    def _tool_deltas(self) -> Iterator[Spoken]:
        # Real providers send the name alone and the arguments torn anywhere: readers have to put them together.
        share = max(2, self.answer.pace.chunks // max(1, len(self.answer.tools)))
        for index, use in enumerate(self.answer.tools):
            yield _tool_delta(index, FunctionText(name=use.name, arguments=""), self._tool_id(index))
            for piece in split(use.arguments, share):
                yield _tool_delta(index, FunctionText(arguments=piece))

    def _tool_id(self, index: int) -> str:
        return f"call_{self.call:08x}_{index}"

    def _event(self, choice: DeltaChoice) -> bytes:
        return _sse(self._envelope("chat.completion.chunk", (choice,), None if self.stream_reports_usage else UNSET))

    def _envelope(
        self,
        kind: Literal["chat.completion", "chat.completion.chunk"],
        choices: tuple[DeltaChoice, ...] | tuple[MessageChoice],
        usage: UsageReport | UnsetType | None,
    ) -> Envelope:
        return Envelope(id=self.id, object=kind, created=self.created, model=self.model, choices=choices, usage=usage)

    def _usage(self) -> UsageReport:
        completion = self.completion_tokens
        total = self.prompt_tokens + completion
        return UsageReport(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=completion,
            total_tokens=total,
            prompt_tokens_details=CachedTokens(self.cached_tokens),
        )


def split(text: str, pieces: int) -> list[str]:
    """`text` in at most `pieces` pieces of one length (the last may be shorter), none of them empty."""
    size = max(1, -(-len(text) // pieces))
    return [text[start : start + size] for start in range(0, len(text), size)]


def _tool_delta(index: int, function: FunctionText, call_id: str | None = None) -> Spoken:
    kind: Literal["function"] | None = "function" if call_id else None
    return Spoken(tool_calls=(ToolCallText(index=index, id=call_id, type=kind, function=function),))


def _sse(envelope: Envelope) -> bytes:
    return b"data: " + _ENCODER.encode(envelope) + b"\n\n"
