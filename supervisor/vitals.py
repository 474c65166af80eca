"""What a process uses right now, read from /proc. For people only: nothing is decided by these numbers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


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
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            # The name before the bracket may hold anything, spaces and brackets included.
            fields = file.read(4096).rpartition(b")")[2].split()
    except OSError:
        return Vitals()
    return Vitals(round(int(fields[21]) * _PAGE / 2**20, 1), int(fields[17]))
