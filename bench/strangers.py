"""How busy others keep the machine while a benchmark runs: its figures mean less when they do."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Collection
from pathlib import Path

from .sampling import cpu_s, tree_of


class Strangers:
    """Counts from its making on. `roots` are this process, and others if wanted; what they waited for is theirs."""

    def __init__(self, *, roots: Collection[int]) -> None:
        self._roots = roots
        self._began, self._machine, self._ours = time.monotonic(), _machine_s(), self._tree_s()

    def cpus(self) -> float:
        """Processors in use by programs that are not below the roots, on the average since the beginning."""
        used = (_machine_s() - self._machine) - (self._tree_s() - self._ours)
        return max(0.0, used / (time.monotonic() - self._began))

    def _tree_s(self) -> float:
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cpu_s(tree_of(self._roots)) + ended.ru_utime + ended.ru_stime


def _machine_s() -> float:
    """Processor time that anybody used since boot: all but idle and waiting for disks."""
    fields = [int(field) for field in Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]]
    idle, waiting = fields[3], fields[4]
    # Guests are counted in user time already.
    return (sum(fields[:8]) - idle - waiting) / os.sysconf("SC_CLK_TCK")
