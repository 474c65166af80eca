"""Backups of state.db: a compact copy of one moment, read back before it gets its name.

The copy grows under a name that nobody takes for a backup, and locked: whoever can lock such a file knows that its
maker was killed, and removes it.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from ..protocol.errors import StoreDamaged, StoreError, UsageError
from .checkup import row_counts
from .identity import SUFFIXES, size
from .locks import take
from .originals import FILES, require_room, sync
from .readonly import Reader, findings

UNFINISHED: Final = ".partial"
GROWING: Final = ("sessions", "messages", "calls")
"""Tables that only grow: while somebody writes, the copy has at least as many rows as there were before."""


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that was read back."""

    path: str
    bytes: int
    rows: dict[str, int]
    took_s: float


def back_up(
    database: Path, dest: Path, *, overwrite: bool, deadline_s: float | None, on_step: Callable[[], None] | None = None
) -> Backup:
    """Copy what is committed now to `dest` (0600) and check the copy. A ledger that has it open goes on meanwhile.

    Raises `UsageError` for a destination that cannot be meant, `StoreDamaged` if the database or the copy is not sound,
    another `StoreError` or `TooSlow`; `dest` is then as it was.
    """
    began = time.monotonic()
    _refuse(database, dest, overwrite=overwrite)
    _sweep(dest)
    partial = dest.with_name(f".{dest.name}.{secrets.token_hex(4)}{UNFINISHED}")
    lock = take(partial, create=True)
    assert lock is not None, "nobody else knows this name"
    try:
        rows = _copy(database, partial, deadline_s, on_step)
        sync(partial)
        _place(partial, dest, overwrite=overwrite)
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()
        lock.close()
    sync(dest.parent)
    return Backup(path=str(dest), bytes=size(dest), rows=rows, took_s=round(time.monotonic() - began, 3))


def rotate(folder: Path, *, prefix: str, keep: int) -> tuple[str, ...]:
    """Remove all but the `keep` newest files of a folder whose names begin with `prefix` and sort by age."""
    old = sorted(path for path in folder.glob(f"{prefix}*.db") if path.is_file())[:-keep]
    for path in old:
        path.unlink()
    return tuple(path.name for path in old)


def _refuse(database: Path, dest: Path, *, overwrite: bool) -> None:
    if not dest.parent.is_dir():
        raise UsageError(f"{dest.parent} is not a folder; make it, or choose another destination")
    where = dest.parent.resolve() / dest.name
    if where in [database.parent.resolve() / f"{database.name}{suffix}" for suffix in SUFFIXES]:
        raise UsageError(f"{dest} belongs to the database itself; choose another destination")
    if dest.is_dir() or (dest.exists() and not overwrite):
        raise UsageError(f"{dest} exists already; choose another name, or say --force")
    for suffix in FILES[1:]:
        if Path(f"{dest}{suffix}").exists():
            raise UsageError(f"{dest}{suffix} is there and would be taken for a part of the backup; move it away")


def _sweep(dest: Path) -> None:
    for left in dest.parent.glob(f".{dest.name}.*{UNFINISHED}"):
        if (lock := take(left, create=False)) is not None:
            left.unlink(missing_ok=True)
            lock.close()


def _copy(
    database: Path, partial: Path, deadline_s: float | None, on_step: Callable[[], None] | None
) -> dict[str, int]:
    with Reader(database) as reader, reader.deadline(deadline_s, on_step=on_step):
        reader.require_ours()
        require_room(partial.parent, reader.number("PRAGMA page_count") * reader.number("PRAGMA page_size"))
        version, before = _version(reader), row_counts(reader)
        reader.vacuum_into(partial)
        after, is_same = row_counts(reader), _version(reader) == version
    with Reader(partial, is_still=True) as copy, copy.deadline(deadline_s, on_step=on_step):
        copy.require_ours()
        if found := findings(copy, is_full=True, most=1):
            raise StoreDamaged(str(database), f"its copy is not sound: {found[0]}")
        rows = row_counts(copy)
    _compare(database, rows, before, after, is_same=is_same)
    return rows


def _version(reader: Reader) -> int:
    """Changes whenever somebody else commits."""
    return reader.number("PRAGMA data_version")


def _compare(
    database: Path, rows: dict[str, int], before: dict[str, int], after: dict[str, int], *, is_same: bool
) -> None:
    for table, count in before.items():
        copied = rows.get(table, 0)
        is_right = copied == count if is_same else table not in GROWING or count <= copied <= after.get(table, copied)
        if not is_right:
            raise StoreDamaged(str(database), f"its copy has {copied} rows of {table}, the original has {count}")


def _place(partial: Path, dest: Path, *, overwrite: bool) -> None:
    if overwrite:
        os.rename(partial, dest)
        return
    try:
        # Unlike a rename it does not replace a file that has come meanwhile.
        os.link(partial, dest)
    except FileExistsError:
        raise UsageError(f"{dest} exists already; choose another name, or say --force") from None
    except OSError as error:
        raise StoreError(
            f"{dest} cannot be made: {error.strerror}; choose another destination, or say --force"
        ) from error
