"""Server-sent events over bytes: the same events however the bytes were cut.

Line ends (CRLF, CR, LF) become LF as they arrive, so that an event's end is always two LF. An event that the stream
left without its blank line is handed out by `close`: providers forget the last line end, and half a JSON text is for
the reader above to judge.
"""

from __future__ import annotations

from typing import Final, NoReturn

import msgspec

from .errors import ProtocolError

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
"""One event with its comments; an inlined image fits, a runaway does not."""

_BOM: Final = b"\xef\xbb\xbf"
_EVENT_END: Final = b"\n\n"


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event. `data` joins its lines with LF; ids and retry times mean nothing to a provider call."""

    data: bytes
    name: str = "message"


class EventReader:
    """Cuts a stream of bytes into events. Owned by whoever reads the stream."""

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        self._buffer = bytearray()
        self._is_first = True
        self._after_cr = False
        self._is_broken = False

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that are whole now.

        Raises `ProtocolError` over an event longer than the bound, and again at every later call; events before
        it are handed out first, then the next call raises.
        """
        if self._is_broken:
            self._refuse()
        if self._after_cr or b"\r" in data:
            data = self._with_lf(data)
        if self._is_first:
            data = self._without_bom(data)
        buffer = self._buffer
        if not buffer and data.endswith(_EVENT_END):
            return self._events(data)  # Most feeds are whole events.
        end = data.rfind(_EVENT_END) + 2
        if end < 2:
            # An event in many pieces is not searched again: its end is in the new bytes, or between them and the old.
            end = 1 if data[:1] == b"\n" == buffer[-1:] else 0
        if not end:
            buffer += data
            return self._break([]) if self._is_too_long(buffer) else []
        whole = b"".join((buffer, data[:end]))
        buffer[:] = data[end:]
        events = self._events(whole)
        return self._break(events) if self._is_too_long(buffer) else events

    def peek(self) -> bytes:
        """Return the first bytes (at most 64) of what arrived and is no event yet."""
        return bytes(self._buffer[:64])

    def close(self) -> list[Event]:
        """Return what the end of the stream completes: at most one event. Raises as `feed` does."""
        if self._is_broken:
            self._refuse()
        rest = bytes(self._buffer)
        self._buffer.clear()
        return self._events(rest + _EVENT_END)

    def _with_lf(self, data: bytes) -> bytes:
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
            self._after_cr = False
        if not data:
            return data
        self._after_cr = data.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data

    def _without_bom(self, data: bytes) -> bytes:
        """The bytes to read now: none until enough has arrived to know that no byte order mark is left."""
        data = bytes(self._buffer) + data
        if data != _BOM and _BOM.startswith(data):
            self._buffer[:] = data
            return b""
        self._buffer.clear()
        self._is_first = False
        return data.removeprefix(_BOM)

    def _events(self, whole: bytes) -> list[Event]:
        """Read text that ends with the end of an event."""
        if whole.startswith(b"data: ") and len(whole) <= self._limit:
            values = whole[6:-2].split(b"\n\ndata: ")
            # No line ends but those that were cut at: what chat completions send is not looked at line by line.
            if whole.count(b"\n") == 2 * len(values):
                return [Event(value) for value in values]
        events: list[Event] = []
        for block in whole[:-2].split(_EVENT_END):
            if self._is_too_long(block):
                return self._break(events)
            event = _event(block)
            if event is not None:
                events.append(event)
        return events

    def _is_too_long(self, block: bytes | bytearray) -> bool:
        # The first LF of an end, or the second of the one before, may cling to a block.
        return len(block) > self._limit and len(block.strip(b"\n")) > self._limit

    def _break(self, events: list[Event]) -> list[Event]:
        self._is_broken = True
        self._buffer.clear()
        if not events:
            self._refuse()
        return events

    def _refuse(self) -> NoReturn:
        raise ProtocolError(f"an event of the stream is longer than {self._limit} bytes")


def _event(block: bytes) -> Event | None:
    field, _, rest = block.partition(b"\n")
    if not rest:
        return Event(_value(field[5:])) if field.startswith(b"data:") else _event_of_lines([field])
    if field.startswith(b"event:") and rest.startswith(b"data:") and b"\n" not in rest:
        return Event(_value(rest[5:]), _text(_value(field[6:])))
    return _event_of_lines(block.split(b"\n"))


def _event_of_lines(lines: list[bytes]) -> Event | None:
    name = "message"
    data: list[bytes] = []
    for line in lines:
        field, _, rest = line.partition(b":")
        if field == b"data":
            data.append(_value(rest))
        elif field == b"event":
            name = _text(_value(rest))
    return Event(b"\n".join(data), name) if data else None


def _value(rest: bytes) -> bytes:
    return rest[1:] if rest.startswith(b" ") else rest


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
