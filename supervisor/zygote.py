"""The zygote: a warm, single-threaded process that forks the fleet's children and buries what they leave behind.

It imports what children need and then only forks: no ZeroMQ context, no database, no loop, no thread. Being the
parent and subreaper of all, it inherits the grandchildren of whoever dies; children it does not know are killed, so
nothing of a dead agent goes on spending. When the root is gone (end of file on the socket), it kills every
descendant and ends. It lives as long as the root does: SIGINT, SIGTERM and SIGHUP are for others.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import NoReturn

from . import newborn, zygote_wire
from .cgroup import dissolve_own
from .newborn import ROLES, Main
from .process import become_subreaper, kill_strangers, set_title, start_ticks, sweep
from .zygote_wire import ChildExited, ChildSpawned, SpawnChild, SpawnFailed, StrangersKilled, ZygoteReady, ZygoteReport

PRELOAD = (
    "apsw",
    "asyncio",
    "httpx",
    "msgspec",
    "pykka",
    "zmq",
    "covey.supervisor.roles.broker",
    "covey.supervisor.roles.ledger",
    "covey.supervisor.roles.worker",
)
"""What is imported before the first fork, and then shared by all children."""

SCAN_S = 1.0
"""How often strangers are looked for, besides at every SIGCHLD."""

SWEEP_S = 4.0
GROUP_S = 0.5
"""How long the end may take: nobody is left 5 s after the root."""


def warm_up(preload: Sequence[str] = PRELOAD) -> tuple[str, ...]:
    """Import, and move what was made out of the collector's sight, so that pages stay shared after a fork.

    Returns what could not be imported.
    """
    missing = []
    for module in preload:
        try:
            import_module(module)
        except ImportError:
            missing.append(module)
    gc.collect()
    gc.freeze()
    return tuple(missing)


def run(
    sock: socket.socket,
    *,
    root: int,
    entry: str | Main = ROLES,
    preload: Sequence[str] = PRELOAD,
    fork: Callable[[], int] = os.fork,
) -> NoReturn:
    """Be the zygote of the process `root`, which holds the other end of `sock`; ends the process."""
    code = 1
    try:
        _settle(sock)
        missing = warm_up(preload)
        gc.disable()
        with _wake_on_child() as wakeup:
            _Zygote(sock, root=root, entry=entry, fork=fork).serve(wakeup, missing)
        code = 0
    except BaseException:  # noqa: BLE001 - process main: the root learns of it by our death
        sys.excepthook(*sys.exc_info())
    finally:
        sweep(timeout_s=SWEEP_S)
        # Whoever was found by no parent is found by this.
        dissolve_own(timeout_s=GROUP_S)
        os._exit(code)


def main() -> NoReturn:
    """Be the zygote of an executed interpreter: socket, root, entry and preload are on the command line."""
    fd, root, entry, *preload = sys.argv[1:]
    run(socket.socket(fileno=int(fd)), root=int(root), entry=entry, preload=preload)


class _Zygote:
    """Owned by the process's only thread. Children are known from their fork to their reaping."""

    def __init__(self, sock: socket.socket, *, root: int, entry: str | Main, fork: Callable[[], int]) -> None:
        self._sock = sock
        self._root = root
        self._entry = entry
        self._fork = fork
        self._children: dict[int, SpawnChild] = {}
        # At most two reports for each child that was asked for: bounded by what the root asks.
        self._reports: deque[tuple[ZygoteReport, list[int]]] = deque()

    def serve(self, wakeup: socket.socket, missing: tuple[str, ...]) -> None:
        """Serve until the root is gone; `wakeup` becomes readable at every SIGCHLD."""
        assert threading.active_count() == 1, "a zygote forks, so it must have one thread"
        self._report(ZygoteReady(pid=os.getpid(), missing=missing))
        poller = select.poll()
        poller.register(wakeup, select.POLLIN)
        scan_at = time.monotonic() + SCAN_S
        while os.getppid() == self._root:
            poller.register(self._sock, select.POLLIN | (select.POLLOUT if self._reports else 0))
            ready = dict(poller.poll(max(0.0, scan_at - time.monotonic()) * 1000))
            if wakeup.fileno() in ready:
                _drain(wakeup)
            if wakeup.fileno() in ready or time.monotonic() >= scan_at:
                self._reap()
                scan_at = time.monotonic() + SCAN_S
            if self._sock.fileno() in ready and not (self._flush() and self._take_requests()):
                return

    def _take_requests(self) -> bool:
        """Serve what has been asked; False once the root is gone."""
        while True:
            try:
                received = zygote_wire.receive_request(self._sock)
            except BlockingIOError:
                return True
            if received is None:
                return False
            request, fds = received
            self._spawn(request, fds)
            for fd in fds:
                os.close(fd)

    def _spawn(self, request: SpawnChild, fds: list[int]) -> None:
        zygote = os.getpid()
        # A child begins with our ignored signals. One sent to it before it has its own must wait, not vanish.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = self._fork()
            if pid == 0:
                newborn.live(request, fds, entry=self._entry, zygote=zygote)
        except OSError as error:
            self._fail(request, error)
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            pidfd = os.pidfd_open(pid)
            ticks = start_ticks(pid)
        except OSError as error:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self._fail(request, error)
            return
        self._children[pid] = request
        spawned = ChildSpawned(name=request.name, incarnation=request.incarnation, pid=pid, start_ticks=ticks)
        self._report(spawned, pidfd)

    def _fail(self, request: SpawnChild, error: OSError) -> None:
        self._report(SpawnFailed(name=request.name, incarnation=request.incarnation, error=str(error)))

    def _reap(self) -> None:
        """Reap everybody who ended, and kill whoever came to us by that before anybody hears of it."""
        ended = list(_reaped())
        strangers = kill_strangers(self._children.keys() - {pid for pid, _ in ended})
        # Only for the log, and as many as somebody cares to make: dropped while the root is behind with reading.
        if strangers and not self._reports:
            self._report(StrangersKilled(pids=tuple(strangers)))
        for pid, status in ended:
            if request := self._children.pop(pid, None):
                name, life = request.name, request.incarnation
                self._report(ChildExited(name=name, incarnation=life, pid=pid, status=status))

    def _report(self, report: ZygoteReport, *fds: int) -> None:
        self._reports.append((report, list(fds)))
        self._flush()

    def _flush(self) -> bool:
        """Send what the socket takes now; False once the root is gone."""
        while self._reports:
            report, fds = self._reports[0]
            try:
                zygote_wire.send(self._sock, report, fds)
            except BlockingIOError:
                return True
            except ConnectionError:
                return False
            self._reports.popleft()
            for fd in fds:
                os.close(fd)
        return True


def _settle(sock: socket.socket) -> None:
    """Leave the root behind: its terminal's signals, its descriptors, its handlers."""
    # Garbage of the root goes while its descriptors are still open: later it would close what is not its own.
    gc.collect()
    os.setpgid(0, 0)
    become_subreaper()
    newborn.close_all_but([sock.fileno()])
    _fill_standard_streams()
    newborn.prepare()
    set_title("covey:zygote")


def _fill_standard_streams() -> None:
    """Make sure that 0, 1 and 2 are taken: a descriptor sent to us must not become somebody's standard error."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


@contextmanager
def _wake_on_child() -> Iterator[socket.socket]:
    """A socket that becomes readable at every SIGCHLD."""
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)
        writer.setblocking(False)
        # Without a handler of Python's the signal would be ignored, and nothing written.
        signal.signal(signal.SIGCHLD, lambda _signo, _frame: None)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(-1)


def _drain(reader: socket.socket) -> None:
    try:
        while reader.recv(4096):
            continue
    except BlockingIOError:
        return


def _reaped() -> list[tuple[int, int]]:
    """Everybody who ended and was not reaped yet, with the status."""
    found: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        found.append((pid, status))
