"""Bringing a fleet up as a process of its own, and waiting until it serves."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from ..protocol.errors import CoveyError
from .home import Home
from .leftovers import TAG
from .running import running_root

START_S = 15.0
TAIL_BYTES = 2_000


class StartFailed(CoveyError):
    """The fleet did not come up; nothing of it is left running. `log` is what its root said."""

    def __init__(self, home: str, why: str, log: str) -> None:
        last = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "")
        hint = f"; it said: {last}" if last else ""
        super().__init__(f"the fleet in {home} did not come up: {why}{hint} (all of it in {home}/logs/root.log)")
        self.home, self.why, self.log = home, why, log


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """What the root writes to its ready pipe once every process serves."""

    pid: int
    processes: int
    ready_s: float


@dataclass(frozen=True, slots=True)
class Leashed:
    """A fleet that lasts as long as this process wants: closing `leash` stops it, as does our death."""

    process: subprocess.Popen[bytes]
    ready: Ready
    leash: int


def launch(home: Home, *, timeout_s: float = START_S) -> Ready:
    """Start a fleet that stays, as nobody's child, and return when it serves; raises `StartFailed`."""
    process, ready, log = _start(home, ["--daemon"], [], timeout_s)
    process.wait()  # it has forked the root and is done
    if ready is None:
        _end_root(home)
        raise StartFailed(str(home.path), f"it ended, or was not ready after {timeout_s:g} s", log)
    return ready


def launch_leashed(home: Home, *, timeout_s: float = START_S) -> Leashed:
    """Start a fleet that ends with us, and return when it serves; raises `StartFailed`."""
    read, write = os.pipe()
    try:
        process, ready, log = _start(home, ["--leash-fd", str(read)], [read], timeout_s)
    finally:
        os.close(read)
    if ready is None:
        os.close(write)
        raise StartFailed(str(home.path), _end(process, timeout_s), log)
    return Leashed(process, ready, write)


def _start(
    home: Home, more: list[str], fds: list[int], timeout_s: float
) -> tuple[subprocess.Popen[bytes], Ready | None, str]:
    """The process, its ready line if one came, and what it has logged so far."""
    home.prepare()
    ready_read, ready_write = os.pipe()
    command = [
        sys.executable,
        "-P",
        "-m",
        "covey",
        "up",
        "--home",
        str(home.path),
        "--ready-fd",
        str(ready_write),
        *more,
    ]
    log_path = home.logs / "root.log"
    try:
        with open(os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600), "ab") as log:
            log_start = log.tell()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                # Started from inside of another fleet, it is a fleet of its own all the same.
                env={name: value for name, value in os.environ.items() if name != TAG},
                pass_fds=[ready_write, *fds],
            )
    finally:
        os.close(ready_write)
    try:
        ready = _wait_ready(ready_read, timeout_s)
    finally:
        os.close(ready_read)
    return process, ready, "" if ready is not None else _tail(log_path, log_start)


def _end_root(home: Home) -> None:
    """A root that is not ready in time is not wanted any more."""
    info = running_root(home)
    if info is not None:
        with suppress(ProcessLookupError):
            os.kill(info.pid, signal.SIGTERM)


def _wait_ready(fd: int, timeout_s: float) -> Ready | None:
    """The root's line, or None at its end or after the timeout."""
    deadline = time.monotonic() + timeout_s
    received = b""
    while not received.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            return None
        chunk = os.read(fd, 4096)
        if not chunk:
            return None
        received += chunk
    return msgspec.json.decode(received, type=Ready)


def _end(process: subprocess.Popen[bytes], timeout_s: float) -> str:
    """Make sure that the failed root is gone; says how it ended."""
    try:
        return f"it ended with exit code {process.wait(timeout=0.5)}"
    except subprocess.TimeoutExpired:
        process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return f"it was not ready after {timeout_s:g} s"


def _tail(path: os.PathLike[str], start: int) -> str:
    """The last lines the root logged since `start`."""
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(start, file.tell() - TAIL_BYTES))
        return file.read().decode(errors="replace").strip()
