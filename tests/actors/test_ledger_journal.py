"""A database that is lost under a working ledger: what is acknowledged from then on is in the next one, once."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import apsw
import pytest

from covey.actors import ledger_standing
from covey.actors.ledger import LedgerWriter
from covey.protocol.errors import SequenceGap
from covey.protocol.ids import Incarnation, SessionId
from covey.protocol.messages.base import Failed
from covey.protocol.messages.ledger import (
    LedgerQuery,
    LedgerReply,
    LedgerStats,
    LedgerStatsQuery,
    MessageAppended,
    Totals,
    TotalsQuery,
    Transcript,
    TranscriptQuery,
)
from covey.protocol.transcript import Message, Role
from covey.storage.outbox import Outbox
from covey.storage.spool import Entry

A, B = Incarnation("inc_a"), Incarnation("inc_b")
S = SessionId("ses_1")
Reply = TypeVar("Reply", bound=LedgerReply)
Until = Callable[[Callable[[], bool]], Awaitable[None]]


def said(seq: int) -> Entry:
    message = Message(role=Role.USER, content=f"message {seq}")
    return (seq, MessageAppended(session=S, index=seq - 1, message=message, at_ms=0))


def entries(first: int, last: int) -> list[Entry]:
    return [said(seq) for seq in range(first, last + 1)]


@asynccontextmanager
async def running(home: Path) -> AsyncIterator[LedgerWriter]:
    (home / "outbox").mkdir(exist_ok=True)
    writer = LedgerWriter(home / "state.db", home / "outbox")
    await writer.start()
    try:
        yield writer
    finally:
        await writer.close()


async def ask(writer: LedgerWriter, query: LedgerQuery, of: type[Reply]) -> Reply:
    future: asyncio.Future[LedgerReply] = asyncio.get_running_loop().create_future()
    writer.query(query, future.set_result)
    reply = await future
    assert isinstance(reply, of), reply
    return reply


async def commit(writer: LedgerWriter, records: list[Entry], sender: Incarnation = A) -> int:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    writer.submit(sender, records, future.set_result)
    return await future


def numbers(database: Path) -> list[int]:
    connection = apsw.Connection(str(database))
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        rows = connection.execute("SELECT idx FROM messages ORDER BY idx").fetchall()
        return [int(str(index)) + 1 for (index,) in rows]
    finally:
        connection.close()


async def test_what_was_acknowledged_without_a_database_is_in_the_next_one(tmp_path: Path) -> None:
    async with running(tmp_path) as writer:
        await commit(writer, entries(1, 5))
        (tmp_path / "state.db").unlink()
        assert await commit(writer, entries(6, 2000)) == 2000

    async with running(tmp_path) as writer:
        assert (await ask(writer, TotalsQuery(), Totals)).messages == 1995
        stats = await ask(writer, LedgerStatsQuery(), LedgerStats)
        assert (stats.fault, stats.journaled) == (None, 0)
        # The sender lives on and knows nothing of it.
        assert await commit(writer, entries(2001, 2002)) == 2002
        with pytest.raises(SequenceGap):
            writer.submit(A, entries(2004, 2004), lambda upto: None)

    assert numbers(tmp_path / "state.db") == list(range(6, 2003))
    assert not (tmp_path / "state.db.pending").exists()


async def test_a_database_that_comes_back_has_every_record_once(tmp_path: Path) -> None:
    async with running(tmp_path) as writer:
        await commit(writer, entries(1, 5))
        (tmp_path / "state.db").rename(tmp_path / "elsewhere")
        await commit(writer, entries(4, 9))
    (tmp_path / "elsewhere").rename(tmp_path / "state.db")
    (tmp_path / "state.db-wal.lost").rename(tmp_path / "state.db-wal")

    async with running(tmp_path) as writer:
        # The sender goes on after what it was told, which is more than the database has by itself.
        assert await commit(writer, entries(10, 10)) == 10
        assert len((await ask(writer, TranscriptQuery(session=S), Transcript)).messages) == 10

    assert numbers(tmp_path / "state.db") == list(range(1, 11))


async def test_a_journal_is_gone_on_with_when_the_next_database_is_lost_as_well(tmp_path: Path) -> None:
    for first in (1, 11, 21):
        async with running(tmp_path) as writer:
            await commit(writer, entries(first, first + 4))
            (tmp_path / "state.db").unlink()
            await commit(writer, entries(first + 5, first + 9))

    async with running(tmp_path) as writer:
        await ask(writer, TotalsQuery(), Totals)

    assert numbers(tmp_path / "state.db") == list(range(26, 31))


async def test_the_spool_of_a_dead_sender_waits_for_the_next_database(tmp_path: Path, until: Until) -> None:
    async with running(tmp_path) as writer:
        await commit(writer, entries(1, 2))
        (tmp_path / "state.db").unlink()
        await commit(writer, entries(3, 4))
        outbox = Outbox(tmp_path / "outbox", role="worker", incarnation=B)
        for entry in entries(100, 101):
            outbox.append(*entry)
        outbox.close()
        writer.adopt_now()
        assert (await ask(writer, TotalsQuery(), Failed)).kind == "StoreMoved"
        assert outbox.path.exists()

    async with running(tmp_path) as writer:
        await until(lambda: not outbox.path.exists())
        await ask(writer, TotalsQuery(), Totals)

    assert numbers(tmp_path / "state.db") == [3, 4, 100, 101]


async def test_a_copy_that_takes_its_place_under_load_is_not_written_to_and_gets_the_rest_later(
    tmp_path: Path, until: Until
) -> None:
    acknowledged: list[int] = []
    async with running(tmp_path) as writer:
        await commit(writer, entries(1, 100))
    shutil.copyfile(tmp_path / "state.db", tmp_path / "copy")

    async with running(tmp_path) as writer:
        replaced_at = 0
        for first in range(101, 4001, 50):
            writer.submit(A, entries(first, first + 49), acknowledged.append)
            await asyncio.sleep(0)
            if first == 2001:
                await until(lambda: bool(acknowledged))
                os.link(tmp_path / "state.db", tmp_path / "old")
                os.rename(tmp_path / "copy", tmp_path / "state.db")
                replaced_at = acknowledged[-1]
                copied = (tmp_path / "state.db").read_bytes()
        await until(lambda: acknowledged[-1] == 4000)
        assert (tmp_path / "state.db").read_bytes() == copied
    (tmp_path / "state.db-wal.lost").rename(tmp_path / "old-wal")

    async with running(tmp_path) as writer:
        await ask(writer, TotalsQuery(), Totals)

    old, new = numbers(tmp_path / "old"), numbers(tmp_path / "state.db")
    assert len(new) == len(set(new))
    assert set(old) | set(new) == set(range(1, 4001))
    assert set(range(1, 101)) <= set(new)
    assert replaced_at < 4000
    assert new[-1] == 4000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_full_disk_and_a_full_journal_acknowledge_nothing_until_there_is_room(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    monkeypatch.setattr(ledger_standing, "RETRY_S", 0.01)
    acknowledged: list[int] = []
    async with running(small_disk) as writer:
        await commit(writer, entries(1, 2))
        with pytest.raises(OSError, match="No space left"):
            (small_disk / "ballast").write_bytes(bytes(8 << 20))

        (small_disk / "state.db").rename(small_disk / "elsewhere")
        writer.submit(A, entries(3, 400), acknowledged.append)
        stats = await ask(writer, LedgerStatsQuery(), LedgerStats)
        assert stats.is_fault_lasting
        assert acknowledged == []
        (small_disk / "ballast").unlink()

        await until(lambda: acknowledged == [400])
        assert (await ask(writer, LedgerStatsQuery(), LedgerStats)).journaled == 398


@pytest.fixture
def mortal_disk(tmp_path: Path) -> Iterator[Path]:
    image, place = tmp_path / "image", tmp_path / "place"
    place.mkdir()
    image.touch()
    os.truncate(image, 32 << 20)
    if any(
        subprocess.run(command, check=False, capture_output=True).returncode
        for command in (["mkfs.ext4", "-q", str(image)], ["mount", "-o", "loop", str(image), str(place)])
    ):
        pytest.skip("a file system of the test's own cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def abort(place: Path) -> None:
    """What the kernel does with a file system after an error: from now on it can only be read."""
    subprocess.run(["mount", "-o", "remount,abort", str(place)], check=False, capture_output=True)


async def test_on_a_disk_that_turned_read_only_nothing_is_acknowledged(mortal_disk: Path) -> None:
    acknowledged: list[int] = []
    async with running(mortal_disk) as writer:
        await commit(writer, entries(1, 2))
        abort(mortal_disk)

        writer.submit(A, entries(3, 4), acknowledged.append)

        assert (await ask(writer, TotalsQuery(), Failed)).kind in ("StoreReadOnly", "StoreBroken")
        assert acknowledged == []
