"""Which files are open: device and inode of the database, its WAL, its shared memory and its lock.

SQLite goes on writing to a file that was unlinked or replaced, and all of it is lost. So the names are compared with
what was opened before every commit. Only `os.stat`: to open one of the three files and close it again would drop
SQLite's locks on it (POSIX).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from ..protocol.errors import StoreMoved

SUFFIXES: Final = ("", "-wal", "-shm", ".lock")

FileId = tuple[int, int]


class Identity:
    """The files behind one connection. Owned by the connection's thread."""

    def __init__(self, database: Path) -> None:
        self._names = tuple(f"{database}{suffix}" for suffix in SUFFIXES)
        self._database = database
        self._ids: dict[str, FileId] = {}
        self._least_bytes = 0

    def check(self) -> None:
        """Raise `StoreMoved` unless every file that was seen before is in its place still."""
        for name in self._names:
            self._check(name)
        if (found := size(self._database)) < self._least_bytes:
            raise StoreMoved(str(self._database), f"was cut to {found} bytes")

    def set_aside(self) -> list[str]:
        """Give WAL and shared memory that are still ours other names, if the database is not; return the new names.

        Whoever opens the database that is there now would take our WAL for its own, and mix two of them into one.
        """
        if self._is_ours(str(self._database)):
            return []
        moved: list[str] = []
        for name in (f"{self._database}-wal", f"{self._database}-shm"):
            if self._is_ours(name):
                moved.append(_free_name(f"{name}.lost"))
                os.rename(name, moved[-1])
        return moved

    def settle(self) -> None:
        """Remember the size of the database after a checkpoint: it never shrinks by our doing."""
        self._least_bytes = size(self._database)

    def _is_ours(self, name: str) -> bool:
        try:
            status = os.stat(name)
        except FileNotFoundError:
            return False
        return self._ids.get(name) == (status.st_dev, status.st_ino)

    def _check(self, name: str) -> None:
        known = self._ids.get(name)
        try:
            status = os.stat(name)
        except FileNotFoundError:
            if known is None:
                return  # SQLite makes the WAL and the shared memory when it first needs them
            raise StoreMoved(name, "was unlinked or moved") from None
        found = (status.st_dev, status.st_ino)
        if known is None:
            self._ids[name] = found
        elif known != found:
            raise StoreMoved(name, "was replaced")


def _free_name(name: str) -> str:
    candidates = (name, *(f"{name}.{number}" for number in range(1, 1000)))
    return next((candidate for candidate in candidates if not os.path.exists(candidate)), name)


def wal_size(database: Path) -> int:
    """Return the size of a database's WAL in bytes, 0 if there is none."""
    return size(f"{database}-wal")


def size(path: Path | str) -> int:
    """Return a file's size in bytes without opening it, 0 if there is none."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
