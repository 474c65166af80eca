"""The root's side of the zygote: ask for children, hear of them, signal them, bury what is left.

    client = start_zygote()                      # early: no threads, no ZeroMQ context yet
    loop.add_reader(client.fileno(), on_reports)  # calls client.receive()
    client.spawn(name="broker", role="broker", incarnation=life, log_path=log, fds={"listener": fd})

When `receive` says `ZygoteLost`, the children are dying too. `bury` waits for that; then every life in
`outstanding()` is `Lost`, and `exec_zygote` gives a new zygote even to a process that has threads by now.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from ..protocol.errors import UsageError
from ..protocol.ids import Incarnation
from . import zygote, zygote_wire
from .newborn import ROLES, Main
from .process import Swept, become_subreaper, send_signal, sweep, wait_for_exit
from .zygote_wire import FDS_MAX, ChildExited, ChildSpawned, SpawnChild, SpawnFailed, ZygoteReport

_ZYGOTE_FD = 3
"""Where an executed zygote finds its socket."""

_PROGRAM = "from covey.supervisor.zygote import main; main()"


class ZygoteLost(msgspec.Struct, frozen=True, kw_only=True, tag="zygote_lost"):
    """The zygote is gone; nothing more will be heard from it. Reported once."""

    pid: int


ZygoteEvent = ZygoteReport | ZygoteLost


def start_zygote(*, entry: str | Main = ROLES, preload: Sequence[str] = zygote.PRELOAD) -> ZygoteClient:
    """Fork a zygote and become its subreaper; returns at once, while it warms up.

    Only for a process with one thread and no ZeroMQ context: the zygote inherits all of it.
    """
    assert threading.active_count() == 1, "a zygote is forked before the first thread starts; later use exec_zygote"
    become_subreaper()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sys.stdout.flush()
    sys.stderr.flush()
    root, pid = os.getpid(), os.fork()
    if pid == 0:
        # Our end must not live on in the zygote: it would never see end of file.
        ours.close()
        zygote.run(theirs, root=root, entry=entry, preload=preload)
    theirs.close()
    return ZygoteClient(ours, pid)


def exec_zygote(*, entry: str = ROLES, preload: Sequence[str] = zygote.PRELOAD) -> ZygoteClient:
    """Start a zygote in a fresh interpreter: slower to warm up, but safe whatever threads this process has."""
    become_subreaper()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    arguments = [sys.executable, "-P", "-c", _PROGRAM, str(_ZYGOTE_FD), str(os.getpid()), entry, *preload]
    with theirs:
        pid = os.posix_spawn(
            sys.executable,
            arguments,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), _ZYGOTE_FD)],
            setpgroup=0,
        )
    return ZygoteClient(ours, pid)


class ZygoteClient:
    """Owned by one thread of the root. Nothing here waits, except `close` and `bury`."""

    def __init__(self, sock: socket.socket, pid: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)
        self._sock = sock
        self._is_lost = False
        self._names: dict[Incarnation, str] = {}
        self._pidfds: dict[Incarnation, int] = {}
        self._requests: deque[tuple[SpawnChild, list[int]]] = deque()

    def fileno(self) -> int:
        """Becomes readable when there is something to `receive`."""
        return self._sock.fileno()

    def spawn(
        self,
        *,
        name: str,
        role: str,
        incarnation: Incarnation,
        log_path: str,
        payload: bytes = b"",
        fds: Mapping[str, int] | None = None,
    ) -> None:
        """Ask for a child; `ChildSpawned` or `SpawnFailed` follows, or `ZygoteLost`.

        `payload` may have any size. The child gets a copy of each descriptor in `fds`, and no other; ours stay open.
        """
        handed_down = fds or {}
        if len(handed_down) >= FDS_MAX:
            raise UsageError(f"{name} would inherit {len(handed_down)} descriptors; at most {FDS_MAX - 1} can be sent")
        request = SpawnChild(name=name, role=role, incarnation=incarnation, log_path=log_path, fds=tuple(handed_down))
        # Copies, so that the caller may close its own while the request waits for room in the socket.
        copies = [_memory_file(payload), *(os.dup(fd) for fd in handed_down.values())]
        self._names[incarnation] = name
        self._requests.append((request, copies))
        self._flush()

    def receive(self) -> list[ZygoteEvent]:
        """What has happened since the last call, in order."""
        events: list[ZygoteEvent] = []
        while not self._is_lost:
            try:
                received = zygote_wire.receive_report(self._sock)
            except BlockingIOError:
                break
            if received is None:
                self._is_lost = True
                events.append(ZygoteLost(pid=self.pid))
                break
            self._note(*received)
            events.append(received[0])
        self._flush()
        return events

    def signal(self, incarnation: Incarnation, signo: int) -> bool:
        """Signal that life of a child; False if it is over, or not known to have begun."""
        pidfd = self._pidfds.get(incarnation)
        return pidfd is not None and send_signal(pidfd, signo)

    def kill(self) -> None:
        """End the zygote itself, and with it all its children; `ZygoteLost` follows."""
        if not self._is_lost:
            send_signal(self._pidfd, signal.SIGKILL)

    def outstanding(self) -> dict[Incarnation, str]:
        """The lives that were asked for and whose end has not been reported, with the child's name."""
        return dict(self._names)

    def close(self, *, timeout_s: float) -> Swept:
        """End the zygote and every descendant: it gets `timeout_s` to do so itself, then the rest is ours."""
        self._sock.close()
        wait_for_exit(self._pidfd, timeout_s=timeout_s)
        return self.bury(timeout_s=timeout_s)

    def bury(self, *, timeout_s: float) -> Swept:
        """Kill and reap the zygote, if need be, and all that came to us from it: all children of this process.

        The client is of no use after that.
        """
        self._is_lost = True
        self._sock.close()
        _close([self._pidfd, *self._pidfds.values()])
        self._pidfds.clear()
        for _, copies in self._requests:
            _close(copies)
        self._requests.clear()
        return sweep(timeout_s=timeout_s)

    def _note(self, report: ZygoteReport, fds: list[int]) -> None:
        match report:
            case ChildSpawned(incarnation=life):
                (self._pidfds[life],) = fds
            case ChildExited(incarnation=life) | SpawnFailed(incarnation=life):
                self._names.pop(life, None)
                if (pidfd := self._pidfds.pop(life, None)) is not None:
                    os.close(pidfd)
            case _:
                return

    def _flush(self) -> None:
        """Send what the socket takes now. The rest goes after the next report: a busy zygote has some to send."""
        while self._requests and not self._is_lost:
            request, copies = self._requests[0]
            try:
                zygote_wire.send(self._sock, request, copies)
            except (BlockingIOError, ConnectionError):
                return  # full, or gone: `receive` will say so
            self._requests.popleft()
            _close(copies)


def _memory_file(content: bytes) -> int:
    fd = os.memfd_create("covey-payload", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(content)
    return fd


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
