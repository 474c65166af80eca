"""The simulated provider in a process of its own, for tests, the demo and the other benchmarks."""

from __future__ import annotations

import http.client
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, Final, Self, TypeVar

import msgspec

from ..protocol.errors import AskTimeout, CoveyError
from .provider_calls import CallPage, ProviderCall, ProviderStats
from .provider_moods import Moods
from .provider_options import ProviderOptions
from .provider_tally import Accounts

COMMAND: Final = ("-P", "-m", "covey", "bench", "provider")
"""What the interpreter is told to run."""

Answer = TypeVar("Answer")


class Listening(msgspec.Struct, frozen=True):
    """The line the provider prints."""

    base_url: str
    port: int


class ProviderDied(CoveyError):
    """The provider ended before it listened; `stderr` says why."""

    def __init__(self, code: int | None, stderr: str) -> None:
        super().__init__(f"the simulated provider ended with {code}: {stderr.strip() or 'no reason given'}")
        self.code, self.stderr = code, stderr


class ProviderProcess:
    """Runs a provider while inside. It also stops when this process dies, however that happens.

    `base_url` and `port` from entry on. Blocking; used from one thread.
    """

    base_url: str
    port: int

    def __init__(self, options: ProviderOptions | None = None, *, start_timeout_s: float = 15.0) -> None:
        self._options = options or ProviderOptions()
        self._start_timeout_s = start_timeout_s
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it and wait for its line; raises `ProviderDied` or `AskTimeout`, and nothing is left running."""
        self._stderr: IO[bytes] = tempfile.TemporaryFile()
        argv = [sys.executable, *COMMAND, *self._options.arguments(), "--stop-with-stdin"]
        self._child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr)
        try:
            listening = msgspec.json.decode(self._first_line(self._child), type=Listening)
        except BaseException:
            self.stop(deadline_s=0.0)
            raise
        self.base_url, self.port = listening.base_url, listening.port
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def root_url(self) -> str:
        """Where all its paths begin."""
        return self.base_url.removesuffix("/v1")

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._child is not None, "entered"
        return self._child.pid

    def stats(self) -> ProviderStats:
        """What it counted so far."""
        return self._ask("GET", "/stats", ProviderStats)

    def calls(self) -> tuple[ProviderCall, ...]:
        """Every call it lists, in the order they came."""
        found: list[ProviderCall] = []
        while True:
            page = self._ask("GET", f"/calls?after={found[-1].id if found else 0}", CallPage)
            found += page.calls
            if not page.more:
                return tuple(found)

    def accounts(self) -> Accounts:
        """What it counted so far, by account and model."""
        return self._ask("GET", "/accounts", Accounts)

    def set_moods(self, moods: Moods) -> Moods:
        """Be like this from now on; what holds then."""
        return self._ask("POST", "/control/moods", Moods, msgspec.json.encode(moods))

    def unlock(self) -> Accounts:
        """Take all fair-use locks away."""
        return self._ask("POST", "/control/unlock", Accounts)

    def clear(self) -> Moods:
        """Be again as at the start, but for the counts; what holds then."""
        return self._ask("POST", "/control/clear", Moods)

    def reset(self) -> ProviderStats:
        """Forget the calls that have ended."""
        return self._ask("POST", "/reset", ProviderStats)

    def stop(self, *, deadline_s: float = 5.0) -> int | None:
        """SIGTERM, and SIGKILL after the deadline; its exit code (negative: a signal). None if it never ran."""
        child = self._child
        if child is None:
            return None
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
        try:
            child.wait(deadline_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        for pipe in (child.stdin, child.stdout, self._stderr):
            if pipe is not None:
                pipe.close()
        return child.returncode

    def _first_line(self, child: subprocess.Popen[bytes]) -> bytes:
        assert child.stdout is not None, "opened as a pipe"
        line, descriptor = b"", child.stdout.fileno()
        # poll and not select: a program with thousands of sockets has descriptors over 1024.
        readable = select.poll()
        readable.register(descriptor, select.POLLIN)
        ends = time.monotonic() + self._start_timeout_s
        while not line.endswith(b"\n"):
            if not readable.poll(max(0.0, ends - time.monotonic()) * 1000):
                raise AskTimeout("the line that says where it listens", "the simulated provider", self._start_timeout_s)
            piece = os.read(descriptor, 4096)
            if not piece:
                raise self._died(child)
            line += piece
        return line

    def _died(self, child: subprocess.Popen[bytes]) -> ProviderDied:
        try:
            code: int | None = child.wait(1.0)
        except subprocess.TimeoutExpired:
            code = None
        self._stderr.seek(0)
        return ProviderDied(code, self._stderr.read(4000).decode("utf-8", "replace"))

    def _ask(self, method: str, path: str, kind: type[Answer], body: bytes | None = None) -> Answer:
        connection = http.client.HTTPConnection(self._options.host, self.port, timeout=10.0)
        try:
            connection.request(method, path, body)
            return msgspec.json.decode(connection.getresponse().read(), type=kind)
        finally:
            connection.close()
