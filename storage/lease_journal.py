"""The lease journal: grants and their ends, on file before anybody is told, so that a killed broker has a successor
that knows them.

One file: a magic, then frames of length, CRC and one msgpack record, each appended by a single write. The page
cache survives the death of a process, and no lease survives the death of the host: nothing is fsynced. A torn tail
(the disk was full, the host went down) is ignored. The file is rewritten through a rename when it is opened and
when it has grown.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from pathlib import Path
from typing import Final

import msgspec

from ..protocol.errors import AlreadyRunning, StoreError, StoreFull
from .leases import LeaseRecord, Outstanding
from .locks import FileLock, take

MAGIC: Final = b"coveylj1"
COMPACT_BYTES: Final = 1 << 20

_HEAD: Final = struct.Struct("<II")
_LONGEST_RECORD: Final = 1 << 20
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class LeaseJournal:
    """The open journal of one broker; `state` is what it says right now. Owned by one thread.

    A lock that ends with the process keeps a second broker out (`AlreadyRunning`).
    """

    def __init__(self, path: Path, *, life: str, compact_bytes: int = COMPACT_BYTES) -> None:
        """Open or create the journal; in another `life` of the fleet, totals begin at 0 and leases stay.

        Raises `StoreError` for a file that is not a lease journal, or one of a newer covey; it is left as it was.
        """
        self._path = path
        self._compact_bytes = compact_bytes
        self._encoder = msgspec.msgpack.Encoder()
        self._fd = -1
        self._lock = _lock(path.with_name(path.name + ".lock"))
        try:
            self.state, self.ignored_bytes = read_lease_journal(path)
            self.state.begin_life(life)
            self._compact()
        except BaseException:
            self.close()
            raise

    def append(self, record: LeaseRecord) -> None:
        """Put a record on file, then into `state`; it survives SIGKILL of this process from here on.

        Raises `StoreFull` when there is no room; the file ends with the record before then.
        """
        frame = self._frame(record)
        _write(self._fd, frame, self._path, end=self._size)
        self._size += len(frame)
        self.state.apply(record)
        if self._size >= self._compact_at:
            self._compact()

    def sync(self) -> None:
        """Let what is on file survive the host as well. Takes milliseconds: for what a person has to lift."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Close the file and let another broker open it. A second close does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        self._lock.close()

    def _compact(self) -> None:
        snapshot = b"".join((MAGIC, *(self._frame(record) for record in self.state.records())))
        beside = self._path.with_name(self._path.name + ".new")
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            _write(fd, snapshot, beside, end=0)
            os.replace(beside, self._path)
        except BaseException:
            os.close(fd)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size = fd, len(snapshot)
        # Twice what is alive: else a journal full of long leases would be rewritten at every record.
        self._compact_at = max(self._compact_bytes, 2 * self._size)

    def _frame(self, record: LeaseRecord) -> bytes:
        body = self._encoder.encode(record)
        return _HEAD.pack(len(body), zlib.crc32(body)) + body


def read_lease_journal(path: Path) -> tuple[Outstanding, int]:
    """Return what the journal says, and how many bytes at its end make no record. A missing file says nothing.

    Raises `StoreError` for another kind of file and for a record this covey does not know.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return Outstanding(), 0
    if content[: len(MAGIC)] != MAGIC[: len(content)]:
        raise StoreError(f"{path} is not a lease journal of this covey; stop all its clients, then remove it")
    return _fold(content, path)


def _fold(content: bytes, path: Path) -> tuple[Outstanding, int]:
    decoder = msgspec.msgpack.Decoder(LeaseRecord)
    state, at = Outstanding(), len(MAGIC)
    while (body := _body_at(content, at)) is not None:
        try:
            state.apply(decoder.decode(body))
        except msgspec.ValidationError as error:
            raise StoreError(f"{path} was written by another covey ({error}); start that one") from error
        at += _HEAD.size + len(body)
    return state, max(0, len(content) - at)


def _body_at(content: bytes, at: int) -> bytes | None:
    if len(content) < at + _HEAD.size:
        return None
    length, crc = _HEAD.unpack_from(content, at)
    body = content[at + _HEAD.size : at + _HEAD.size + length]
    # An empty body has CRC 0: a tail of zeros would otherwise read as records.
    if not 0 < length <= _LONGEST_RECORD or len(body) < length or zlib.crc32(body) != crc:
        return None
    return body


def _write(fd: int, content: bytes, path: Path, *, end: int) -> None:
    """Append all of `content` at `end`, or nothing."""
    try:
        written = os.write(fd, content)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        written = 0
    if written != len(content):
        os.ftruncate(fd, end)
        raise StoreFull(f"no room left for {path}; free some, the broker cannot grant slots without it")


def _lock(path: Path) -> FileLock:
    lock = take(path, create=True)
    if lock is None:
        owner = path.read_bytes()
        raise AlreadyRunning(f"lease journal {path}", int(owner) if owner.isdigit() else None)
    os.ftruncate(lock.fd, 0)
    os.write(lock.fd, str(os.getpid()).encode())
    return lock
