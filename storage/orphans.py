"""Orphans: spools whose owner is dead. The ledger commits what they hold, then removes them.

Whoever can lock a spool knows that its owner is gone: the owner holds the lock for life.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..protocol.ids import Incarnation
from .locks import FileLock, take
from .logs import log_event
from .outbox import SUFFIX, UNFINISHED
from .spool import End, Entry, Sender, Spool, parse

DAMAGED: Final = ".damaged"
"""Ends the name of a spool whose readable part was committed and whose rest is kept for people."""

log = logging.getLogger(__name__)


class Orphan:
    """A dead sender's spool, locked until it is forgotten or released. Owned by the thread that adopted it."""

    def __init__(self, lock: FileLock, sender: Sender, spool: Spool) -> None:
        self.incarnation: Incarnation = sender.incarnation
        self.role = sender.role
        self.entries: tuple[Entry, ...] = spool.entries
        self._damaged = spool.end is End.DAMAGED
        self._lock = lock

    def forget(self) -> None:
        """Remove the spool: its records are committed. Bytes that made no sense are kept under another name."""
        _remove(self._lock, damaged=self._damaged)

    def release(self) -> None:
        """Leave the spool where it is, to be adopted another time."""
        self._lock.close()


def adopt(directory: Path) -> Iterator[Orphan]:
    """Yield every spool with records whose owner is dead; the empty ones are removed. A live owner's is not touched."""
    for path in _spools(directory):
        lock = take(path, create=False)
        if lock is None:
            continue
        spool = parse(_content(lock))
        if spool.sender is not None and spool.entries:
            yield Orphan(lock, spool.sender, spool)
        else:
            _remove(lock, damaged=spool.end is End.DAMAGED)


def _spools(directory: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    for name in names:
        if name.endswith(SUFFIX + UNFINISHED) and (lock := take(directory / name, create=False)):
            _remove(lock, damaged=False)
    return [directory / name for name in names if name.endswith(SUFFIX)]


def _content(lock: FileLock) -> bytes:
    with open(lock.fd, "rb", closefd=False) as file:
        return file.read()


def _remove(lock: FileLock, *, damaged: bool) -> None:
    # Before the lock is given up: a starting owner that waits for it has to see that the file is gone.
    if damaged:
        log_event(log, "spool_damaged", level=logging.ERROR, path=lock.path)
        os.rename(lock.path, lock.path.with_name(lock.path.name + DAMAGED))
    elif lock.is_in_place():
        with suppress(FileNotFoundError):
            lock.path.unlink()
    lock.close()
