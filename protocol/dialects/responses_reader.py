"""OpenAI Responses: the answer, streamed or whole.

Complete means that `response.completed` was seen, or `response.incomplete` with a reason that ends an answer (its
length, a filter). Pieces are believed before what the last event repeats; that counts where no pieces came. Reasoning
is shown and goes no further, but for items that come encrypted. Calls are sent back without the ids that would require
any.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from ..fault_kinds import FaultKind
from ..faults import classify, fault_named
from ..settings import Dialect
from ..transcript import Signed
from .base import NO_NAMES, Finish, StreamEvent
from .chat_wire import is_given, text_of
from .signed_blocks import signed_blocks
from .typed_reader import TypedReader, part_of

INCOMPLETE: Final[dict[str, Finish]] = {
    "max_output_tokens": Finish.LENGTH,
    "max_tokens": Finish.LENGTH,
    "content_filter": Finish.FILTERED,
}
"""Reasons of an answer that is at its end all the same."""

_TEXT: Final = frozenset({"response.output_text.delta", "response.refusal.delta"})
_REASONING: Final = frozenset({"response.reasoning_text.delta", "response.reasoning_summary_text.delta"})
_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


class _Part(msgspec.Struct, frozen=True):
    text: str | None = None
    refusal: str | None = None


class _Item(msgspec.Struct, frozen=True):
    type: str | None = None
    id: str | int | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw()
    content: msgspec.Raw = msgspec.Raw()
    summary: msgspec.Raw = msgspec.Raw()
    encrypted_content: str | None = None


class _Reasoning(msgspec.Struct, frozen=True, omit_defaults=True, tag="reasoning"):
    """What is kept of an item; the API refuses some of the fields that it sends itself."""

    summary: msgspec.Raw
    encrypted_content: str
    id: str | int | None = None


class _Reason(msgspec.Struct, frozen=True):
    reason: str | None = None


class _Response(msgspec.Struct, frozen=True):
    id: str | int | None = None
    model: str | None = None
    status: str | None = None
    output: list[_Item] | None = None
    incomplete_details: _Reason | None = None
    error: msgspec.Raw = msgspec.Raw()
    usage: msgspec.Raw = msgspec.Raw()


class _Said(msgspec.Struct, frozen=True):
    type: str | None = None
    delta: msgspec.Raw = msgspec.Raw()
    item: msgspec.Raw = msgspec.Raw()
    item_id: str | int | None = None
    output_index: int | None = None
    arguments: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()


class ResponsesReader(TypedReader):
    """Reads the body of a successful response (a `StreamReader`)."""

    def __init__(
        self, names: Mapping[str, str] = NO_NAMES, *, model: str = "", reasoning_as_text: bool = False
    ) -> None:
        super().__init__(names, model=model, reasoning_as_text=reasoning_as_text)
        self._kept: list[_Reasoning] = []
        self._told: set[int | None] = set()
        """Places of the items whose text has come; None for pieces that name no place."""

    def _signed(self, model: str) -> tuple[Signed, ...]:
        return signed_blocks(self._kept, Dialect.RESPONSES, model)

    def _take(self, data: bytes, name: str, deltas: list[StreamEvent]) -> bool:
        said = part_of(data, _Said)
        if said is None:
            return False
        kind = said.type or name
        if kind in _TEXT:
            self._told.add(said.output_index)
            self._say(text_of(said.delta), deltas)
        elif kind in _REASONING:
            self._think(text_of(said.delta), deltas)
        elif kind == "response.function_call_arguments.delta":
            shown = self._calls.add(*_places(said), piece=text_of(said.delta))
            deltas.extend([shown] if shown is not None else [])
        elif kind == "response.function_call_arguments.done":
            self._calls.settle(*_places(said), whole=text_of(said.arguments))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            return self._take_item(said, kind, deltas)
        elif kind == "response.created" or kind in _ENDS:
            return self._take_response(part_of(said.response, _Response), kind)
        else:
            self._is_error(data, kind)
        return True

    def _take_body(self, body: bytes) -> bool:
        response = part_of(body, _Response)
        if response is None or response.output is None:
            return False
        self._take_response(response, f"response.{response.status or 'completed'}")
        return self._fault is None and self._is_complete

    def _take_item(self, said: _Said, kind: str, deltas: list[StreamEvent]) -> bool:
        item = part_of(said.item, _Item)
        if item is None:
            return False
        if kind == "response.output_item.done":
            self._keep(item)
            if item.type == "message" and not self._is_told(said.output_index):
                self._told.add(said.output_index)
                self._say_all(item, deltas)
        if item.type != "function_call":
            return True
        places, whole = _places(said, item.id), text_of(item.arguments)
        if kind == "response.output_item.added":
            deltas.append(self._calls.open(*places, id_=item.call_id or "", name=item.name or "", whole=whole))
        else:
            self._calls.settle(*places, id_=item.call_id or "", name=item.name or "", whole=whole)
        return True

    def _is_told(self, place: int | None) -> bool:
        """Whether the text of the item at `place` may have come."""
        return bool(self._told) and (place is None or not self._told.isdisjoint({place, None}))

    def _say_all(self, item: _Item, deltas: list[StreamEvent]) -> None:
        for part in part_of(item.content, list[_Part]) or ():
            self._say(part.text or part.refusal, deltas)

    def _keep(self, item: _Item) -> None:
        if item.type == "reasoning" and item.encrypted_content:
            summary = item.summary if is_given(item.summary) else msgspec.Raw(b"[]")
            self._kept.append(_Reasoning(summary, item.encrypted_content, item.id))

    def _take_response(self, response: _Response | None, kind: str) -> bool:
        if response is None:
            return False
        self._name(response.model, response.id)
        reason = (response.incomplete_details or _Reason()).reason or ""
        if kind == "response.completed":
            self._complete(response, None)
        elif kind == "response.incomplete" and reason in INCOMPLETE:
            self._complete(response, INCOMPLETE[reason])
        elif is_given(response.error):
            self._fault = classify(status=None, body=b'{"error":' + bytes(response.error) + b"}")
        elif kind != "response.created":
            why = " ".join((kind.removeprefix("response."), reason)).strip()
            self._fault = fault_named(FaultKind.SERVER_ERROR, f"the provider ended the answer as {why}")
        return True

    def _complete(self, response: _Response, finish: Finish | None) -> None:
        self._meter.take(response.usage)
        self._take_output(response.output or [])
        self._finish = finish or (Finish.TOOL_CALLS if self._calls else Finish.STOP)
        self._is_complete = True

    def _take_output(self, output: list[_Item]) -> None:
        had_text, had_calls, had_reasoning = bool(self._text), bool(self._calls), bool(self._kept)
        for item in output:
            if not had_reasoning:
                self._keep(item)
            if item.type == "message" and not had_text:
                self._say_all(item, [])
            elif item.type == "function_call":
                # Behind streamed calls it may complete one of them, but no other: none may be run twice.
                name = "" if had_calls else item.name or ""
                self._calls.settle(id_=item.call_id or "", name=name, whole=text_of(item.arguments))


def _places(said: _Said, item_id: str | int | None = None) -> tuple[tuple[str, int | str], ...]:
    """Where a call is found: by its number first, for some proxies change the item's id with each event."""
    places = (("number", said.output_index), ("id", said.item_id or item_id))
    return tuple((kind, place) for kind, place in places if place is not None)
