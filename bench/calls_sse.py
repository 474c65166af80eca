"""How fast the stream of the calls benchmark is cut into events, beside httpx-sse, and what reading it whole costs."""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, cast

import httpx
import httpx_sse

from ..protocol.dialects.registry import wire_dialect
from ..protocol.settings import Dialect
from ..protocol.sse import EventReader
from .calls_answer import PIECES
from .report import median

SEGMENT_BYTES: Final = 1460
"""What one packet of an Ethernet carries."""

_BODY: Final = b"".join(PIECES)
_EVENTS: Final = _BODY.count(b"\n\n")


@dataclass(frozen=True, slots=True)
class Reading:
    """Megabytes a second, but for the last."""

    events_mb_per_s: float
    """In segments."""
    each_event_mb_per_s: float
    """One event at a time, as it comes while a model speaks."""
    httpx_sse_mb_per_s: float
    httpx_sse_each_mb_per_s: float
    chunk_us: float
    """To read one chunk of the answer whole, with its JSON, one at a time."""


def reading(*, slices: int, slice_s: float) -> Reading:
    """Measure in slices that take turns, so that a slow moment meets all of them."""
    segments = [_BODY[start : start + SEGMENT_BYTES] for start in range(0, len(_BODY), SEGMENT_BYTES)]
    each = [event + b"\n\n" for event in _BODY.split(b"\n\n")[:-1]]
    kinds: list[tuple[Callable[[list[bytes]], int], list[bytes]]] = [
        (_events, segments),
        (_events, each),
        (_httpx_sse, segments),
        (_httpx_sse, each),
        (_answer, each),
    ]
    rates: list[list[float]] = [[] for _ in kinds]
    for _ in range(slices):
        for rate, (read, pieces) in zip(rates, kinds, strict=True):
            rate.append(_bytes_per_s(read, pieces, slice_s) / 1e6)
    ours, ours_each, theirs, theirs_each, answer = map(median, rates)
    return Reading(ours, ours_each, theirs, theirs_each, chunk_us=len(_BODY) / len(each) / answer)


def _bytes_per_s(read: Callable[[list[bytes]], int], pieces: list[bytes], slice_s: float) -> float:
    # Processor time: how fast it is does not depend on who else is at work.
    began, times = time.thread_time(), 0
    while (took := time.thread_time() - began) < slice_s:
        for _ in range(20):
            if read(pieces) != _EVENTS:
                raise RuntimeError("a reader found another number of events")
        times += 20
    return times * len(_BODY) / took


def _events(pieces: list[bytes]) -> int:
    reader = EventReader()
    return sum(len(reader.feed(piece)) for piece in pieces) + len(reader.close())


def _answer(pieces: list[bytes]) -> int:
    reader = wire_dialect(Dialect.CHAT).reader()
    for piece in pieces:
        reader.feed(piece)
    return _EVENTS if reader.close().complete else 0


def _httpx_sse(pieces: list[bytes]) -> int:
    source = httpx_sse.EventSource(cast(httpx.Response, _Text(pieces)))
    return sum(1 for _ in source.iter_sse())


class _Text:
    """As much of a response as httpx-sse looks at, with the text decoded as httpx does it."""

    headers: Final = {"content-type": "text/event-stream"}

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    def iter_text(self) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")()
        for piece in self._pieces:
            yield decoder.decode(piece)
