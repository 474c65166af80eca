"""What a command prints, in bounded memory: its head, its tail and a count of what was between them."""

from __future__ import annotations

import asyncio
import os
from typing import Final

READ_BYTES: Final = 65_536


class Kept:
    """The first and the last `half` bytes of what was added."""

    def __init__(self, half: int) -> None:
        self.total = 0
        self._half = half
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        """Take more; memory stays below three halves and one read."""
        self.total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[max(room, 0) :]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def text(self) -> str:
        """All of it, or head and tail with a line between them that says how much is missing."""
        tail = self._tail[-self._half :]
        missing = self.total - len(self._head) - len(tail)
        if missing <= 0:
            return (self._head + tail).decode(errors="replace")
        note = f"\n[... {missing} bytes left out ...]\n"
        return self._head.decode(errors="replace") + note + tail.decode(errors="replace")


class Drain:
    """Reads a pipe into `kept` as bytes come; owned by the loop thread. Ends at end-of-file or above `limit` bytes."""

    def __init__(self, pipe: int, kept: Kept, *, limit: int) -> None:
        """Take over `pipe`, the reading end; it is closed by `close`."""
        os.set_blocking(pipe, False)
        self._pipe, self._kept, self._limit = pipe, kept, limit
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(pipe, self._read)

    def close(self) -> None:
        """Stop reading, after taking what is there now; whoever still writes gets SIGPIPE."""
        if not self.ended.done():
            self._read()
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)

    def _read(self) -> None:
        try:
            data = os.read(self._pipe, READ_BYTES)
        except BlockingIOError:
            return
        self._kept.add(data)
        if not data or self._kept.total > self._limit:
            self._loop.remove_reader(self._pipe)
            self.ended.set_result(None)
