"""What a process uses right now. For people only: nothing is decided by these numbers."""

from __future__ import annotations

from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Vitals:
    """RSS in MiB and the number of threads; 0 for a process that is gone."""

    rss_mb: float = 0.0
    threads: int = 0


def vitals(pid: int) -> Vitals:
    """Look at one process."""
    if pid <= 0:
        return Vitals()
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            return Vitals(round(process.memory_info().rss / 2**20, 1), process.num_threads())
    except psutil.Error:
        return Vitals()
