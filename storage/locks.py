"""File locks that end with their process: held for life, never shared with a child, never on a file that is gone.

`flock` belongs to the open file description. An exec'd child has none of ours (close-on-exec); a forked one would
hold the lock on after our death, so it closes its copies at once, which leaves ours in force.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path

_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


class FileLock:
    """An exclusive lock on the file `path`; `fd` reads and appends. Owned by whoever took it."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd
        _held.add(self)

    def is_in_place(self) -> bool:
        """Whether `path` still names the locked file: else somebody else may lock another one there."""
        if self.fd < 0:
            return False
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(self.fd))

    def close(self) -> None:
        """Unlock. A second time does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def take(path: Path, *, create: bool) -> FileLock | None:
    """Lock the file now; None if somebody else holds it, or if it does not exist and `create` is off.

    What is locked is the file that `path` names when this returns: one that was unlinked or replaced between
    opening and locking is let go.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    while True:
        try:
            fd = os.open(path, flags, 0o600)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        lock = FileLock(path, fd)
        if lock.is_in_place():
            return lock
        lock.close()


def _close_in_child() -> None:
    for lock in list(_held):
        lock.close()


os.register_at_fork(after_in_child=_close_in_child)
