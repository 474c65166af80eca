"""The helper that checkpoints: a thread with a connection of its own, so that commits do not wait for the disk twice.

It only ever moves pages that are committed, as far as readers let it, and never begins the WAL anew: that would look
like a foreign writer to the ledger's connection, which does it itself.
"""

from __future__ import annotations

import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import apsw

from ..protocol.errors import StoreError
from .faults import store_error

JOIN_S: Final = 5.0

Moved = tuple[int, int]
"""Pages in the WAL when it was looked at, and how many of them are in the database now."""


class Checkpointer:
    """Owned by the store's thread; its own thread begins with the first checkpoint and ends with `close`."""

    def __init__(self, path: Path) -> None:
        """Open database and WAL now, while their owner has just made sure of them: never a file put there later."""
        self._path = path
        self._orders: SimpleQueue[bool] = SimpleQueue()
        self._results: SimpleQueue[Moved | StoreError] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._connection = _connect(path)
        self.is_at_work = False

    def begin(self) -> None:
        """Checkpoint once; `result` tells how it went. Not while one is under way."""
        assert not self.is_at_work, "one at a time"
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ledger-checkpoints", daemon=True)
            self._thread.start()
        self.is_at_work = True
        self._orders.put(True)

    def result(self) -> Moved | None:
        """Return what the checkpoint that has ended did, once; None while there is none. Raises its `StoreError`."""
        if not self.is_at_work or self._results.empty():
            return None
        self.is_at_work = False
        found = self._results.get_nowait()
        if isinstance(found, StoreError):
            raise found
        return found

    def close(self) -> None:
        """End after the checkpoint that is under way; one that hangs in the disk is left behind."""
        if self._thread is not None:
            self._orders.put(False)
            self._thread.join(JOIN_S)
            if self._thread.is_alive():
                return
        self._connection.close()

    def _run(self) -> None:
        while self._orders.get():
            self._results.put(self._checkpoint())

    def _checkpoint(self) -> Moved | StoreError:
        try:
            return self._connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            return (0, 0)
        except apsw.Error as error:
            return store_error(error, self._path, self._connection.system_errno)


def _connect(path: Path) -> apsw.Connection:
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        for pragma in ("synchronous = FULL", "mmap_size = 0", "cache_size = -64", "data_version"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.wal_autocheckpoint(0)
    except apsw.Error as error:
        raise store_error(error, path, 0) from error
    return connection
