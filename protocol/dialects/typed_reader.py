"""What Anthropic Messages and Responses have in common: events that name their type, or one JSON object.

Complete means that the event that ends an answer was seen and was whole. `[DONE]`, which proxies put behind it, ends
the reading but completes nothing.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from ..errors import ProtocolError
from ..fault_kinds import Fault, FaultKind
from ..faults import classify, fault_named
from ..sse import MAX_EVENT_BYTES, Event, EventReader
from ..transcript import Signed
from ..usage_meter import UsageMeter
from .base import NO_NAMES, Answer, Finish, ReasoningDelta, StreamEvent, TextDelta
from .chat_reader import BROKEN
from .chat_wire import chunk_of
from .named_calls import NamedCalls

_DONE: Final = b"[DONE]"
_SPACE: Final = b" \t\r\n"
_BOM: Final = b"\xef\xbb\xbf"

Part = TypeVar("Part")


def part_of(raw: bytes | msgspec.Raw, kind: type[Part]) -> Part | None:
    """Decode one event, or a part of one; None if it is not of that kind.

    Text that was split inside a character (half a surrogate pair, bytes that are not UTF-8) is mended.
    """
    data = bytes(raw)
    if not data:
        return None
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        parsed = json.loads(data.decode("utf-8", "replace"))
        text = json.dumps(parsed, ensure_ascii=False).encode("utf-8", "replace")
        return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError):
        return None


class TypedReader(ABC):
    """Reads the body of a successful response (a `StreamReader`); a body that is no stream yields no deltas."""

    def __init__(
        self, names: Mapping[str, str] = NO_NAMES, *, model: str = "", reasoning_as_text: bool = False
    ) -> None:
        self._asked_model = model
        self._thoughts: list[str] | None = [] if reasoning_as_text else None
        self._head = bytearray()
        self._source: EventReader | bytearray | None = None
        """None until it is known what the body is."""
        self._is_done = False
        self._is_complete = False
        self._text: list[str] = []
        self._calls = NamedCalls(names)
        self._finish = Finish.UNKNOWN
        self._meter = UsageMeter()
        self._model: str | None = None
        self._response_id: str | None = None
        self._fault: Fault | None = None

    @abstractmethod
    def _take(self, data: bytes, name: str, deltas: list[StreamEvent]) -> bool:
        """Take one event; False if it cannot be read. `name` stands in for a type that the data leave out."""

    @abstractmethod
    def _take_body(self, body: bytes) -> bool:
        """Take a body that is no stream; False if it is no answer."""

    @abstractmethod
    def _signed(self, model: str) -> tuple[Signed, ...]:
        """The blocks that have to be sent back to `model`, in their order."""

    @property
    def is_over(self) -> bool:
        """Whether the end or an error was seen."""
        return self._is_done or self._is_complete or self._fault is not None

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Take bytes of the body; see `StreamReader.feed`."""
        if self.is_over:
            return []
        if self._source is None:
            data = self._sniff(data)
        deltas: list[StreamEvent] = []
        if isinstance(self._source, EventReader):
            try:
                self._take_events(self._source.feed(data), deltas, is_last=False)
            except ProtocolError as error:
                self._fault = fault_named(FaultKind.INVALID_RESPONSE, str(error))
        elif self._source is not None:
            self._source += data
            if len(self._source) > MAX_EVENT_BYTES:
                self._fault = fault_named(FaultKind.INVALID_RESPONSE, f"a body of over {MAX_EVENT_BYTES} bytes")
        return deltas

    def close(self) -> Answer:
        """Take the end of the body; see `StreamReader.close`."""
        if not self.is_over:
            self._close_source()
        complete = self._is_complete and self._fault is None
        text, tool_calls = "".join(self._text), self._calls.finished(self._response_id) if complete else ()
        if complete and self._thoughts and not text.strip() and not tool_calls:
            text = "".join(self._thoughts)
        return Answer(
            text=text,
            tool_calls=tool_calls,
            finish=self._finish if complete else Finish.UNKNOWN,
            complete=complete,
            usage=self._meter.usage if complete else None,
            model=self._model,
            response_id=self._response_id,
            fault=self._fault,
            signed=self._signed(self._asked_model or self._model or "") if complete else (),
        )

    # --- for the dialects --------------------------------------------------------------------------------------------

    def _name(self, model: str | None, id_: str | int | None) -> None:
        self._model = model or self._model
        if id_ and self._response_id is None:
            self._response_id = str(id_)

    def _say(self, text: str | None, deltas: list[StreamEvent]) -> None:
        if text:
            self._text.append(text)
            deltas.append(TextDelta(text))

    def _think(self, text: str | None, deltas: list[StreamEvent]) -> None:
        if text:
            deltas.append(ReasoningDelta(text))
            if self._thoughts is not None:
                self._thoughts.append(text)

    def _end_with(self, reason: str | None, known: dict[str, Finish]) -> None:
        """Take the reason of an end; some reasons say that it is none."""
        word = (reason or "").strip().lower()
        if word in BROKEN:
            self._fault = fault_named(BROKEN[word], f"the provider ended the answer with {word}", code=word)
        elif word:
            self._finish = known.get(word, Finish.UNKNOWN)

    def _is_error(self, data: bytes, name: str) -> bool:
        """Whether the event is an error in place of an answer, which is then known."""
        chunk = chunk_of(data)
        if name == "error" or (chunk is not None and chunk.is_error):
            self._fault = classify(status=None, body=data)
            return True
        return False

    # --- bytes -------------------------------------------------------------------------------------------------------

    def _sniff(self, data: bytes) -> bytes:
        """Decide what the body is, by its first character; returns the bytes that are to be read now."""
        self._head += data
        head = bytes(self._head)
        rest = head.removeprefix(_BOM).lstrip(_SPACE)
        if _BOM.startswith(head) or not rest:
            # One blank tells as much as many: that no byte order mark can follow.
            self._head = bytearray(head[: len(_BOM) + 1])
            return b""
        self._head.clear()
        self._source = bytearray() if rest[:1] in (b"{", b"[", b"<") else EventReader()
        return rest

    def _close_source(self) -> None:
        if isinstance(self._source, EventReader):
            try:
                self._take_events(self._source.close(), [], is_last=True)
            except ProtocolError as error:
                self._fault = fault_named(FaultKind.INVALID_RESPONSE, str(error))
            return
        body = bytes(self._source or b"").strip()
        if not body or self._is_error(body, "message"):
            return
        if self._take_body(body):
            self._is_complete = True
        elif self._fault is None:
            self._fault = fault_named(FaultKind.INVALID_RESPONSE, body[:1000].decode("utf-8", "replace"))

    def _take_events(self, events: list[Event], deltas: list[StreamEvent], *, is_last: bool) -> None:
        for event in events:
            self._take_event(event, deltas, is_last=is_last)

    def _take_event(self, event: Event, deltas: list[StreamEvent], *, is_last: bool) -> None:
        data = event.data.strip()
        if self.is_over or not data:
            return
        if data == _DONE:
            self._is_done = True
        elif self._take(data, event.name, deltas):
            return
        elif b"\n" in data:
            # Lines of their own, from senders that forget the blank line between events: the name is the last one's.
            *lines, last = data.split(b"\n")
            self._take_events([Event(line) for line in lines], deltas, is_last=False)
            self._take_event(Event(last, event.name), deltas, is_last=is_last)
        elif event.name == "error":
            self._fault = classify(status=None, body=data)
        elif data[:1] in (b"{", b"[") and not is_last:
            # A piece of the answer is lost, and which one is not known. (Text that is no JSON is a proxy's remark.)
            self._fault = fault_named(FaultKind.INVALID_RESPONSE, "a piece of the stream cannot be read")
