"""A provider that costs next to nothing, for measuring its clients: in a process of its own, and all it ever says is
encoded before anybody asks. It looks at a request only for its length, and for whether it is in a hurry.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections import defaultdict
from typing import Final, Self, cast

from ..supervisor.loops import run
from .calls_answer import HURRIED, PIECES
from .files import raise_file_limit

TICK_S: Final = 0.002
"""Pieces that are due within it are sent in one turn of the loop: a timer for each would cost more than the sending."""

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.I)
_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\nx-request-id: req_0123456789\r\n\r\n"
)
_HURRIED: Final = b'"' + HURRIED.encode() + b'"'


def _framed(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


_SENT: Final = [_HEAD + _framed(PIECES[0]), *map(_framed, PIECES[1:-1]), _framed(PIECES[-1]) + b"0\r\n\r\n"]
_AT_ONCE: Final = b"".join(_SENT)


class LightProvider:
    """Runs one while inside, on two ports; `ports` from entry on. Blocking; owned by one thread."""

    ports: tuple[int, int]

    def __init__(self, *, think_s: float, gap_s: float) -> None:
        self._code = f"from covey.bench.calls_provider import main; main({think_s!r}, {gap_s!r})"

    def __enter__(self) -> Self:
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-c", self._code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._child.stdout is not None, "opened as a pipe"
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"the provider ended with {self._child.wait()} before it listened")
        one, other = line.split()
        self.ports = int(one), int(other)
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._child.stdin is not None, "opened as a pipe"
        assert self._child.stdout is not None, "opened as a pipe"
        self._child.stdin.close()
        try:
            self._child.wait(5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()


class _Wheel:
    """Calls at their time, give or take a tick. Owned by the loop thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: defaultdict[int, list[_Stream]] = defaultdict(list)
        self._at = 0

    def add(self, at: float, stream: _Stream) -> None:
        if not self._due:
            self._at = int(self._loop.time() / TICK_S)
            self._loop.call_at((self._at + 1) * TICK_S, self._turn)
        self._due[max(int(at / TICK_S), self._at + 1)].append(stream)

    def _turn(self) -> None:
        now = int(self._loop.time() / TICK_S)
        while self._at < now:
            self._at += 1
            for stream in self._due.pop(self._at, ()):
                stream.send()
        if self._due:
            self._loop.call_at((self._at + 1) * TICK_S, self._turn)


class _Stream(asyncio.Protocol):
    """One connection, one request after the other."""

    def __init__(self, wheel: _Wheel, think_s: float, gap_s: float) -> None:
        self._wheel, self._think_s, self._gap_s = wheel, think_s, gap_s
        self._time = asyncio.get_running_loop().time
        self._received = b""
        self._place, self._due = 0, 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        length = _LENGTH.search(self._received, 0, end) if end >= 0 else None
        if length is None or len(self._received) < end + 4 + int(length[1]):
            return
        if _HURRIED in self._received:
            self._transport.write(_AT_ONCE)
        else:
            self._place, self._due = 0, self._time() + self._think_s
            self._wheel.add(self._due, self)
        self._received = b""

    def send(self) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(_SENT[self._place])
        self._place += 1
        if self._place < len(_SENT):
            self._due += self._gap_s
            self._wheel.add(self._due, self)


def main(think_s: float, gap_s: float) -> None:
    """Say the ports, and serve until standard input ends."""
    raise_file_limit()
    run(_serve(think_s, gap_s))


async def _serve(think_s: float, gap_s: float) -> None:
    loop = asyncio.get_running_loop()
    wheel = _Wheel(loop)
    servers = [
        await loop.create_server(lambda: _Stream(wheel, think_s, gap_s), "127.0.0.1", 0, backlog=4096) for _ in range(2)
    ]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)
    for server in servers:
        server.close()
