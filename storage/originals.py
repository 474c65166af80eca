"""Files as bytes, around a database that nobody has open: copies, durability, room on the disk.

Never in the ledger's process: a plain open and close of one of its files would drop SQLite's locks on it. Whoever calls
this owns the database (`ownership`) and has no connection to it, or means a file that is no state.db yet.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from ..protocol.errors import StoreFull
from .identity import SUFFIXES, size

FILES: Final = SUFFIXES[:3]
"""What one database consists of."""
SPARE_BYTES: Final = 16 << 20


def sync(path: Path) -> None:
    """Let a file, or the names in a folder, survive a loss of power."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def copy_files(database: Path, folder: Path) -> None:
    """Copy those of the database's files that exist into a folder, durably, under their names."""
    for suffix in FILES:
        source = Path(f"{database}{suffix}")
        if source.exists():
            target = folder / source.name
            shutil.copyfile(source, target)
            os.chmod(target, 0o600)
            sync(target)
    sync(folder)


def all_bytes(database: Path) -> int:
    """How large the database's files are together."""
    return sum(size(f"{database}{suffix}") for suffix in FILES)


def require_room(folder: Path, needed: int) -> None:
    """Raise `StoreFull` if the disk under `folder` has no room for `needed` bytes and some to spare."""
    free = shutil.disk_usage(folder).free
    if free < needed + SPARE_BYTES:
        raise StoreFull(f"{folder} has {free >> 20} MiB free and {(needed + SPARE_BYTES) >> 20} are needed; free some")


def put_in_place(fresh: Path, database: Path) -> None:
    """Let `fresh`, one durable file, be the database. The old one's WAL goes first: it must never meet a new file."""
    for suffix in FILES[1:]:
        Path(f"{database}{suffix}").unlink(missing_ok=True)
    sync(database.parent)
    os.rename(fresh, database)
    sync(database.parent)


def part_of(path: Path, start: int, length: int) -> bytes:
    """Return a part of a file, shorter at its end."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, length, start)
    finally:
        os.close(fd)


def put_part(path: Path, start: int, content: bytes) -> None:
    """Overwrite a part of a file."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(fd, content, start)
    finally:
        os.close(fd)
