"""Server-sent events over bytes: the same events however the bytes were cut.

Line ends (CRLF, CR, LF) become LF as they arrive, so that an event's end is always two LF. An event that the stream
left without its blank line is handed out by `close`: providers forget the last line end, and half a JSON text is for
the reader above to judge.
"""

from __future__ import annotations

from typing import Final

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
        self._refuse_if_broken()
        data = self._with_lf(data)
        if not self._buffer and not self._is_first and data.endswith(_EVENT_END):
            # Most feeds are whole events: those need no buffer.
            return self._events(data[:-2].split(_EVENT_END))
        self._buffer += data
        if self._is_first and not self._drop_bom():
            return []
        # Only the new bytes and the one before can hold the end: an event in many pieces is not searched again.
        end = self._buffer.rfind(_EVENT_END, max(0, len(self._buffer) - len(data) - 1))
        blocks: list[bytes] = []
        if end >= 0:
            blocks = bytes(self._buffer[:end]).split(_EVENT_END)
            del self._buffer[: end + 2]
        return self._events(blocks)

    def peek(self) -> bytes:
        """Return the first bytes (at most 64) of what arrived and is no event yet."""
        return bytes(self._buffer[:64])

    def close(self) -> list[Event]:
        """Return what the end of the stream completes: at most one event. Raises as `feed` does."""
        self._refuse_if_broken()
        rest = bytes(self._buffer)
        self._buffer.clear()
        return self._events([rest])

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

    def _drop_bom(self) -> bool:
        """Whether enough has arrived to know that the stream has no byte order mark left."""
        head = bytes(self._buffer[:3])
        if head != _BOM and _BOM.startswith(head):
            return False
        if head == _BOM:
            del self._buffer[:3]
        self._is_first = False
        return True

    def _events(self, blocks: list[bytes]) -> list[Event]:
        events: list[Event] = []
        for block in blocks:
            # The first LF of an end, or the second of the one before, may cling to a block.
            if len(block) > self._limit and len(block.strip(b"\n")) > self._limit:
                return self._break(events)
            event = _event(block)
            if event is not None:
                events.append(event)
        if len(self._buffer) > self._limit and len(self._buffer.strip(b"\n")) > self._limit:
            return self._break(events)
        return events

    def _break(self, events: list[Event]) -> list[Event]:
        self._is_broken = True
        self._buffer.clear()
        if not events:
            self._refuse_if_broken()
        return events

    def _refuse_if_broken(self) -> None:
        if self._is_broken:
            raise ProtocolError(f"an event of the stream is longer than {self._limit} bytes")


def _event(block: bytes) -> Event | None:
    if b"\n" not in block and block.startswith(b"data:"):
        return Event(_value(block[5:]))
    return _event_of_lines(block.split(b"\n"))


def _event_of_lines(lines: list[bytes]) -> Event | None:
    name = "message"
    data: list[bytes] = []
    for line in lines:
        field, _, rest = line.partition(b":")
        if field == b"data":
            data.append(_value(rest))
        elif field == b"event":
            name = _value(rest).decode("utf-8", "replace")
    return Event(b"\n".join(data), name) if data else None


def _value(rest: bytes) -> bytes:
    return rest[1:] if rest.startswith(b" ") else rest
