"""OpenAI Responses, written from the provider's side: an answer as one body or as numbered events of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from .provider_answer import Telling, split

_INCOMPLETE: Final[dict[str, str]] = {"length": "max_output_tokens"}
"""Finish reasons of a script, in this dialect's words; others are sent as they are."""

_COMPLETE: Final = frozenset({"stop", "tool_calls"})


class CachedTokens(msgspec.Struct, frozen=True):
    """What came out of the prompt cache."""

    cached_tokens: int = 0


class ReasoningTokens(msgspec.Struct, frozen=True):
    """The simulated model does not think in words."""

    reasoning_tokens: int = 0


class ResponsesUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one call."""

    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens = ReasoningTokens()
    total_tokens: int


class OutputText(msgspec.Struct, frozen=True, tag="output_text"):
    """A part of a message."""

    text: str
    annotations: tuple[()] = ()


class MessageItem(msgspec.Struct, frozen=True, kw_only=True, tag="message"):
    """What the model says."""

    id: str
    status: Literal["in_progress", "completed"] = "completed"
    role: Literal["assistant"] = "assistant"
    content: tuple[OutputText, ...] = ()


class CallItem(msgspec.Struct, frozen=True, kw_only=True, tag="function_call"):
    """A tool call. Its result names `call_id`; `id` is the item's own."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: Literal["in_progress", "completed"] = "completed"


Item = MessageItem | CallItem


class Incomplete(msgspec.Struct, frozen=True):
    """Why an answer is shorter than the model meant it."""

    reason: str


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer, or its head."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["in_progress", "completed", "incomplete"]
    error: None = None
    incomplete_details: Incomplete | None = None
    model: str
    output: tuple[Item, ...] = ()
    parallel_tool_calls: bool = True
    store: bool = False
    tool_choice: Literal["auto"] = "auto"
    tools: tuple[()] = ()
    usage: ResponsesUsage | None = None


class Event(msgspec.Struct, kw_only=True):
    """One event of a stream; gets its number when it is sent."""

    sequence_number: int = 0


class Created(Event, kw_only=True, tag="response.created"):
    """The first event."""

    response: Response


class InProgress(Event, kw_only=True, tag="response.in_progress"):
    """Says nothing new."""

    response: Response


class Completed(Event, kw_only=True, tag="response.completed"):
    """The last event."""

    response: Response


class CutShort(Event, kw_only=True, tag="response.incomplete"):
    """The last event of an answer that is shorter than it should be."""

    response: Response


class ItemAdded(Event, kw_only=True, tag="response.output_item.added"):
    """An item begins, empty."""

    output_index: int
    item: Item


class ItemDone(Event, kw_only=True, tag="response.output_item.done"):
    """An item has ended."""

    output_index: int
    item: Item


class _InItem(Event, kw_only=True):
    item_id: str
    output_index: int


class PartAdded(_InItem, kw_only=True, tag="response.content_part.added"):
    """The text begins."""

    content_index: int = 0
    part: OutputText = OutputText("")


class TextDelta(_InItem, kw_only=True, tag="response.output_text.delta"):
    """More of the text."""

    content_index: int = 0
    delta: str


class TextDone(_InItem, kw_only=True, tag="response.output_text.done"):
    """All of the text once more."""

    content_index: int = 0
    text: str


class PartDone(_InItem, kw_only=True, tag="response.content_part.done"):
    """And once more."""

    content_index: int = 0
    part: OutputText


class ArgumentsDelta(_InItem, kw_only=True, tag="response.function_call_arguments.delta"):
    """More of a call's arguments, torn anywhere."""

    delta: str


class ArgumentsDone(_InItem, kw_only=True, tag="response.function_call_arguments.done"):
    """All of them once more."""

    arguments: str


_ENCODER = msgspec.json.Encoder()


