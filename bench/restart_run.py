"""The restart benchmark's run: real fleets, one after the other, whose workers are killed.

A worker that dies again before it was stable is made to wait on purpose. So each fleet has each of its workers killed
once, and the next fleet goes on; the settings are those that everybody has. When a replacement serves is the root's own
word in its log, which can be read without asking the fleet for anything.

The floor is what Linux and Python take: a child of a warm process is killed and reaped, and another one is forked and
says so through a pipe.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from ..supervisor.home import Home
from ..supervisor.launch import Leashed, launch_leashed
from .sampling import cpu_ns, pss_mb, threads, tree_of

WORKERS: Final = 2
MORE_WORKERS: Final = 4
SETTLE_S: Final = 2.0
"""From ready to idle, at most: what was begun is done by then."""
WAIT_S: Final = 15.0
LOOK_S: Final = 0.0005
"""Between two looks into the log: so finely is a restart measured."""
BARE_FORKS: Final = 50


@dataclass(frozen=True, slots=True)
class Idle:
    """A fleet with nothing to do: PSS by process, CPU as a share of one processor."""

    pss_mb: dict[str, float]
    cpu_percent: float
    threads: int


@dataclass(frozen=True, slots=True)
class RestartRun:
    """What was measured: from SIGKILL to the root's notice of the end, and to its word that a successor serves."""

    replaced_ms: list[float]
    noticed_ms: list[float]
    waited: int
    """Restarts that the back-off held up; there should be none among these."""
    idle: Idle
    worker_pss_mb: float
    """What each worker beyond the second adds to the idle fleet."""
    bare_ms: list[float]
    bare_pss_mb: float
    """What one idle child more of the floor's process takes."""


def measure(*, kills: int, idle_s: float) -> RestartRun:
    """Run all of it. The idle fleets come first, while nothing else of ours runs."""
    with _fleet(WORKERS) as fleet:
        time.sleep(min(SETTLE_S, idle_s))
        idle = _idle(fleet, idle_s)
    with _fleet(MORE_WORKERS) as fleet:
        time.sleep(min(SETTLE_S, idle_s))
        larger = _pss(fleet)
    bare_ms, bare_pss_mb = _bare()
    lives: list[_Restart] = []
    while len(lives) < kills:
        with _fleet(WORKERS) as fleet:
            lives += [_replace(fleet, f"worker-{at + 1}") for at in range(min(WORKERS, kills - len(lives)))]
    return RestartRun(
        replaced_ms=[life.replaced_ms for life in lives],
        noticed_ms=[life.noticed_ms for life in lives],
        waited=sum(life.delay_s > 0 for life in lives),
        idle=idle,
        worker_pss_mb=(sum(larger.values()) - sum(idle.pss_mb.values())) / (MORE_WORKERS - WORKERS),
        bare_ms=bare_ms,
        bare_pss_mb=bare_pss_mb,
    )


# --- fleets ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fleet:
    """One that is up, with its processes by name and its root's log."""

    pids: dict[str, int]
    log: Path


@contextmanager
def _fleet(workers: int) -> Iterator[_Fleet]:
    """Bring one up in a home of its own, and take it down again."""
    with tempfile.TemporaryDirectory(prefix="covey-rst-") as folder:
        home = Home.locate(Path(folder) / "home")
        home.create()
        home.config.write_text(f"fleet:\n  workers: {workers}\n", encoding="utf-8")
        leashed = launch_leashed(home, timeout_s=WAIT_S)
        try:
            yield _Fleet(_names(leashed.process.pid), home.logs / "root.log")
        finally:
            _stop(leashed)


def _names(root: int) -> dict[str, int]:
    """The processes of the tree by what they call themselves; the root keeps its program's name."""
    names = {"root": root}
    for pid in tree_of([root]):
        title = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
        if title.startswith("covey:"):
            names[title.removeprefix("covey:")] = pid
    return names


