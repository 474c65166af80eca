"""Real fleets for tests: a home of its own under /tmp, a simulated provider over real HTTP, nothing left at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.bench.provider_options import ProviderOptions
from covey.bench.provider_process import ProviderProcess

COVEY = [sys.executable, "-P", "-m", "covey"]


class House:
    """A home, the provider it is configured for, and what runs in it."""

    def __init__(self, path: Path, provider: ProviderProcess, limit: int) -> None:
        self.path = path
        self.provider = provider
        self.work = path / "work"
        self.work.mkdir()
        (self.work / "notes.txt").write_text("geese\n")
        (path / "config.yaml").write_text(
            f"providers:\n  sim:\n    base_url: {provider.base_url}\n    max_concurrent: {limit}\n"
            "model:\n  provider: sim\n  name: sim-1\n"
        )

    def covey(self, *args: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [*COVEY, *args], env=self.environ(), capture_output=True, text=True, timeout=timeout, cwd=self.work
        )

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Start a command and go on."""
        return subprocess.Popen(
            [*COVEY, *args],
            env=self.environ(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.work,
            start_new_session=True,
        )

    def environ(self) -> dict[str, str]:
        """The environment of a user of this home; `COVEY_TEST` marks every process below."""
        return {**os.environ, "COVEY_HOME": str(self.path), "COVEY_TEST": str(self.path)}

    def up(self) -> int:
        """Bring the fleet up; the root's pid."""
        done = self.covey("up", "--detach", "--json")
        assert done.returncode == 0, done.stderr
        return int(json.loads(done.stdout)["pid"])

    def status(self) -> dict[str, Any]:
        """`covey status --json`."""
        done = self.covey("status", "--json")
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def pid_of(self, name: str) -> int:
        """The pid of a process of the tree by its name."""
        return int(next(process["pid"] for process in self.status()["processes"] if process["name"] == name))

    def marked(self) -> list[int]:
        """Every process that was started, at whatever remove, with this home's environment; zombies do not count."""
        mark = f"COVEY_TEST={self.path}\0".encode()
        return [pid for pid in _pids() if mark in _read(f"/proc/{pid}/environ") and not _is_zombie(pid)]

    def clear(self) -> None:
        """Leave nothing behind, whatever the test did."""
        for pid in self.marked():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def until(holds: Callable[[], bool], *, within_s: float, what: str) -> float:
    """Wait for a fact; how long it took. Fails when it does not come."""
    started = time.monotonic()
    while not holds():
        assert time.monotonic() - started < within_s, f"{what}: not within {within_s} s"
        time.sleep(0.01)
    return time.monotonic() - started


@pytest.fixture
def make_house() -> Iterator[Callable[..., House]]:
    """Make homes with a provider each."""
    with tempfile.TemporaryDirectory(prefix="cvk-", dir="/tmp") as folder:
        houses: list[House] = []
        providers: list[ProviderProcess] = []

        def make(*, limit: int = 2, ceiling: int | None = None, think_s: float = 0.1) -> House:
            options = ProviderOptions(limit=ceiling or limit, think_s=think_s, chunk_pace_s=0.005)
            provider = ProviderProcess(options).__enter__()
            providers.append(provider)
            path = Path(folder) / f"h{len(houses)}"
            path.mkdir()
            houses.append(House(path, provider, limit))
            return houses[-1]

        yield make
        for house in houses:
            house.covey("down", "--timeout", "5")
            house.clear()
        for provider in providers:
            provider.stop()


@pytest.fixture
def house(make_house: Callable[..., House]) -> House:
    """A home with a limit of two calls in flight."""
    return make_house()


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _is_zombie(pid: int) -> bool:
    stat = _read(f"/proc/{pid}/stat")
    return not stat or stat[stat.rfind(b")") + 2 :][:1] == b"Z"
