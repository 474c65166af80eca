"""The rows of a damaged database as its pages hold them, whether or not any tree still leads to them.

A page of a table that holds rows says so in its first byte, and every row says how long it is, its number and the types
of its columns: that is enough to read rows whose way from the root is broken. Pages that were freed hold rows too:
older states of some that live on. Pure; the caller brings the pages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

Page = Callable[[int], bytes]
"""The bytes of page n, from 1; shorter or empty beyond the end."""

Cell = int | float | bytes | str | None

LEAF: Final = 13
LONGEST_ROW: Final = 64 << 20
MAX_COLUMNS: Final = 200

_HEADER_OF_FILE: Final = 100
_INTEGER_BYTES: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


class Unreadable(Exception):
    """These bytes are no row."""


def rows_of_page(number: int, page: Page, *, page_bytes: int) -> Iterator[tuple[int, list[Cell]]]:
    """Yield rowid and columns of each row that makes sense on page `number`; none if it holds no rows of a table."""
    content = page(number)
    start = _HEADER_OF_FILE if number == 1 else 0
    if len(content) < page_bytes or content[start] != LEAF:
        return
    (count,) = struct.unpack_from(">H", content, start + 3)
    for place in range(min(count, (page_bytes - start - 8) // 2)):
        (at,) = struct.unpack_from(">H", content, start + 8 + 2 * place)
        try:
            yield _row(content, at, page, page_bytes)
        except (Unreadable, IndexError, struct.error):
            continue


def _row(content: bytes, at: int, page: Page, page_bytes: int) -> tuple[int, list[Cell]]:
    length, at = _varint(content, at)
    rowid, at = _varint(content, at)
    if not 0 < length <= LONGEST_ROW:
        raise Unreadable
    return _signed(rowid), _columns(_payload(content, at, length, page, page_bytes))


def _payload(content: bytes, at: int, length: int, page: Page, page_bytes: int) -> bytes:
    local = _local_bytes(length, page_bytes)
    parts = [content[at : at + local]]
    if local == length:
        return parts[0]
    (follower,) = struct.unpack_from(">I", content, at + local)
    left, steps = length - local, length // (page_bytes - 4) + 2
    while left > 0:
        overflow = page(follower) if follower and steps else b""
        if len(overflow) < page_bytes:
            raise Unreadable
        parts.append(overflow[4 : 4 + left])
        left -= len(parts[-1])
        steps -= 1
        (follower,) = struct.unpack_from(">I", overflow)
    return b"".join(parts)


def _local_bytes(length: int, page_bytes: int) -> int:
    """How much of a row is on its own page (the file format's rule for tables, no reserved bytes)."""
    most = page_bytes - 35
    if length <= most:
        return length
    least = (page_bytes - 12) * 32 // 255 - 23
    fits = least + (length - least) % (page_bytes - 4)
    return fits if fits <= most else least


def _columns(payload: bytes) -> list[Cell]:
    header_bytes, at = _varint(payload, 0)
    if not at <= header_bytes <= len(payload):
        raise Unreadable
    columns: list[Cell] = []
    body = header_bytes
    while at < header_bytes:
        kind, at = _varint(payload, at)
        value, body = _value(payload, body, kind)
        columns.append(value)
        if len(columns) > MAX_COLUMNS:
            raise Unreadable
    if at != header_bytes or body != len(payload):
        raise Unreadable
    return columns


def _value(payload: bytes, at: int, kind: int) -> tuple[Cell, int]:
    if kind == 0:
        return None, at
    if kind in (8, 9):
        return kind - 8, at
    if kind == 7:
        return struct.unpack_from(">d", payload, at)[0], at + 8
    if kind in _INTEGER_BYTES:
        end = at + _INTEGER_BYTES[kind]
        return int.from_bytes(_slice(payload, at, end), "big", signed=True), end
    if kind < 12:
        raise Unreadable
    end = at + (kind - 12) // 2
    piece = _slice(payload, at, end)
    return (piece.decode("utf-8", "replace") if kind % 2 else piece), end


def _slice(payload: bytes, at: int, end: int) -> bytes:
    if end > len(payload):
        raise Unreadable
    return payload[at:end]


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(8):
        byte = content[at + place]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + place + 1
    return value << 8 | content[at + 8], at + 9


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number
