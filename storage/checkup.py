"""A check of state.db from end to end by somebody who does not own it, and what it holds."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final, cast

import msgspec

from ..protocol.errors import ForeignDatabase, StoreDamaged
from .database import TooSlow
from .identity import SUFFIXES, size
from .migrations import LADDER
from .ownership import read_owner
from .readonly import Reader, findings, quoted
from .schema import APPLICATION_ID

WAL: Final = SUFFIXES[1]
LARGEST: Final = 10


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """What was found. Numbers are None where damage hides them."""

    path: str
    is_sound: bool
    is_whole: bool
    """Whether the check came to its end in the time it had."""
    is_full: bool
    findings: tuple[str, ...]
    full_text: tuple[str, ...]
    """The FTS5 indexes that were read as well."""
    application_id: int | None
    user_version: int | None
    known_version: int
    pages: int | None
    page_bytes: int | None
    free_pages: int | None
    db_bytes: int
    wal_bytes: int
    owner_pid: int | None
    """The ledger that has it open, if one does."""
    took_s: float


class Largest(msgspec.Struct, frozen=True, kw_only=True):
    """One of the sessions with the most messages."""

    session: str
    messages: int
    characters: int
    goal: str | None


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The first and the last row of a table by commit, in Unix milliseconds."""

    oldest_ms: int | None
    newest_ms: int | None


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """What state.db holds."""

    path: str
    rows: dict[str, int]
    sessions: Span
    messages: Span
    calls: Span
    largest: tuple[Largest, ...]
    db_bytes: int
    free_bytes: int
    wal_bytes: int
    user_version: int


def check(path: Path, *, is_full: bool, deadline_s: float | None) -> Checkup:
    """Check the database; damage is a finding. Raises `ForeignDatabase`, or a `StoreError` if it cannot be read."""
    began = time.monotonic()
    owner = read_owner(path)
    numbers: dict[str, int | None] = dict.fromkeys(("application_id", "user_version", "page_count", "page_size",
                                                    "freelist_count"))  # fmt: skip
    found: tuple[str, ...] = ()
    full_text: tuple[str, ...] = ()
    is_whole = True
    with Reader(path) as reader, reader.deadline(deadline_s):
        reader.forbid_writes()
        try:
            for name in numbers:
                numbers[name] = reader.number(f"PRAGMA {name}")
            if numbers["application_id"] != APPLICATION_ID and reader.tables():
                raise ForeignDatabase(str(path))
            full_text = reader.full_text_tables()
            found = findings(reader, is_full=is_full)
        except StoreDamaged as error:
            found = (error.finding,)
        except TooSlow:
            is_whole = False
    return Checkup(
        path=str(path),
        is_sound=not found,
        is_whole=is_whole,
        is_full=is_full,
        findings=found,
        full_text=full_text,
        application_id=numbers["application_id"],
        user_version=numbers["user_version"],
        known_version=len(LADDER),
        pages=numbers["page_count"],
        page_bytes=numbers["page_size"],
        free_pages=numbers["freelist_count"],
        db_bytes=size(path),
        wal_bytes=size(f"{path}{WAL}"),
        owner_pid=owner.pid if owner is not None else None,
        took_s=round(time.monotonic() - began, 3),
    )


def stats(path: Path) -> Stats:
    """Count and measure; every read is short. Raises `StoreError`."""
    with Reader(path) as reader:
        reader.require_ours()
        page_bytes = reader.number("PRAGMA page_size")
        return Stats(
            path=str(path),
            rows=row_counts(reader),
            sessions=_span(reader, "sessions", "opened_at_ms"),
            messages=_span(reader, "messages", "at_ms"),
            calls=_span(reader, "calls", "started_at_ms"),
            largest=_largest(reader),
            db_bytes=size(path),
            free_bytes=reader.number("PRAGMA freelist_count") * page_bytes,
            wal_bytes=size(f"{path}{WAL}"),
            user_version=reader.number("PRAGMA user_version"),
        )


def row_counts(reader: Reader) -> dict[str, int]:
    """How many rows each table has."""
    return {table: reader.number(f"SELECT count(*) FROM {quoted(table)}") for table in reader.tables()}


def _span(reader: Reader, table: str, column: str) -> Span:
    ends = [
        reader.rows(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL ORDER BY id {order} LIMIT 1")
        for order in ("ASC", "DESC")
    ]
    oldest, newest = (cast("int | None", rows[0][0]) if rows else None for rows in ends)
    return Span(oldest_ms=oldest, newest_ms=newest)


def _largest(reader: Reader) -> tuple[Largest, ...]:
    most = reader.rows(
        "SELECT session, count(*) FROM messages GROUP BY session ORDER BY count(*) DESC, session LIMIT ?", (LARGEST,)
    )
    return tuple(
        Largest(
            session=str(session),
            messages=cast(int, count),
            characters=reader.number(
                "SELECT coalesce(sum(length(content)), 0) FROM messages WHERE session = ?", (session,)
            ),
            goal=cast(
                "str | None",
                (reader.rows("SELECT goal FROM sessions WHERE session = ?", (session,)) or [(None,)])[0][0],
            ),
        )
        for session, count in most
    )
