"""Frames on their way into one pipe: sent at once, or kept in order, up to a bound, while the pipe is full.

Nothing depends on a frame that is dropped here: the session's numbers tell the peer that it is missing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import zmq

RETRY_S: Final = 0.005
MAX_FRAMES: Final = 50_000
MAX_BYTES: Final = 256 * 1024 * 1024


class Outflow:
    """One peer's unsent frames. `send` puts one frame into the pipe or raises `zmq.Again`. Owned by the loop thread.

    At the bound everything is dropped and `on_overflow` is told how much: the peer does not read.
    """

    __slots__ = ("_bytes", "_loop", "_on_overflow", "_retry", "_send", "_unsent")

    def __init__(
        self, send: Callable[[bytes], None], loop: asyncio.AbstractEventLoop, on_overflow: Callable[[int], None]
    ) -> None:
        self._send = send
        self._loop = loop
        self._on_overflow = on_overflow
        self._unsent: deque[bytes] = deque()
        self._bytes = 0
        self._retry: asyncio.TimerHandle | None = None

    @property
    def is_held_back(self) -> bool:
        """Whether frames wait for room in the pipe."""
        return bool(self._unsent)

    def put(self, frames: list[bytes]) -> None:
        """Send these after everything that waits."""
        at = 0
        if not self._unsent:
            try:
                for frame in frames:
                    self._send(frame)
                    at += 1
            except zmq.Again:
                pass
            if at == len(frames):
                return
        for frame in frames[at:]:
            self._unsent.append(frame)
            self._bytes += len(frame)
        self._hold_back()

    def clear(self) -> None:
        """Drop what waits: the connection it was for is gone."""
        self._unsent.clear()
        self._bytes = 0
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _flush(self) -> None:
        self._retry = None
        try:
            while self._unsent:
                self._send(self._unsent[0])
                self._bytes -= len(self._unsent.popleft())
        except zmq.Again:
            self._hold_back()

    def _hold_back(self) -> None:
        if len(self._unsent) > MAX_FRAMES or self._bytes > MAX_BYTES:
            dropped = len(self._unsent)
            self.clear()
            self._on_overflow(dropped)
        elif self._retry is None:
            self._retry = self._loop.call_later(RETRY_S, self._flush)
