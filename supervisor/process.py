"""Processes, as the kernel knows them: who our children are, how to signal one for sure, how to leave none behind.

Linux only. A pid is a name that gets reused; a pidfd is the process itself, so signals and waits go through pidfds,
or to children of ours that were not reaped yet (their pid cannot be reused).
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from collections.abc import Collection
from functools import cache

import msgspec

from ..protocol.errors import CoveyError

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


class ProcessGone(CoveyError):
    """The process that was meant does not exist any more; another one may have its pid. Nothing was done to it."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"process {pid} is gone")
        self.pid = pid


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep did: `reaped` ended, `left` were still there at the deadline."""

    reaped: tuple[int, ...]
    left: tuple[int, ...]


# --- about ourselves -------------------------------------------------------------------------------------------------


def die_with_parent(parent: int) -> None:
    """Have the kernel SIGKILL this process when the thread that made it ends; end now if `parent` is gone already.

    Only for children of a process whose spawning thread never ends: the kernel looks at the thread, not the process.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def become_subreaper() -> None:
    """Become the parent of every descendant whose own parent ends, setsid or not. Not inherited by fork."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_title(title: str) -> None:
    """Show `title` in process lists: 15 bytes of it as the name, what fits as the command line."""
    data = title.encode()
    _prctl(_PR_SET_NAME, data[:15])
    start, end = _argv_range()
    if end > start:
        # The kernel reads the command line from this memory; the interpreter copied its arguments out long ago.
        ctypes.memmove(start, data[: end - start - 1].ljust(end - start, b"\0"), end - start)


# --- about others ----------------------------------------------------------------------------------------------------


def start_ticks(pid: int) -> int:
    """When the process started, in clock ticks after boot; raises `ProcessGone`."""
    return int(_stat_fields(pid)[19])


def send_signal(pidfd: int, signo: int) -> bool:
    """Signal the process; False if it is gone. A stranger is never hit."""
    try:
        signal.pidfd_send_signal(pidfd, signo)
    except ProcessLookupError:
        return False
    return True


def wait_for_exit(pidfd: int, *, timeout_s: float) -> bool:
    """Whether the process ended within `timeout_s`; it stays to be reaped by its parent."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(max(0.0, timeout_s) * 1000))


def direct_children() -> list[int]:
    """The pids of this process's children, adopted and not yet reaped ones included."""
    pids: list[int] = []
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/children", "rb", buffering=0) as file:
                listed = file.readall()
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread ended; its children are listed under another one
        pids.extend(int(pid) for pid in listed.split())
    return pids


def kill_strangers(known: Collection[int]) -> list[int]:
    """SIGKILL every child that is not in `known` and return them; they are still to be reaped.

    As a subreaper we are the parent of what dead processes left behind. Their own children come to us in turn, so
    this is to be repeated until it finds nobody.
    """
    strangers = [pid for pid in direct_children() if pid not in known]
    for pid in strangers:
        _kill(pid)
    return strangers


def sweep(*, timeout_s: float, spare: Collection[int] = ()) -> Swept:
    """SIGKILL and reap all descendants except the children in `spare`, as a subreaper.

    Killing a process makes its children ours, so it goes in rounds until there is nobody left or `timeout_s` is over.
    """
    deadline = time.monotonic() + timeout_s
    reaped: list[int] = []
    while strangers := kill_strangers(spare):
        gone = [pid for pid in strangers if _reap(pid, timeout_s=deadline - time.monotonic())]
        reaped.extend(gone)
        if time.monotonic() >= deadline:
            break
    left = tuple(pid for pid in direct_children() if pid not in spare)
    return Swept(reaped=tuple(reaped), left=left)


def _reap(pid: int, *, timeout_s: float) -> bool:
    """Whether our killed child `pid` ended within `timeout_s` (at least looked at once) and is reaped."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if not wait_for_exit(pidfd, timeout_s=timeout_s):
            return False
    finally:
        os.close(pidfd)
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return True  # reaped by somebody else in this process
    return True


def _kill(pid: int) -> None:
    """SIGKILL a child of ours."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from number 3 on: number 2 may hold anything, spaces and brackets included."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.readall().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessGone(pid) from None
    return text.rpartition(")")[2].split()


@cache
def _argv_range() -> tuple[int, int]:
    """Where the kernel finds this process's command line, fields 48 and 49. A fork does not move it."""
    fields = _stat_fields(os.getpid())
    return int(fields[45]), int(fields[46])


def _prctl(option: int, value: int | bytes) -> None:
    argument = ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value)
    if _libc.prctl(option, argument, ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl {option}: {os.strerror(code)}")
