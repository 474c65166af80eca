"""The outbox: a sender's records on their way to the ledger, on file before anybody counts on them.

One file per life of a process, locked by it for life. The page cache survives the death of a process, so nothing is
fsynced; when the process dies, the lock ends and the ledger adopts the file (`orphans`).
"""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..protocol.errors import AlreadyRunning, OutboxFull, StoreError
from ..protocol.ids import Incarnation
from ..protocol.messages.ledger import LedgerRecord
from .locks import FileLock, take
from .spool import Entry, Sender, frame, opening

MAX_RECORDS: Final = 100_000
MAX_BYTES: Final = 64 << 20
COMPACT_BYTES: Final = 1 << 20

SUFFIX: Final = ".spool"
UNFINISHED: Final = ".new"
"""Ends the name of a spool that is being rewritten; its original is still in place."""

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Outbox:
    """The open spool of this process's life. Owned by one thread; of no use in a forked child.

    At `max_records` or `max_bytes` that are not acknowledged, records are refused.
    """

    def __init__(
        self,
        directory: Path,
        *,
        role: str,
        incarnation: Incarnation,
        max_records: int = MAX_RECORDS,
        max_bytes: int = MAX_BYTES,
        compact_bytes: int = COMPACT_BYTES,
    ) -> None:
        """Create the spool (0600) in a directory that exists; raises `AlreadyRunning` if this life has one.

        With a full disk it raises `OutboxFull`, and there is no spool.
        """
        self.path = directory / f"{role}-{incarnation}{SUFFIX}"
        self._max_records, self._max_bytes, self._compact_bytes = max_records, max_bytes, compact_bytes
        self._opening = opening(Sender(role=role, incarnation=incarnation))
        self._waiting: deque[tuple[int, LedgerRecord, int]] = deque()
        self._waiting_bytes = 0
        self._last: int | None = None
        self._lock = _take_new(self.path)
        self._size = 0
        try:
            self._write(self._opening)
        except BaseException:
            self.close()
            raise

    @property
    def waiting(self) -> int:
        """Records that are not acknowledged."""
        return len(self._waiting)

    def append(self, seq: int, record: LedgerRecord) -> None:
        """Keep a record; it survives SIGKILL of this process from here on. `seq` starts at 1 or more, without gaps.

        Raises `OutboxFull` at a bound, or when the disk is full: the record was not kept, `seq` is still unused.
        """
        assert seq == (self._last + 1 if self._last is not None else max(seq, 1)), "records are numbered without gaps"
        content = frame(seq, record)
        if len(self._waiting) >= self._max_records or self._waiting_bytes + len(content) > self._max_bytes:
            raise OutboxFull(len(self._waiting))
        self._write(content)
        self._last = seq
        self._waiting.append((seq, record, len(content)))
        self._waiting_bytes += len(content)

    def acknowledge(self, seq: int) -> None:
        """Forget every record up to and including `seq`; one that was forgotten before changes nothing."""
        while self._waiting and self._waiting[0][0] <= seq:
            self._waiting_bytes -= self._waiting.popleft()[2]
        forgotten = self._size - len(self._opening) - self._waiting_bytes
        # Twice what is alive: else a full outbox would be rewritten at every acknowledgement.
        if forgotten > max(self._compact_bytes, self._waiting_bytes):
            self._compact()

    def unacknowledged(self) -> Iterator[Entry]:
        """Yield what is to be sent again, in order."""
        for seq, record, _ in self._waiting:
            yield seq, record

    def close(self) -> None:
        """End the ownership: an empty spool is gone, any other is the ledger's to adopt. Twice does nothing."""
        if self._lock.fd >= 0 and not self._waiting and self._lock.is_in_place():
            self.path.unlink(missing_ok=True)
        self._lock.close()

    def _write(self, content: bytes) -> None:
        """Append all of `content`, or nothing."""
        if self._lock.fd < 0:
            raise StoreError(f"outbox {self.path} is closed in this process; open one of its own")
        try:
            written = os.write(self._lock.fd, content)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            written = 0
        if written != len(content):
            # Part of a frame in the middle of a spool would hide all that follows.
            os.ftruncate(self._lock.fd, self._size)
            raise OutboxFull(len(self._waiting))
        self._size += written

    def _compact(self) -> None:
        """Drop what is forgotten from the file. With no room for a second one it stays as it is until later."""
        if not self._waiting:
            os.ftruncate(self._lock.fd, len(self._opening))
            self._size = len(self._opening)
            return
        beside = self.path.with_name(self.path.name + UNFINISHED)
        content = self._opening + b"".join(frame(seq, record) for seq, record in self.unacknowledged())
        fresh = take(beside, create=True)
        if fresh is None:
            return
        if not _replace(self._lock, fresh, content):
            fresh.close()
            return
        # The new file was locked before it had the name, the old one until it had lost it: neither was free in between.
        self._lock.close()
        self._lock, self._size = fresh, len(content)


def _replace(old: FileLock, fresh: FileLock, content: bytes) -> bool:
    """Write `content` to `fresh` and give it the name of `old`; False, and nothing changed, without room for it."""
    beside = fresh.path
    try:
        os.ftruncate(fresh.fd, 0)
        if os.write(fresh.fd, content) != len(content):
            raise OSError(errno.ENOSPC, "short write")
        os.rename(beside, old.path)
    except OSError as error:
        if error.errno not in NO_ROOM and error.errno != errno.ENOENT:
            raise
        with suppress(FileNotFoundError):
            beside.unlink()
        return False
    fresh.path = old.path
    return True


def _take_new(path: Path, tries: int = 100) -> FileLock:
    # The ledger looks into every spool it can lock: for an instant it may hold one that we have just created, and
    # removes it, as nobody's. It is gone then, or we have it.
    for _ in range(tries):
        lock = take(path, create=True)
        if lock is not None:
            if os.fstat(lock.fd).st_size == 0:
                return lock
            lock.close()
            break
        time.sleep(0.001)
    raise AlreadyRunning(f"outbox {path}", None)
