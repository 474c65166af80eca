"""What an answer that passes by tells about its call: tokens, model, id, an error, and whether it came to its end.

Reads a copy of the bytes of a response in any of the three dialects, streamed or whole, and changes none of them. What
it cannot read (another shape, more than the bounds, an encoding it does not know) leaves its facts unknown.
"""

from __future__ import annotations

import zlib
from typing import Final

import msgspec

from ..protocol.dialects.chat_wire import chunk_of, is_given
from ..protocol.errors import ProtocolError
from ..protocol.faults import Fault, classify
from ..protocol.sse import Event, EventReader
from ..protocol.usage import Usage
from ..protocol.usage_meter import UsageMeter

MAX_BODY_BYTES: Final = 4 << 20
"""Of a body that is no stream; an answer's text fits, an image or a batch of embeddings is let pass unread."""

ENCODINGS: Final = "gzip, deflate"
"""What can be read in passing: requests are made to accept nothing else."""

_MAX_EVENT_BYTES: Final = 1 << 20
_ENDS: Final = frozenset({"message_stop", "response.completed", "response.failed", "response.incomplete"})


class AnswerReader:
    """Takes the body of one successful response, as it is on the wire. Never raises. Owned by who reads the body."""

    def __init__(self, *, content_type: str, content_encoding: str) -> None:
        self.model: str | None = None
        self.response_id: str | None = None
        self.fault: Fault | None = None
        self.is_over = False
        """The dialect's own end was seen: what follows are empty lines."""
        self._decoder = _decoder(content_encoding)
        self._events = EventReader(max_event_bytes=_MAX_EVENT_BYTES) if _is_stream(content_type) else None
        self._body = bytearray()
        self._is_blind = self._decoder is None
        self._meter = UsageMeter()

    @property
    def usage(self) -> Usage | None:
        """What the provider reported so far; None where that is not both what went in and what came out."""
        return self._meter.usage

    def feed(self, data: bytes) -> None:
        """Take more of the body."""
        if self._is_blind or self.is_over or self._decoder is None:
            return
        try:
            self._take(self._decoder.decompress(data, MAX_BODY_BYTES + 1))
        except (zlib.error, ProtocolError):
            self._is_blind = True

    def close(self) -> None:
        """The body's last byte was seen."""
        if self._is_blind or self.is_over:
            return
        try:
            if self._events is None:
                self._whole(bytes(self._body))
                self.is_over = True
                return
            for event in self._events.close():
                self._event(event)
        except ProtocolError:
            self._is_blind = True

    def _take(self, data: bytes) -> None:
        if len(data) > MAX_BODY_BYTES:
            self._is_blind = True
        elif self._events is not None:
            for event in self._events.feed(data):
                self._event(event)
        elif len(self._body) + len(data) > MAX_BODY_BYTES:
            self._body.clear()
            self._is_blind = True
        else:
            self._body += data

    def _event(self, event: Event) -> None:
        data = event.data.strip()
        if data == b"[DONE]":
            self.is_over = True
            return
        chunk = chunk_of(data)
        if chunk is not None and (chunk.is_error or event.name == "error"):
            self._error(data)
            return
        said = _said(data)
        if said is None:
            return
        self._name(said)
        if said.type == "message_start" and (begun := _said(said.message)) is not None:
            self._name(begun)
            self._meter.take(begun.usage, is_opening=True)
        if (response := _said(said.response)) is not None:
            self._response(response)
        self._count(said)
        self.is_over = self.is_over or (said.type or event.name) in _ENDS

    def _whole(self, body: bytes) -> None:
        chunk = chunk_of(body) if body.strip() else None
        if chunk is not None and chunk.is_error and not chunk.choices:
            self._error(body)
        elif (said := _said(body)) is not None:
            self._name(said)
            self._count(said)

    def _response(self, response: _Said) -> None:
        self._name(response)
        self._count(response)
        if is_given(response.error):
            self._error(b'{"error":' + bytes(response.error) + b"}")

    def _name(self, said: _Said) -> None:
        self.model = said.model or self.model
        if said.id and self.response_id is None:
            self.response_id = str(said.id)

    def _count(self, said: _Said) -> None:
        self._meter.take(said.usage if is_given(said.usage) else said.timings)

    def _error(self, data: bytes) -> None:
        self.fault = classify(status=None, body=data)
        self.is_over = True


def decoded(data: bytes, content_encoding: str, *, at_most: int) -> bytes:
    """The beginning of a body in plain bytes; what cannot be decoded is empty."""
    decoder = _decoder(content_encoding)
    try:
        return decoder.decompress(data, at_most)[:at_most] if decoder is not None else b""
    except zlib.error:
        return b""


class _Said(msgspec.Struct, frozen=True):
    """The parts of an event, or of a whole body, that are read here."""

    id: str | int | None = None
    type: str | None = None
    model: str | None = None
    usage: msgspec.Raw = msgspec.Raw()
    timings: msgspec.Raw = msgspec.Raw()
    message: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


class _Plain:
    """Bytes that are not encoded."""

    def decompress(self, data: bytes, at_most: int) -> bytes:
        return data


def _said(data: bytes | msgspec.Raw) -> _Said | None:
    if not bytes(data).lstrip().startswith(b"{"):
        return None
    try:
        return msgspec.json.decode(data, type=_Said)
    except (msgspec.DecodeError, RecursionError):
        return None


def _is_stream(content_type: str) -> bool:
    return content_type.strip().lower().startswith("text/event-stream")


def _decoder(content_encoding: str) -> _Plain | zlib._Decompress | None:
    match content_encoding.strip().lower():
        case "" | "identity":
            return _Plain()
        case "gzip" | "x-gzip":
            return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        case "deflate":
            return zlib.decompressobj()
        case _:
            return None
