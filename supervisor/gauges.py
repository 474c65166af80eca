"""Gauges: what the kernel says of one process, and of the memory there is. Reads a few small files and decides nothing.

Linux only. Whatever cannot be read is None.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .growth import Sample
from .headroom import Reading

PROC: Final = Path("/proc")

_RSS: Final = re.compile(r"^VmRSS:\s+(\d+) kB$", re.M)
_THREADS: Final = re.compile(r"^Threads:\s+(\d+)$", re.M)
_AVAILABLE: Final = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.M)
_INACTIVE: Final = re.compile(r"^inactive_file (\d+)$", re.M)
_PRESSURE: Final = re.compile(r"^some avg10=([0-9.]+) ", re.M)


def sample(pid: int, *, proc: Path = PROC) -> Sample:
    """Look at one process. RSS counts pages that are shared with the zygote."""
    status = _text(proc / str(pid) / "status")
    rss_kib, threads = _number(_RSS, status), _number(_THREADS, status)
    return Sample(
        rss_mb=rss_kib / 1024 if rss_kib is not None else None,
        fds=_open_files(proc / str(pid) / "fd"),
        threads=int(threads) if threads is not None else None,
    )


def read_memory(groups: Sequence[Path], *, proc: Path = PROC) -> Reading:
    """Look at the host, and at the control groups (v2) we are in, whose limits are limits for us.

    Available is the least of what they have left, pressure the highest of theirs.
    """
    host_kib = _number(_AVAILABLE, _text(proc / "meminfo"))
    left = [_left_mb(group) for group in groups] + [host_kib / 1024 if host_kib is not None else None]
    files = [proc / "pressure" / "memory", *(group / "memory.pressure" for group in groups)]
    pressures = [_number(_PRESSURE, _text(file)) for file in files]
    return Reading(
        available_mb=min((found for found in left if found is not None), default=None),
        pressure_percent=max((found for found in pressures if found is not None), default=None),
    )


def _left_mb(group: Path) -> float | None:
    """What a group may still take; files that were read and are not in use count as free, as the kernel drops them."""
    limits = [int(text) for name in ("memory.max", "memory.high") if (text := _text(group / name).strip()).isdigit()]
    current = _text(group / "memory.current").strip()
    if not limits or not current.isdigit():
        return None
    cached = _number(_INACTIVE, _text(group / "memory.stat")) or 0.0
    return (min(limits) - int(current) + cached) / 2**20


def _open_files(folder: Path) -> int | None:
    try:
        # Since Linux 6.2 the size says how many there are; a process with many makes its list long to read.
        return os.stat(folder).st_size or len(os.listdir(folder))
    except OSError:
        return None


def _number(pattern: re.Pattern[str], text: str) -> float | None:
    found = pattern.search(text)
    return float(found[1]) if found else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
