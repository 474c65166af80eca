"""A cgroup of the fleet's own, where the kernel lets us make one: it holds every process below the root, whatever
session, parent or environment that made for itself, and ends all of them at once.

Only cgroup v2 has this (`cgroup.kill`, Linux 5.14), and only where the group we run in is ours to divide: as root, in a
delegated unit of systemd, in some containers. Everywhere else there is none, and nobody misses it: zygote, subreaper,
process groups and tags (`leftovers`) do the same for all but the most determined.
"""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..protocol.ids import Incarnation

PREFIX: Final = "covey-"
MOUNTS: Final = Path("/proc/self/mountinfo")
MEMBERSHIP: Final = Path("/proc/self/cgroup")

_POLL_S: Final = 0.005


class Group:
    """The group at `path`. Owned by the root; its members are whoever was taken in, and all they start."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def make(cls, fleet: Incarnation, *, mounts: Path = MOUNTS, membership: Path = MEMBERSHIP) -> Group | None:
        """A new group below the one we are in; None where that cannot be."""
        parent = _own(mounts, membership)
        if parent is None:
            return None
        path = parent / f"{PREFIX}{fleet}"
        try:
            path.mkdir()
        except OSError:
            return None
        if not (path / "cgroup.kill").exists():
            path.rmdir()
            return None
        return cls(path)

    def take_in(self, pid: int) -> bool:
        """Make the process a member, with all it will start; False if the kernel refuses."""
        return self._write("cgroup.procs", str(pid))

    def kill(self) -> bool:
        """SIGKILL every member at once, forking ones included; False if there is no such group any more."""
        return self._write("cgroup.kill", "1")

    def members(self) -> list[int]:
        """The pids of all members, as far as they have some here."""
        try:
            return [int(pid) for pid in (self.path / "cgroup.procs").read_text(encoding="ascii").split()]
        except OSError:
            return []

    def is_populated(self) -> bool:
        """Whether a member lives; zombies do not count."""
        try:
            return "populated 1" in (self.path / "cgroup.events").read_text(encoding="ascii")
        except OSError:
            return False

    def clear(self, *, timeout_s: float) -> bool:
        """Kill all members, wait until none is left and take the group away; False if one was still there."""
        self.kill()
        deadline = time.monotonic() + timeout_s
        # The kernel tells of changes by POLLPRI, but not of one that came between our look and our wait.
        while self.is_populated():
            if time.monotonic() >= deadline:
                return False
            select.select([], [], [], _POLL_S)
        with suppress(OSError):
            self.path.rmdir()
        return True

    def holds_us(self, *, mounts: Path = MOUNTS, membership: Path = MEMBERSHIP) -> bool:
        """Whether this process is a member, or in a group below."""
        own = _own(mounts, membership)
        return own is not None and (own == self.path or self.path in own.parents)

    def _write(self, file: str, text: str) -> bool:
        try:
            (self.path / file).write_text(text, encoding="ascii")
        except OSError:
            return False
        return True


def dissolve_own(*, timeout_s: float) -> None:
    """End every other process of the group this one is in, if that is a fleet's, and take the group away.

    For a zygote whose root is gone. Where there is no such group nothing happens; if the kernel does not let us step
    out of it first, this process ends with the others.
    """
    own = _own(MOUNTS, MEMBERSHIP)
    if own is None or not own.name.startswith(PREFIX):
        return
    Group(own.parent).take_in(os.getpid())
    Group(own).clear(timeout_s=timeout_s)


def lineage(*, mounts: Path = MOUNTS, membership: Path = MEMBERSHIP) -> tuple[Path, ...]:
    """The group this process is in and all above it that are mounted here: their limits are ours."""
    own = _own(mounts, membership)
    if own is None:
        return ()
    return tuple(group for group in (own, *own.parents) if (group / "cgroup.procs").exists())


def _own(mounts: Path, membership: Path) -> Path | None:
    """The folder of the v2 group this process is in, as it is mounted here."""
    try:
        entries = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
        groups = membership.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    inside = next((line.removeprefix("0::") for line in groups if line.startswith("0::")), None)
    found = next((_mounted(line) for line in entries if " - cgroup2 " in line), None)
    if inside is None or found is None:
        return None
    top, folder = found
    if top not in ("/", inside) and not inside.startswith(f"{top}/"):
        return None  # our group is not below what is mounted here
    below = inside if top == "/" else inside.removeprefix(top)
    return Path(os.path.normpath(f"{folder}/{below}"))


def _mounted(line: str) -> tuple[str, str]:
    """Which part of the hierarchy, and where. Fields 4 and 5 of proc_pid_mountinfo(5), blanks written as \\040."""
    fields = line.split(" ")
    return _plain(fields[3]), _plain(fields[4])


def _plain(text: str) -> str:
    return text.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
