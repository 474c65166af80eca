"""The machine a number was measured on: enough to compare two runs, nothing that names a host or a person."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import msgspec


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What decides how fast a benchmark runs here. Memory in MiB."""

    cpus: int
    """CPUs this process may run on, which can be fewer than the machine has."""
    cpu_model: str
    mem_mb: int
    kernel: str
    python: str


def describe() -> Machine:
    """The machine and interpreter of this process."""
    return Machine(
        cpus=len(os.sched_getaffinity(0)),
        cpu_model=_cpu_model(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")),
        mem_mb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        kernel=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
    )


def _cpu_model(cpuinfo: str) -> str:
    # Not every architecture has the line: arm64 kernels name parts by number only.
    names = (line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name"))
    return next(names, platform.machine() or "unknown")
