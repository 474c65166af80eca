"""Frames on their way into one pipe, in order.

The first of a turn is sent at once, because somebody waits for it; those after it are sent together at the turn's end,
because a hundred in one message cost hardly more than one. What a full pipe refuses is kept, up to a bound.

Nothing depends on a frame that is dropped here: the session's numbers tell the peer that it is missing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import zmq

from ..protocol.frames import MAX_BUNDLE_BYTES, bundle
from .pump import Pump

RETRY_S: Final = 0.005
MAX_FRAMES: Final = 50_000
MAX_BYTES: Final = 256 * 1024 * 1024


class Outflow:
    """One peer's unsent frames. `send` puts one message into the pipe or raises `zmq.Again`. Owned by the loop thread.

    `pump` reads the same socket. At the bound everything is dropped and `on_overflow` is told how much: the peer does
    not read.
    """

    __slots__ = ("_bytes", "_is_waiting", "_loop", "_on_overflow", "_pump", "_retry", "_send", "_spoke_in", "_unsent")

    def __init__(
        self,
        send: Callable[[bytes], None],
        *,
        pump: Pump,
        loop: asyncio.AbstractEventLoop,
        on_overflow: Callable[[int], None],
    ) -> None:
        self._send = send
        self._pump = pump
        self._loop = loop
        self._on_overflow = on_overflow
        self._spoke_in = -1
        self._is_waiting = False
        self._unsent: deque[bytes] = deque()
        self._bytes = 0
        self._retry: asyncio.TimerHandle | None = None

    @property
    def is_held_back(self) -> bool:
        """Whether frames wait for room in the pipe."""
        return self._retry is not None

    def put(self, frames: list[bytes], *, is_alone: bool = False) -> None:
        """Send these after everything that waits. `is_alone`: no others are likely to follow in this turn."""
        is_first = self._spoke_in != self._pump.turn and not self._unsent
        if is_first and len(frames) == 1 and self._sent_alone(frames[0], is_alone=is_alone):
            return
        for frame in frames:
            self._unsent.append(frame)
            self._bytes += len(frame)
        if len(self._unsent) > MAX_FRAMES or self._bytes > MAX_BYTES:
            self._overflow()
        elif not self._is_waiting and self._retry is None:
            self._is_waiting = True
            self._pump.at_turn_end(self._turn_ended)

    def flush(self) -> None:
        """Send what waits as far as the pipe takes it, without waiting for the end of the turn."""
        try:
            while self._unsent:
                count = self._bundled()
                self._send(bundle([self._unsent[at] for at in range(count)]))
                for _ in range(count):
                    self._bytes -= len(self._unsent.popleft())
        except zmq.Again:
            if self._retry is None:
                self._retry = self._loop.call_later(RETRY_S, self._try_again)

    def clear(self) -> None:
        """Drop what waits: the connection it was for is gone."""
        self._unsent.clear()
        self._bytes = 0
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _sent_alone(self, frame: bytes, *, is_alone: bool) -> bool:
        self._spoke_in = self._pump.turn
        try:
            self._send(frame)
        except zmq.Again:
            return False
        self._pump.sent(is_alone=is_alone)
        return True

    def _bundled(self) -> int:
        """How many of the next frames travel together: one at least."""
        count, size = 0, 0
        for frame in self._unsent:
            size += len(frame)
            if size > MAX_BUNDLE_BYTES:
                break
            count += 1
        return max(1, count)

    def _turn_ended(self) -> bool:
        self._is_waiting = False
        if not self._unsent or self._retry is not None:
            return False
        self.flush()
        return True

    def _try_again(self) -> None:
        self._retry = None
        self._is_waiting = True
        self._pump.at_turn_end(self._turn_ended)

    def _overflow(self) -> None:
        dropped = len(self._unsent)
        self.clear()
        self._on_overflow(dropped)
