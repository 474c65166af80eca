"""Processes for tests about processes: bodies that run in a forked process of their own, so that sweeping is safe."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Tests are imported by path (importlib mode): their folder is on nobody's path but ours.
sys.path.append(str(Path(__file__).parent))

PATIENCE_S = 20.0
"""For what should take milliseconds; the machine may be busy."""


class Processes:
    """Forks bodies and looks for what is left of them. Kills its own at the end of the test."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self._pids: list[int] = []

    def fork(self, body: Callable[[], object]) -> tuple[int, int]:
        """Run `body` in a child; returns its pid and a pipe that says why it failed, or nothing."""
        told, telling = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(told)
            try:
                body()
            except BaseException:  # noqa: BLE001 - told to the test
                os.write(telling, traceback.format_exc().encode()[-60_000:])
            finally:
                os._exit(0)
        os.close(telling)
        self._pids.append(pid)
        return pid, told

    def run(self, body: Callable[[], object], *, timeout_s: float = PATIENCE_S) -> None:
        """Run `body` in a child to its end; fails with its traceback."""
        pid, told = self.fork(body)
        failure = read_to_end(told, timeout_s=timeout_s)
        os.waitpid(pid, 0)
        self._pids.remove(pid)
        if failure:
            pytest.fail(failure.decode(), pytrace=False)

    def kill(self, pid: int) -> None:
        """SIGKILL and reap a forked body."""
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self._pids.remove(pid)

    def survivors(self) -> list[str]:
        """Living processes with the tag in their command line or environment."""
        return [found for found in map(self._tagged, Path("/proc").iterdir()) if found]

    def close(self) -> None:
        for pid in list(self._pids):
            self.kill(pid)

    def _tagged(self, folder: Path) -> str | None:
        if not folder.name.isdigit() or folder.name == str(os.getpid()):
            return None
        try:
            words = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            is_zombie = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            return None
        return f"{folder.name} {words[:80]!r}" if self.tag.encode() in words and not is_zombie else None


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    tag = f"tag{os.urandom(6).hex()}"
    monkeypatch.setenv("COVEY_TEST_TAG", tag)
    found = Processes(tag)
    yield found
    found.close()


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Wait for a condition of the kernel that nobody sends a message about."""

    def wait(condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "the condition did not become true in time"
            select.select([], [], [], 0.01)

    return wait


def read_to_end(fd: int, *, timeout_s: float) -> bytes:
    """Everything written to a pipe until its last writer is gone."""
    deadline = time.monotonic() + timeout_s
    parts: list[bytes] = []
    while select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(fd, 65536)
        if not part:
            os.close(fd)
            return b"".join(parts)
        parts.append(part)
    pytest.fail(f"nothing more came within {timeout_s} s after {b''.join(parts)!r}")
