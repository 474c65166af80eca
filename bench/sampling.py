"""Watching what a tree of processes uses while it works: processes, threads, PSS and open files, at their peak.

PSS shares each page among those who map it, so the sum over a tree is the memory the tree really takes.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

PSS_EVERY_S = 0.5
"""Reading PSS walks page tables: too dear for every look."""


@dataclass(slots=True)
class Peak:
    """The highest sums over all processes that were alive at one look."""

    processes: int = 0
    threads: int = 0
    pss_mb: float = 0.0
    fds: int = 0


@dataclass(slots=True)
class Sampler:
    """Looks at `roots` and everything below them, except `without` and what is below that."""

    roots: Collection[int]
    without: Collection[int] = ()
    every_s: float = 0.1
    peak: Peak = field(default_factory=Peak)
    _pss_at: float = 0.0

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(self.every_s)

    def look(self) -> None:
        """Look once."""
        pids = tree_of(self.roots, without=self.without)
        peak = self.peak
        peak.processes = max(peak.processes, len(pids))
        peak.threads = max(peak.threads, sum(map(threads, pids)))
        peak.fds = max(peak.fds, sum(map(_fds, pids)))
        now = time.monotonic()
        if now - self._pss_at >= PSS_EVERY_S:
            self._pss_at = now
            peak.pss_mb = max(peak.pss_mb, round(sum(map(pss_mb, pids)), 1))


def tree_of(roots: Collection[int], *, without: Collection[int] = ()) -> list[int]:
    """The pids of `roots` and all their descendants; `without` cuts branches off."""
    found: list[int] = []
    todo = [pid for pid in roots if pid not in without]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += [child for child in _children(pid) if child not in without]
    return found


def cpu_s(pids: Collection[int]) -> float:
    """CPU seconds these processes have used so far; the ended ones count nothing."""
    ticks = os.sysconf("SC_CLK_TCK")
    return sum(_cpu_ticks(pid) for pid in pids) / ticks


def cpu_ns(pids: Collection[int]) -> int:
    """CPU time of all threads of these processes in nanoseconds: for spans in which a clock tick is much."""
    return sum(
        int((_text(f"/proc/{pid}/task/{task}/schedstat") or "0").split()[0])
        for pid in pids
        for task in _names(f"/proc/{pid}/task")
    )


def threads(pid: int) -> int:
    """How many threads that process has; 0 if it is gone."""
    return len(_names(f"/proc/{pid}/task"))


def pss_mb(pid: int) -> float:
    """The memory of that process, each shared page divided among those who share it; 0 if it is gone."""
    for line in _text(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in _names(f"/proc/{pid}/task"):
        found += [int(child) for child in _text(f"/proc/{pid}/task/{task}/children").split()]
    return found


def _fds(pid: int) -> int:
    return len(_names(f"/proc/{pid}/fd"))


def _cpu_ticks(pid: int) -> int:
    stat = _text(f"/proc/{pid}/stat")
    fields = stat[stat.rfind(")") + 1 :].split()
    return int(fields[11]) + int(fields[12]) if len(fields) > 12 else 0


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []  # it ended between two looks


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
