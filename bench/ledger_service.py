"""The ledger of the ledger benchmark, in a process of its own: the real writer behind the real socket, and no fleet.

It is started warm, as a zygote's child is: what is measured after a kill is the ledger and not an interpreter.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

from ..actors.ledger import LedgerWriter
from ..protocol.ids import Incarnation
from ..protocol.messages.ledger import LedgerRequest
from ..protocol.peer import Peer
from ..storage.owners import me
from ..supervisor.hub import Hub
from ..supervisor.loops import run
from ..supervisor.roles.ledger import answer, tune
from ..supervisor.sockets import make_context


class LedgerProcess:
    """A ledger on a listening socket that outlives it. Blocking; owned by one thread."""

    def __init__(self, home: Path, listener: socket.socket) -> None:
        """Start it warm; it owns nothing before `serve`."""
        fd = listener.fileno()
        code = f"from covey.bench.ledger_service import main; main({str(home)!r}, {fd})"
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[fd]
        )
        self._line()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def serve(self) -> None:
        """Let it begin."""
        assert self._child.stdin is not None, "opened as a pipe"
        self._child.stdin.write(b"serve\n")
        self._child.stdin.flush()

    def end(self) -> None:
        """Let it close its database, and wait for its end."""
        assert self._child.stdin is not None, "opened as a pipe"
        self._child.stdin.close()
        self._child.wait()
        self.kill()

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
            raise RuntimeError(f"the ledger ended with {self._child.wait()} before it was warm")


def socket_path(home: Path) -> str:
    """Where the ledger of `home` listens."""
    return str(home / "ledger.sock")


def main(home: str, listener_fd: int) -> None:
    """Say that we are warm, wait for the word, and serve until our standard input ends."""
    print("warm", flush=True)
    if sys.stdin.readline():
        tune()
        run(_serve(Path(home), listener_fd))


async def _serve(home: Path, listener_fd: int) -> None:
    writer = LedgerWriter(home / "state.db", home / "outbox")
    await writer.start()
    life = Incarnation(f"ledger-{os.getpid()}")
    hub = Hub(
        make_context(),
        path=socket_path(home),
        listener_fd=os.dup(listener_fd),
        me=Peer(role="ledger", name="ledger", incarnation=life, owner=me()),
        requests=LedgerRequest,
        on_request=partial(answer, writer),
    )
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()
    hub.close()
    await writer.close()
