"""The journal beside state.db: records that were acknowledged while state.db was not to be written to.

`state.db.pending` begins with a magic; each record after it is a frame of a spool's kind that also names the sender.
A group is one write and one fsync before anybody is told. The next ledger works the journal into the database it
opens and removes it; whatever of it that database has already is a duplicate there.
"""

from __future__ import annotations

import errno
import logging
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from ..protocol.errors import AlreadyRunning, StoreError, StoreFull
from ..protocol.ids import Incarnation
from ..protocol.messages.ledger import LedgerRecord
from .inbox import Delivery
from .locks import FileLock, take
from .logs import log_event
from .outbox import NO_ROOM

MAGIC: Final = b"coveypj1"
SUFFIX: Final = ".pending"
DAMAGED: Final = ".damaged"
MAX_BYTES: Final = 64 << 20
"""Twice the memory, and more, is what the next ledger needs to take it in."""

_NEXT: Final = "put a sound state.db in place and restart the ledger"

_HEAD: Final = struct.Struct("<II")
_encoder = msgspec.msgpack.Encoder()
_deliveries = msgspec.msgpack.Decoder(tuple[Incarnation, int, LedgerRecord])

log = logging.getLogger(__name__)


class Pending:
    """The open journal. Owned by the ledger's thread, which owns state.db; of no use in a forked child.

    At `max_bytes` it takes no more.
    """

    def __init__(self, database: Path, *, max_bytes: int = MAX_BYTES) -> None:
        """Open or create it (0600), to go on after the last whole record. Raises a `StoreError`."""
        self.path = database.with_name(database.name + SUFFIX)
        self._max_bytes = max_bytes
        self._lock = _take(self.path)
        try:
            content = _content(self._lock)
        except OSError as error:
            self._lock.close()
            raise StoreError(f"{self.path} cannot be read: {error.strerror}") from error
        self.deliveries, self._size, self._is_damaged = _parse(content)
        """What it held when it was opened."""
        self.records = len(self.deliveries)
        """How many it holds now."""
        if self._is_damaged:
            log_event(log, "pending_damaged", level=logging.ERROR, path=self.path, readable=self.records)

    def append(self, batch: Sequence[Delivery]) -> None:
        """Keep the batch, or nothing of it (`StoreError`); it survives this process and its host from here on."""
        content = b"".join(_frame(delivery) for delivery in batch)
        if not self._size:
            content = MAGIC + content
        if self._size + len(content) > self._max_bytes:
            raise StoreFull(f"{self.path} holds {self._max_bytes >> 20} MiB, more is not taken; {_NEXT}")
        try:
            os.ftruncate(self._lock.fd, self._size)
            if os.write(self._lock.fd, content) != len(content):
                raise OSError(errno.ENOSPC, "short write")
            os.fsync(self._lock.fd)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        self._size += len(content)
        self.records += len(batch)

    def forget(self) -> None:
        """Remove the journal: what it held is committed. Bytes that made no sense are kept under another name."""
        if self._is_damaged:
            os.rename(self.path, self.path.with_name(self.path.name + DAMAGED))
        elif self._lock.is_in_place():
            self.path.unlink(missing_ok=True)
        self._lock.close()

    def close(self) -> None:
        """Leave it to the next ledger. A second time does nothing."""
        self._lock.close()


def left_behind(database: Path) -> bool:
    """Whether there is a journal beside `database`."""
    return os.path.exists(f"{database}{SUFFIX}")


def _take(path: Path) -> FileLock:
    try:
        lock = take(path, create=True)
        if lock is None:
            raise AlreadyRunning(f"journal {path}", None)
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)  # the name has to survive the host as well
        finally:
            os.close(folder)
    except OSError as error:
        raise _unwritable(path, error) from error
    return lock


def _unwritable(path: Path, error: OSError) -> StoreError:
    if error.errno in NO_ROOM:
        return StoreFull(f"no room left for {path}; free some, records wait until then")
    return StoreError(f"{path} cannot be written to: {error.strerror}")


def _content(lock: FileLock) -> bytes:
    with open(lock.fd, "rb", closefd=False) as file:
        return file.read()


def _frame(delivery: Delivery) -> bytes:
    body = _encoder.encode(delivery)
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def _parse(content: bytes) -> tuple[list[Delivery], int, bool]:
    """Return the whole records, where they end, and whether what follows is more than a torn write."""
    if not content.startswith(MAGIC):
        return [], 0, not MAGIC.startswith(content)
    deliveries: list[Delivery] = []
    at = len(MAGIC)
    while len(content) >= at + _HEAD.size:
        length, crc = _HEAD.unpack_from(content, at)
        body = content[at + _HEAD.size : at + _HEAD.size + length]
        if len(body) < length:
            break
        # An empty body has CRC 0: zeros, which a crash of the host leaves, would read as records.
        if not length or zlib.crc32(body) != crc:
            return deliveries, at, any(content[at:])
        try:
            deliveries.append(_deliveries.decode(body))
        except (msgspec.DecodeError, RecursionError):
            return deliveries, at, True
        at += _HEAD.size + length
    return deliveries, at, False
