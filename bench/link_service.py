"""The other end of the link benchmark, each kind in its own process: a hub, a bare ROUTER that answers the same sizes
in a blocking loop, and one that does so from an asyncio loop, which is what a hub has to live in.

A process is started warm: it has imported everything and waits for a line before it serves, so that what is measured
after a kill is the link and not the start of an interpreter.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final

import zmq

from ..actors.ports import Request
from ..protocol.ids import Incarnation
from ..protocol.messages.base import Done, Failed, Wire
from ..protocol.peer import Peer
from ..storage.owners import me
from ..supervisor.hub import Hub
from ..supervisor.loops import run
from ..supervisor.pump import NOBLOCK, NOBLOCK_MORE, Pump
from ..supervisor.sockets import make_context, make_router

BARE_REPLY_BYTES: Final = 48
"""As many as a hub's reply has."""


class Echo(Wire, frozen=True, kw_only=True, tag="echo"):
    """Answered by `Done`."""

    text: str


class Note(Wire, frozen=True, kw_only=True, tag="note"):
    """Told, and counted."""

    text: str


class CountQuery(Wire, frozen=True, kw_only=True, tag="count_query"):
    """Answered by `Count`."""


class Count(Wire, frozen=True, kw_only=True, tag="count"):
    """How many notes came."""

    notes: int


LinkRequest = Echo | Note | CountQuery
LinkReply = Done | Count | Failed

ECHO: Final = Echo(text="call_0123456789abcdef")
NOTE: Final = Note(text="call_0123456789abcdef")


class ServiceProcess:
    """One end in a process of its own, on a listening socket that outlives it. Blocking; owned by one thread."""

    def __init__(self, kind: str, path: str, listener: socket.socket) -> None:
        fd = listener.fileno()
        code = f"from covey.bench.link_service import main; main({kind!r}, {path!r}, {fd})"
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[fd]
        )
        self._line()

    def serve(self) -> None:
        """Let it begin."""
        assert self._child.stdin is not None, "opened as a pipe"
        self._child.stdin.write(b"serve\n")
        self._child.stdin.flush()

    def kill(self) -> None:
        """SIGKILL, and wait for its end. Idempotent."""
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None, "opened as a pipe"
            pipe.close()

    def _line(self) -> None:
        assert self._child.stdout is not None, "opened as a pipe"
        if not self._child.stdout.readline():
            raise RuntimeError(f"the other end ended with {self._child.wait()} before it was warm")


def main(kind: str, path: str, listener_fd: int) -> None:
    """Say that we are warm, wait for the word, and serve until killed, or until whoever started us is gone."""
    serve: Callable[[str, int], None] = {"hub": _serve_hub, "bare": _serve_bare, "loop": _serve_loop}[kind]
    print("warm", flush=True)
    if sys.stdin.readline():
        serve(path, listener_fd)


def _serve_bare(path: str, listener_fd: int) -> None:
    router = make_router(make_context(), path=path, listener_fd=os.dup(listener_fd))
    router.setsockopt(zmq.RCVTIMEO, 60_000)  # nobody wants us for so long: an error ends us
    reply = b"r" * BARE_REPLY_BYTES
    while True:
        identity, _ = router.recv_multipart()
        router.send_multipart([identity, reply])


def _serve_loop(path: str, listener_fd: int) -> None:
    run(_serve_loop_until_killed(path, listener_fd))


async def _serve_loop_until_killed(path: str, listener_fd: int) -> None:
    router = make_router(make_context(), path=path, listener_fd=os.dup(listener_fd))
    reply = b"r" * BARE_REPLY_BYTES

    def answer() -> int:
        identity, _ = router.recv(NOBLOCK), router.recv(NOBLOCK)
        router.send(identity, NOBLOCK_MORE)
        router.send(reply, NOBLOCK)
        return 1

    Pump(router, answer)
    await _nobody_wants_us()


async def _nobody_wants_us() -> None:
    """Until whoever started us is gone."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()


def _serve_hub(path: str, listener_fd: int) -> None:
    run(_serve_hub_until_the_end(path, listener_fd))


async def _serve_hub_until_the_end(path: str, listener_fd: int) -> None:
    notes = 0

    def on_request(request: Request[Any]) -> None:
        nonlocal notes
        match request.body:
            case Echo():
                request.reply(Done())
            case Note():
                notes += 1
            case CountQuery():
                request.reply(Count(notes=notes))

    life = Incarnation(f"bench-{os.getpid()}")
    peer = Peer(role="bench", name="bench", incarnation=life, owner=me())
    hub = Hub(
        make_context(),
        path=path,
        listener_fd=os.dup(listener_fd),
        me=peer,
        requests=LinkRequest,
        on_request=on_request,
    )
    await _nobody_wants_us()
    hub.close()