def _stop(leashed: Leashed) -> None:
    os.close(leashed.leash)
    try:
        leashed.process.wait(timeout=WAIT_S)
    except subprocess.TimeoutExpired:
        leashed.process.kill()
        leashed.process.wait()


def _idle(fleet: _Fleet, idle_s: float) -> Idle:
    pids = list(fleet.pids.values())
    used_before, began = cpu_ns(pids), time.monotonic_ns()
    time.sleep(idle_s)
    used, took = cpu_ns(pids) - used_before, time.monotonic_ns() - began
    return Idle(_pss(fleet), cpu_percent=100 * used / took, threads=sum(map(threads, pids)))


def _pss(fleet: _Fleet) -> dict[str, float]:
    return {name: pss_mb(pid) for name, pid in fleet.pids.items()}


# --- a restart -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Restart:
    """One worker's replacement, as the root's log tells it."""

    noticed_ms: float
    replaced_ms: float
    delay_s: float


def _replace(fleet: _Fleet, name: str) -> _Restart:
    """Kill the worker called `name` and wait until its successor serves."""
    with fleet.log.open("rb") as log:
        log.seek(0, os.SEEK_END)
        began = time.perf_counter()
        os.kill(fleet.pids[name], signal.SIGKILL)
        events = _events(log, name, until=began + WAIT_S)
        _, noticed = _next(events, "child_ended")
        said, _ = _next(events, "child_restarts")
        _, replaced = _next(events, "child_ready")
    return _Restart(
        noticed_ms=(noticed - began) * 1e3, replaced_ms=(replaced - began) * 1e3, delay_s=float(said["delay_s"])
    )


def _next(events: Iterator[tuple[str, dict[str, str], float]], wanted: str) -> tuple[dict[str, str], float]:
    """The next event of that name: its fields, and when it was seen."""
    return next((fields, at) for event, fields, at in events if event == wanted)


def _events(log: BinaryIO, child: str, *, until: float) -> Iterator[tuple[str, dict[str, str], float]]:
    """The root's events about one child, as they come."""
    rest = b""
    while (now := time.perf_counter()) < until:
        *lines, rest = (rest + log.read()).split(b"\n")
        for line in lines:
            _, _, _, event, *words = line.decode().split(" ")
            fields = dict(word.split("=", 1) for word in words if "=" in word)
            if fields.get("child") == child:
                yield event, fields, now
        time.sleep(LOOK_S)
    raise TimeoutError(f"{child} was killed and had no successor after {WAIT_S:g} s")


# --- the floor -------------------------------------------------------------------------------------------------------


def _bare() -> tuple[list[float], float]:
    """The floor, from a process as warm as a zygote: milliseconds of each restart, and the PSS of a child."""
    program = "from covey.bench.restart_run import fork_bare; fork_bare()"
    done = subprocess.run([sys.executable, "-P", "-c", program], stdout=subprocess.PIPE, check=True)
    pss, *times = (float(word) for word in done.stdout.split())
    return times, pss


def fork_bare() -> None:
    """Print what one idle child more takes (MB), and how long each restart took (ms)."""
    from ..supervisor.zygote import warm_up

    warm_up()
    pids, times = [_fork_ready() for _ in range(WORKERS)], []
    few_mb = sum(map(pss_mb, [os.getpid(), *pids]))
    pids += [_fork_ready() for _ in range(MORE_WORKERS - WORKERS)]
    child_mb = (sum(map(pss_mb, [os.getpid(), *pids])) - few_mb) / (MORE_WORKERS - WORKERS)
    for _ in range(BARE_FORKS):
        began = time.perf_counter()
        _end(pids.pop())
        pids.append(_fork_ready())
        times.append((time.perf_counter() - began) * 1e3)
    for pid in pids:
        _end(pid)
    print(child_mb, *times)


def _end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _fork_ready() -> int:
    """A child that has said that it is there, and waits for its end."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, b"r")
        signal.pause()
        os._exit(0)
    os.read(read, 1)
    os.close(read)
    os.close(write)
    return pid
