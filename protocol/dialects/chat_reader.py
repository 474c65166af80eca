"""Chat completions: the answer, streamed or whole.

Complete means that a finish reason or `[DONE]` was seen; a body that is no stream is complete in itself. Anything
else is truncated: what the model was about to do is not known, so its tool calls are not handed on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..errors import ProtocolError
from ..fault_kinds import Fault, FaultKind
from ..faults import classify, fault_named
from ..sse import MAX_EVENT_BYTES, Event, EventReader
from ..usage_meter import UsageMeter
from .base import NO_NAMES, Answer, Finish, ReasoningDelta, StreamEvent, TextDelta
from .chat_wire import Choice, Chunk, Delta, chunk_of, is_given
from .tool_calls import ToolCalls

FINISH: Final[dict[str, Finish]] = {
    "stop": Finish.STOP,
    "eos": Finish.STOP,
    "tool_calls": Finish.TOOL_CALLS,
    "function_call": Finish.TOOL_CALLS,
    "length": Finish.LENGTH,
    "max_tokens": Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    "content_filter": Finish.FILTERED,
    "sensitive": Finish.FILTERED,
}

BROKEN: Final[dict[str, FaultKind]] = {
    "error": FaultKind.SERVER_ERROR,
    "abort": FaultKind.SERVER_ERROR,
    "network_error": FaultKind.SERVER_ERROR,
    "insufficient_system_resource": FaultKind.OVERLOADED,
}
"""Finish reasons that say that the answer was not finished."""

_DONE: Final = b"[DONE]"
_DONE_LINES: Final = frozenset({b"data: [DONE]\n", b"data:[DONE]\n"})
_SPACE: Final = b" \t\r\n"
_BOM: Final = b"\xef\xbb\xbf"


class ChatReader:
    """Reads the body of a successful response (a `StreamReader`). A body that is no stream yields no deltas."""

    def __init__(self, names: Mapping[str, str] = NO_NAMES, *, reasoning_as_text: bool = False) -> None:
        self._source: EventReader | bytearray = bytearray()
        self._is_sniffing = True
        self._text: list[str] = []
        self._calls = ToolCalls(names)
        self._thoughts: list[str] | None = [] if reasoning_as_text else None
        self._finish: Finish | None = None
        self._is_done = False
        self._meter = UsageMeter()
        self._model: str | None = None
        self._response_id: str | None = None
        self._fault: Fault | None = None

    @property
    def is_over(self) -> bool:
        """Whether `[DONE]` or an error was seen."""
        return self._is_done or self._fault is not None

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Take bytes of the body; see `StreamReader.feed`."""
        if self.is_over:
            return []
        if self._is_sniffing:
            data = self._sniff(data)
        source = self._source
        if isinstance(source, EventReader):
            return self._read(source, data)
        if not self._is_sniffing:
            source += data
            if len(source) > MAX_EVENT_BYTES:
                self._fault = fault_named(FaultKind.INVALID_RESPONSE, f"a body of over {MAX_EVENT_BYTES} bytes")
        return []

    def close(self) -> Answer:
        """Take the end of the body; see `StreamReader.close`."""
        if not self.is_over:
            self._close_source()
        complete = self._fault is None and (self._is_done or self._finish is not None)
        text, tool_calls = "".join(self._text), self._calls.whole(self._response_id) if complete else ()
        if complete and self._thoughts and not text.strip() and not tool_calls:
            text = "".join(self._thoughts)
        return Answer(
            text=text,
            tool_calls=tool_calls,
            finish=(self._finish or Finish.UNKNOWN) if complete else Finish.UNKNOWN,
            complete=complete,
            usage=self._meter.usage if complete else None,
            model=self._model,
            response_id=self._response_id,
            fault=self._fault,
        )

    def _sniff(self, data: bytes) -> bytes:
        """Decide what the body is, by its first character; returns the bytes that are to be read now."""
        assert isinstance(self._source, bytearray), "only a body that is not known yet is sniffed"
        head = bytes(self._source) + data
        rest = head.removeprefix(_BOM).lstrip(_SPACE)
        if not rest or _BOM.startswith(head):
            # One blank tells as much as many: that no byte order mark can follow.
            self._source = bytearray(head[: len(_BOM) + 1])
            return b""
        self._is_sniffing = False
        self._source = bytearray() if rest[:1] in (b"{", b"[", b"<") else EventReader()
        return rest

    def _read(self, source: EventReader, data: bytes) -> list[StreamEvent]:
        deltas: list[StreamEvent] = []
        try:
            for event in source.feed(data):
                self._take_event(event, deltas, is_last=False)
        except ProtocolError as error:
            self._fault = fault_named(FaultKind.INVALID_RESPONSE, str(error))
        # Some leave out the last blank line and keep the connection open.
        if not self.is_over and source.peek() in _DONE_LINES:
            self._is_done = True
        return deltas

    def _close_source(self) -> None:
        if isinstance(self._source, bytearray):
            return self._take_body(bytes(self._source).removeprefix(_BOM))
        try:
            for event in self._source.close():
                self._take_event(event, [], is_last=True)
        except ProtocolError as error:
            self._fault = fault_named(FaultKind.INVALID_RESPONSE, str(error))
        return None

    def _take_event(self, event: Event, deltas: list[StreamEvent], *, is_last: bool) -> None:
        if self.is_over:
            return
        data = event.data.strip()
        if data == _DONE:
            self._is_done = True
        elif (chunk := chunk_of(data)) is not None:
            self._take_chunk(chunk, data, event.name, deltas)
        elif b"\n" in data:
            # Lines of their own, each a chunk, from senders that forget the blank line between events. Only the last
            # of them can have been cut by the end of the stream.
            *lines, last = data.split(b"\n")
            for line in lines:
                self._take_event(Event(line, event.name), deltas, is_last=False)
            self._take_event(Event(last, event.name), deltas, is_last=is_last)
        elif event.name == "error":
            self._fault = classify(status=None, body=data)
        elif data[:1] in (b"{", b"[") and not is_last:
            # A piece of the answer is lost, and which one is not known. (Text that is no JSON is a proxy's remark.)
            self._fault = fault_named(FaultKind.INVALID_RESPONSE, "a piece of the stream is broken JSON")

    def _take_chunk(self, chunk: Chunk, data: bytes, name: str, deltas: list[StreamEvent]) -> None:
        self._model = chunk.model or self._model
        if self._response_id is None and chunk.id:
            self._response_id = str(chunk.id)
        if chunk.is_error or name == "error":
            self._fault = classify(status=None, body=data)
            return
        self._meter.take(chunk.usage if is_given(chunk.usage) else chunk.timings)
        for choice in chunk.choices or ():
            if not choice.index:
                self._take_choice(choice, choice.delta, deltas)

    def _take_choice(self, choice: Choice, delta: Delta | None, deltas: list[StreamEvent]) -> None:
        self._meter.take(choice.usage)
        if delta is not None:
            self._take_delta(delta, deltas)
        reason = (choice.finish_reason or "").strip().lower()
        if reason in BROKEN:
            self._fault = fault_named(BROKEN[reason], f"the provider ended the answer with {reason}", code=reason)
        elif reason:
            self._finish = FINISH.get(reason, Finish.UNKNOWN)

    def _take_delta(self, delta: Delta, deltas: list[StreamEvent]) -> None:
        reasoning = delta.reasoning_content or delta.reasoning
        if reasoning:
            deltas.append(ReasoningDelta(reasoning))
            if self._thoughts is not None:
                self._thoughts.append(reasoning)
        text = _text(delta)
        if text:
            self._text.append(text)
            deltas.append(TextDelta(text))
        for piece in delta.tool_calls or ():
            shown = self._calls.add(piece)
            if shown is not None:
                deltas.append(shown)

    def _take_body(self, body: bytes) -> None:
        chunk = chunk_of(body) if body.strip() else None
        if chunk is None or not (chunk.is_error or chunk.choices):
            if body.strip():
                self._fault = fault_named(FaultKind.INVALID_RESPONSE, body[:1000].decode("utf-8", "replace"))
            return
        self._take_chunk(chunk, body, "message", [])
        for choice in (chunk.choices or ())[:1]:
            self._take_choice(choice, choice.message, [])
        self._is_done = self._fault is None


def _text(delta: Delta) -> str:
    content = delta.content
    if isinstance(content, list):
        content = "".join(part.text or "" for part in content)
    return content or delta.refusal or ""
