"""Which life of which process: names that the kernel can be asked about, read from /proc.

A pid is reused; pid, start time and boot id together are not. Liveness is asked of a pidfd, never of /proc: a
zombie still has its entry there.
"""

from __future__ import annotations

import functools
import os
import select

from ..protocol.peer import Owner

_START_TICKS = 19  # field 22 of /proc/<pid>/stat, counted after the command's closing parenthesis


@functools.cache
def boot_id() -> str:
    """Return the id of this boot of this host's kernel."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def owner_of(pid: int) -> Owner | None:
    """Return the life that has `pid` now, None if nobody has it. A dead one that nobody reaped still has it."""
    ticks = _start_ticks(pid)
    return None if ticks is None else Owner(pid=pid, start_ticks=ticks, boot_id=boot_id())


def me() -> Owner:
    """Return this process's life; right after a fork too."""
    found = owner_of(os.getpid())
    assert found is not None, "a running process has an entry in /proc"
    return found


def open_pidfd(owner: Owner) -> int | None:
    """Return a pidfd of exactly this life, readable once it has ended; None if it is over or of another boot.

    The caller closes it.
    """
    if owner.boot_id != boot_id():
        return None
    try:
        fd = os.pidfd_open(owner.pid)
    except ProcessLookupError:
        return None
    # The stat is read while the pidfd pins the pid: what it says is about the process behind the descriptor.
    if _start_ticks(owner.pid) != owner.start_ticks:
        os.close(fd)
        return None
    return fd


def is_stopped(owner: Owner) -> bool:
    """Whether this life stands still: stopped by a signal or a debugger, and alive."""
    try:
        with open(f"/proc/{owner.pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] in ("T", "t") and int(fields[_START_TICKS]) == owner.start_ticks


def is_alive(owner: Owner) -> bool:
    """Whether this life goes on; a zombie's does not."""
    fd = open_pidfd(owner)
    if fd is None:
        return False
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return not poll.poll(0)
    finally:
        os.close(fd)


def _start_ticks(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command may hold spaces and parentheses; only the last one ends it.
    return int(stat[stat.rindex(b")") + 1 :].split()[_START_TICKS])
