"""The format of a spool: a magic, a header frame that names its sender, then one frame per record.

Pure. A frame is length, CRC-32 and msgpack, and is written by one call: a killed writer leaves whole frames and at
most a prefix of one at the end. Everything else that does not read is damage, and told apart.
"""

from __future__ import annotations

import struct
import zlib
from enum import Enum
from typing import Final

import msgspec

from ..protocol.ids import Incarnation
from ..protocol.messages.ledger import LedgerRecord

MAGIC: Final = b"coveysp1"

_HEAD: Final = struct.Struct("<II")
_encoder = msgspec.msgpack.Encoder()
_entries = msgspec.msgpack.Decoder(tuple[int, LedgerRecord])

Entry = tuple[int, LedgerRecord]


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """Whose records these are."""

    role: str
    incarnation: Incarnation


_senders = msgspec.msgpack.Decoder(Sender)


class End(Enum):
    """How a spool ends."""

    WHOLE = "whole"
    TORN = "torn"
    """With the beginning of a frame: its writer was killed, and nobody was told that the record is safe."""
    DAMAGED = "damaged"
    """With bytes that no writer of ours left there, or a record of another covey."""


class Spool(msgspec.Struct, frozen=True, kw_only=True):
    """What a spool holds. `sender` is None if it was killed before it had said who it is: then there are no records."""

    sender: Sender | None
    entries: tuple[Entry, ...]
    end: End


def opening(sender: Sender) -> bytes:
    """Return the first bytes of a spool."""
    return MAGIC + _frame(_encoder.encode(sender))


def frame(seq: int, record: LedgerRecord) -> bytes:
    """Return one record as it is appended."""
    return _frame(_encoder.encode((seq, record)))


def parse(content: bytes) -> Spool:
    """Read as far as it makes sense; never raises."""
    if not content.startswith(MAGIC):
        end = End.TORN if MAGIC.startswith(content) else End.DAMAGED
        return Spool(sender=None, entries=(), end=end)
    bodies, end = _bodies(content)
    entries: list[Entry] = []
    sender: Sender | None = None
    try:
        for number, body in enumerate(bodies):
            if number:
                entries.append(_entries.decode(body))
            else:
                sender = _senders.decode(body)
    except (msgspec.DecodeError, RecursionError):
        end = End.DAMAGED
    if sender is None and end is End.WHOLE:
        end = End.TORN
    return Spool(sender=sender, entries=tuple(entries), end=end)


def _frame(body: bytes) -> bytes:
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def _bodies(content: bytes) -> tuple[list[memoryview], End]:
    view, at = memoryview(content), len(MAGIC)
    bodies: list[memoryview] = []
    while at < len(view):
        if len(view) < at + _HEAD.size:
            return bodies, End.TORN
        length, crc = _HEAD.unpack_from(view, at)
        at += _HEAD.size
        if len(view) < at + length:
            return bodies, End.TORN
        body = view[at : at + length]
        if zlib.crc32(body) != crc:
            return bodies, End.DAMAGED
        bodies.append(body)
        at += length
    return bodies, End.WHOLE