class ResponsesWriter(Telling, frozen=True, kw_only=True):
    """An answer in Responses."""

    @property
    def id(self) -> str:
        """The answer's id: unique within one life of the provider."""
        return f"resp_{self.call:08x}"

    @property
    def stream_reports_usage(self) -> bool:
        """Whether a stream tells the usage."""
        return self.answer.reports_usage

    def body(self) -> bytes:
        """The whole answer as one JSON object."""
        return _ENCODER.encode(self._whole())

    def pieces(self) -> list[bytes]:
        """The answer's events in order, about `chunks` pieces of them; the first also carries the head."""
        number, sent = 0, []
        for piece in self._pieces():
            sent.append(b"".join(_sse(event, number + place) for place, event in enumerate(piece)))
            number += len(piece)
        return sent

    def closing(self) -> bytes:
        """What follows the last piece: the whole answer once more, with the usage."""
        whole, number = self._whole(), sum(len(piece) for piece in self._pieces())
        end = Completed(response=whole) if whole.status == "completed" else CutShort(response=whole)
        return _sse(end, number)

    def _pieces(self) -> list[list[Event]]:
        head = Response(id=self.id, created_at=self.created, status="in_progress", model=self.model)
        pieces = [piece for place, item in enumerate(self._items()) for piece in self._events(place, item)]
        pieces[0] = [Created(response=head), InProgress(response=head), *pieces[0]]
        return pieces

    def _events(self, place: int, item: Item) -> list[list[Event]]:
        """An item's pieces: its beginning in one with the first delta, its end in one with the last."""
        pieces: list[list[Event]]
        if isinstance(item, MessageItem):
            began = msgspec.structs.replace(item, status="in_progress", content=())
            opening = [ItemAdded(output_index=place, item=began), PartAdded(item_id=item.id, output_index=place)]
            text, chunks = self.answer.text, self.answer.pace.chunks
            pieces = [[TextDelta(item_id=item.id, output_index=place, delta=piece)] for piece in split(text, chunks)]
            closing = [
                TextDone(item_id=item.id, output_index=place, text=text),
                PartDone(item_id=item.id, output_index=place, part=OutputText(text)),
            ]
        else:
            empty = msgspec.structs.replace(item, status="in_progress", arguments="")
            opening = [ItemAdded(output_index=place, item=empty)]
            share = max(2, self.answer.pace.chunks // len(self.answer.tools))
            pieces = [
                [ArgumentsDelta(item_id=item.id, output_index=place, delta=piece)]
                for piece in split(item.arguments, share)
            ]
            closing = [ArgumentsDone(item_id=item.id, output_index=place, arguments=item.arguments)]
        pieces = pieces or [[]]
        pieces[0] = [*opening, *pieces[0]]
        pieces[-1] += [*closing, ItemDone(output_index=place, item=item)]
        return pieces

    def _items(self) -> Iterator[Item]:
        if self.answer.text or not self.answer.tools:
            yield MessageItem(id=f"msg_{self.call:08x}", content=(OutputText(self.answer.text),))
        for index, use in enumerate(self.answer.tools):
            name = f"{self.call:08x}_{index}"
            yield CallItem(id=f"fc_{name}", call_id=f"call_{name}", name=use.name, arguments=use.arguments)

    def _whole(self) -> Response:
        reason = self.answer.finish_reason
        is_complete = reason in _COMPLETE
        return Response(
            id=self.id,
            created_at=self.created,
            status="completed" if is_complete else "incomplete",
            incomplete_details=None if is_complete else Incomplete(_INCOMPLETE.get(reason, reason)),
            model=self.model,
            output=tuple(self._items()),
            usage=self._usage() if self.answer.reports_usage else None,
        )

    def _usage(self) -> ResponsesUsage:
        return ResponsesUsage(
            input_tokens=self.prompt_tokens,
            input_tokens_details=CachedTokens(self.cached_tokens),
            output_tokens=self.completion_tokens,
            total_tokens=self.prompt_tokens + self.completion_tokens,
        )


def _sse(event: Event, number: int) -> bytes:
    event.sequence_number = number
    name = str(event.__struct_config__.tag).encode()
    return b"event: " + name + b"\ndata: " + _ENCODER.encode(event) + b"\n\n"
