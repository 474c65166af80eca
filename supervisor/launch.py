"""Bringing a fleet up as a process of its own, and waiting until it serves."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass

import msgspec

from ..protocol.errors import CoveyError
from .home import Home

TAIL_BYTES = 2_000


class StartFailed(CoveyError):
    """The fleet did not come up; nothing of it is left running."""

    def __init__(self, home: str, why: str, log: str) -> None:
        super().__init__(f"the fleet in {home} did not come up: {why}" + (f"\n{log}" if log else ""))
        self.home, self.why = home, why


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """What the root writes to its ready pipe once every process serves."""

    pid: int
    processes: int
    ready_s: float


@dataclass(frozen=True, slots=True)
class Launched:
    """A root that was started by this process. Closing `leash` (if there is one) stops it, as does our death."""

    process: subprocess.Popen[bytes]
    ready: Ready
    leash: int | None = None


def launch(home: Home, *, timeout_s: float = 15.0, leashed: bool = False) -> Launched:
    """Start a root in the background and return when its fleet serves; raises `StartFailed`.

    `leashed`: the fleet stops when this process closes the leash or dies. Otherwise it stays.
    """
    home.prepare()
    ready_read, ready_write = os.pipe()
    leash_read, leash_write = os.pipe() if leashed else (None, None)
    command = [sys.executable, "-P", "-m", "covey", "up", "--home", str(home.path), "--ready-fd", str(ready_write)]
    if leash_read is not None:
        command += ["--leash-fd", str(leash_read)]
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
                pass_fds=[fd for fd in (ready_write, leash_read) if fd is not None],
            )
    finally:
        os.close(ready_write)
        if leash_read is not None:
            os.close(leash_read)
    try:
        ready = _wait_ready(ready_read, timeout_s)
    finally:
        os.close(ready_read)
    if ready is None:
        if leash_write is not None:
            os.close(leash_write)
        why = _end(process, timeout_s)
        raise StartFailed(str(home.path), why, _tail(log_path, log_start))
    return Launched(process, ready, leash_write)


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
