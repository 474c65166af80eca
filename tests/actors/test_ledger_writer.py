"""The ledger's two sides together: group commit, read-your-writes, adoption, faults, the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import apsw
import pytest

from covey.actors import ledger_mail, ledger_standing
from covey.actors.ledger import LedgerWriter
from covey.protocol.errors import AlreadyRunning, ForeignDatabase, MailboxFull, SequenceGap, StoreError, StoreFull
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
from covey.storage.inbox import Applied
from covey.storage.outbox import Outbox
from covey.storage.spool import Entry
from covey.storage.store import Store

A, B = Incarnation("inc_a"), Incarnation("inc_b")
S = SessionId("ses_1")
Reply = TypeVar("Reply", bound=LedgerReply)
Until = Callable[[Callable[[], bool]], Awaitable[None]]


def said(seq: int, *, session: SessionId = S) -> Entry:
    message = Message(role=Role.USER, content=f"message {seq}")
    return (seq, MessageAppended(session=session, index=seq - 1, message=message, at_ms=0))


def entries(first: int, last: int) -> list[Entry]:
    return [said(seq) for seq in range(first, last + 1)]


@asynccontextmanager
async def running(home: Path, **bounds: int) -> AsyncIterator[LedgerWriter]:
    (home / "outbox").mkdir(exist_ok=True)
    writer = LedgerWriter(home / "state.db", home / "outbox", **bounds)
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


def failing(patch: pytest.MonkeyPatch, error: StoreError) -> None:
    def refuse(self: Store, batch: object, **options: object) -> Applied:
        raise error

    patch.setattr(Store, "apply", refuse)


async def test_records_are_acknowledged_when_they_are_in_the_database(tmp_path: Path) -> None:
    async with running(tmp_path) as writer:
        upto = await commit(writer, entries(1, 3))

        reader = apsw.Connection(str(tmp_path / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
        assert reader.execute("SELECT count(*) FROM messages").fetchall() == [(3,)]
        reader.close()
        assert upto == 3


async def test_a_record_alone_is_committed_without_company(tmp_path: Path) -> None:
    async with running(tmp_path) as writer:
        assert await commit(writer, [said(1)]) == 1


async def test_a_query_sees_what_was_submitted_before_it(tmp_path: Path) -> None:
    async with running(tmp_path) as writer:
        for seq in range(1, 30):
            writer.submit(A, [said(seq)], lambda upto: None)
            transcript = await ask(writer, TranscriptQuery(session=S), Transcript)
            assert len(transcript.messages) == seq


async def test_a_query_waits_for_all_that_had_piled_up_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    monkeypatch.setattr(ledger_standing, "RETRY_S", 0.01)
    count = 4 * ledger_mail.MAX_GROUP_RECORDS
    committed: list[int] = []
    async with running(tmp_path) as writer:
        with monkeypatch.context() as patch:
            failing(patch, StoreFull("no room"))
            for first in range(1, count + 1, 64):
                writer.submit(A, entries(first, first + 63), committed.append)
            await until(writer._mail.empty)
        await until(lambda: bool(committed))

        assert (await ask(writer, TotalsQuery(), Totals)).messages == count


async def test_queries_are_answered_in_order_and_each_after_its_own_writes(tmp_path: Path) -> None:
    seen: list[int] = []

    def note(reply: LedgerReply) -> None:
        assert isinstance(reply, Totals)
        seen.append(reply.messages)

    async with running(tmp_path) as writer:
        for seq in range(1, 51):
            writer.submit(A, [said(seq)], lambda upto: None)
            writer.query(TotalsQuery(), note)
        await ask(writer, LedgerStatsQuery(), LedgerStats)

    assert len(seen) == 50
    assert all(count >= at + 1 for at, count in enumerate(seen))
    assert seen == sorted(seen)


async def test_records_that_come_together_are_committed_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []
    apply = Store.apply

    def counting(self: Store, batch: list[object], **options: bool) -> Applied:
        groups.append(len(batch))
        return apply(self, batch, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "apply", counting)
    acknowledged: list[int] = []
    async with running(tmp_path) as writer:
        for seq in range(1, 1001):
            writer.submit(A, [said(seq)], acknowledged.append)
        await commit(writer, [])

    assert sum(groups) == 1000
    assert len(groups) < 100
    assert max(groups) <= ledger_mail.MAX_GROUP_RECORDS
    assert len(acknowledged) == 1000
    assert acknowledged == sorted(acknowledged)
    assert all(upto >= at + 1 for at, upto in enumerate(acknowledged))


async def test_a_record_waits_a_moment_for_company(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    monkeypatch.setattr(ledger_mail, "GROUP_S", 1.0)
    groups: list[int] = []
    apply = Store.apply

    def counting(self: Store, batch: list[object], **options: bool) -> Applied:
        groups.append(len(batch))
        return apply(self, batch, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "apply", counting)
    async with running(tmp_path) as writer:
        writer.submit(A, [said(1)], lambda upto: None)
        await until(writer._mail.empty)
        assert await commit(writer, entries(2, ledger_mail.GROUP_RECORDS)) == ledger_mail.GROUP_RECORDS

    assert groups == [ledger_mail.GROUP_RECORDS]


async def test_every_callback_runs_on_the_loop_and_one_that_raises_stops_no_other(tmp_path: Path) -> None:
    threads: list[int] = []
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["exception"]))

    def fail(upto: int) -> None:
        threads.append(threading.get_ident())
        raise KeyError(upto)

    async with running(tmp_path) as writer:
        writer.submit(A, [said(1)], fail)
        assert await commit(writer, [said(2)]) == 2

    assert threads == [threading.get_ident()]
    assert [type(error) for error in reported] == [KeyError]


async def test_a_resent_batch_is_acknowledged_again_and_kept_once(tmp_path: Path) -> None:
    async with running(tmp_path) as writer:
        await commit(writer, entries(1, 3))

        assert await commit(writer, entries(2, 5)) == 5

        stats = await ask(writer, LedgerStatsQuery(), LedgerStats)
        assert (stats.committed, stats.duplicates, stats.rows, stats.backlog) == (5, 2, 5, 0)


async def test_a_batch_that_leaves_a_gap_is_refused_and_not_taken(tmp_path: Path) -> None:
    async with running(tmp_path) as writer:
        await commit(writer, entries(1, 3))

        with pytest.raises(SequenceGap) as refused:
            writer.submit(A, entries(5, 6), lambda upto: None)

        assert (refused.value.expected, refused.value.got) == (4, 5)
        assert await commit(writer, entries(4, 6)) == 6


async def test_a_gap_is_known_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as writer:
        await commit(writer, entries(1, 3))

    async with running(tmp_path) as writer:
        with pytest.raises(SequenceGap):
            writer.submit(A, entries(5, 6), lambda upto: None)
        assert await commit(writer, entries(1, 6)) == 6


async def test_at_its_bound_the_ledger_hands_records_back_and_takes_them_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    committed: list[int] = []
    async with running(tmp_path, max_records=10, max_questions=1) as writer:
        with monkeypatch.context() as patch:
            failing(patch, StoreFull("no room"))
            writer.submit(A, entries(1, 10), committed.append)
            with pytest.raises(MailboxFull) as refused:
                writer.submit(A, entries(11, 11), committed.append)
            assert refused.value.message == entries(11, 11)
        await until(lambda: committed == [10])
        with pytest.raises(SequenceGap):  # what was sent after a refused batch must not overtake it
            writer.submit(A, entries(12, 12), committed.append)
        assert await commit(writer, entries(11, 12)) == 12

        writer.query(TotalsQuery(), lambda reply: None)
        with pytest.raises(MailboxFull):
            writer.query(TotalsQuery(), lambda reply: None)


async def test_while_the_disk_is_full_records_wait_and_reads_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    monkeypatch.setattr(ledger_standing, "RETRY_S", 0.01)
    committed: list[int] = []
    async with running(tmp_path) as writer:
        await commit(writer, entries(1, 2))
        with monkeypatch.context() as patch:
            failing(patch, StoreFull("no room left"))
            writer.submit(A, entries(3, 4), committed.append)

            failed = await ask(writer, TotalsQuery(), Failed)
            stats = await ask(writer, LedgerStatsQuery(), LedgerStats)

            assert failed == Failed(kind="StoreFull", message="no room left")
            assert (stats.fault, stats.backlog, stats.rows) == ("no room left", 2, 2)
            assert committed == []
        await until(lambda: committed == [4])
        assert (await ask(writer, TotalsQuery(), Totals)).messages == 4
        assert (await ask(writer, LedgerStatsQuery(), LedgerStats)).fault is None


async def test_a_replaced_database_is_a_lasting_fault_and_records_go_to_the_journal_beside_it(tmp_path: Path) -> None:
    async with running(tmp_path) as writer:
        await commit(writer, entries(1, 2))
        (tmp_path / "state.db").rename(tmp_path / "moved")
        (tmp_path / "state.db").write_bytes(b"another file")

        assert await commit(writer, entries(3, 4)) == 4

        assert (await ask(writer, TotalsQuery(), Failed)).kind == "StoreMoved"
        assert (await ask(writer, TotalsQuery(), Failed)).kind == "StoreMoved"
        stats = await ask(writer, LedgerStatsQuery(), LedgerStats)
        assert "was replaced" in (stats.fault or "")
        assert (stats.fault_kind, stats.is_fault_lasting) == ("StoreMoved", True)
        assert (stats.backlog, stats.committed, stats.journaled) == (0, 4, 2)

    assert (tmp_path / "state.db").read_bytes() == b"another file"


async def test_a_ledger_that_lost_its_database_does_not_take_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_standing, "RETRY_S", 0.0)
    async with running(tmp_path) as writer:
        (tmp_path / "state.db").rename(tmp_path / "moved")
        writer.submit(A, entries(1, 1), lambda upto: None)
        assert (await ask(writer, TotalsQuery(), Failed)).kind == "StoreMoved"

        (tmp_path / "moved").rename(tmp_path / "state.db")

        # Somebody may have written to it meanwhile: only a ledger that is started anew looks again.
        assert (await ask(writer, TotalsQuery(), Failed)).kind == "StoreMoved"


async def test_a_slow_query_is_given_up_and_commits_go_on(tmp_path: Path) -> None:
    async with running(tmp_path) as writer:
        for first in range(1, 6001, 1000):
            await commit(writer, entries(first, first + 999))
    impatient = LedgerWriter(tmp_path / "state.db", tmp_path / "outbox", query_deadline_s=0.0)
    await impatient.start()

    failed = await ask(impatient, TranscriptQuery(session=S), Failed)

    assert failed.kind == "AskTimeout"
    assert await commit(impatient, entries(6001, 6001)) == 6001
    await impatient.close()


async def test_the_spools_of_the_dead_are_adopted_at_the_start(tmp_path: Path, until: Until) -> None:
    (tmp_path / "outbox").mkdir()
    outbox = Outbox(tmp_path / "outbox", role="worker", incarnation=B)
    for entry in entries(1, 1200):
        outbox.append(*entry)
    outbox.close()

    async with running(tmp_path) as writer:
        await until(lambda: not outbox.path.exists())

        assert len((await ask(writer, TranscriptQuery(session=S), Transcript)).messages) == 1200


async def test_a_spool_that_is_orphaned_later_is_adopted_once_and_only_what_is_missing(
    tmp_path: Path, until: Until
) -> None:
    async with running(tmp_path) as writer:
        outbox = Outbox(tmp_path / "outbox", role="worker", incarnation=B)
        for entry in entries(1, 10):
            outbox.append(*entry)
        await commit(writer, entries(1, 4), B)
        outbox.close()

        writer.adopt_now()
        await until(lambda: not outbox.path.exists())

        stats = await ask(writer, LedgerStatsQuery(), LedgerStats)
        assert (stats.committed, stats.duplicates, stats.rows) == (10, 4, 10)
        assert await commit(writer, entries(5, 10), B) == 10  # what was still on its way from the dead


async def test_what_a_spool_lacks_at_its_beginning_does_not_hold_up_the_rest(tmp_path: Path, until: Until) -> None:
    async with running(tmp_path) as writer:
        await commit(writer, entries(1, 2), B)
        outbox = Outbox(tmp_path / "outbox", role="worker", incarnation=B)
        for entry in entries(5, 6):
            outbox.append(*entry)
        outbox.close()

        writer.adopt_now()
        await until(lambda: not outbox.path.exists())

        assert (await ask(writer, TotalsQuery(), Totals)).messages == 4


async def test_a_spool_is_kept_while_its_records_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    monkeypatch.setattr(ledger_standing, "RETRY_S", 0.01)
    (tmp_path / "outbox").mkdir()
    outbox = Outbox(tmp_path / "outbox", role="worker", incarnation=B)
    outbox.append(*said(1))
    outbox.close()
    with monkeypatch.context() as patch:
        failing(patch, StoreFull("no room"))
        writer = LedgerWriter(tmp_path / "state.db", tmp_path / "outbox")
        await writer.start()
        stats = await ask(writer, LedgerStatsQuery(), LedgerStats)
        while stats.fault is None:
            stats = await ask(writer, LedgerStatsQuery(), LedgerStats)
        assert outbox.path.exists()

    await until(lambda: not outbox.path.exists())

    assert (await ask(writer, TotalsQuery(), Totals)).messages == 1
    await writer.close()


async def test_closing_commits_what_waits_and_takes_nothing_more(tmp_path: Path) -> None:
    acknowledged: list[int] = []
    async with running(tmp_path) as writer:
        for seq in range(1, 501):
            writer.submit(A, [said(seq)], acknowledged.append)
        await writer.close()

        with pytest.raises(StoreError):
            writer.submit(A, [said(501)], acknowledged.append)
        with pytest.raises(StoreError):
            writer.query(TotalsQuery(), lambda reply: None)

    assert len(acknowledged) == 500
    assert not (tmp_path / "state.db-wal").exists()
    store = Store(tmp_path / "state.db")
    assert store.committed_upto(A) == 500
    store.close()


async def test_closing_with_a_full_disk_ends_and_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acknowledged: list[int] = []
    replies: list[LedgerReply] = []
    async with running(tmp_path) as writer:
        failing(monkeypatch, StoreFull("no room"))
        writer.submit(A, [said(1)], acknowledged.append)
        writer.query(TotalsQuery(), replies.append)

        await writer.close(timeout_s=1.0)

    assert acknowledged == []
    assert replies == [Failed(kind="StoreFull", message="no room")]


async def test_the_ledger_has_one_thread_and_it_ends(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    async with running(tmp_path) as writer:
        await commit(writer, [said(1)])
        assert [thread.name for thread in set(threading.enumerate()) - before] == ["ledger"]

    assert set(threading.enumerate()) <= before


async def test_a_second_ledger_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path) as writer:
        with pytest.raises(AlreadyRunning):
            await LedgerWriter(tmp_path / "state.db", tmp_path / "outbox").start()

        assert await commit(writer, [said(1)]) == 1


async def test_a_foreign_database_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"no database at all " * 100)

    with pytest.raises(ForeignDatabase):
        await LedgerWriter(tmp_path / "state.db", tmp_path / "outbox").start()


async def test_stats_say_how_long_commits_take(tmp_path: Path) -> None:
    async with running(tmp_path) as writer:
        assert (await ask(writer, LedgerStatsQuery(), LedgerStats)).commit_p50_ms is None
        await commit(writer, entries(1, 10))

        stats = await ask(writer, LedgerStatsQuery(), LedgerStats)

    assert stats.commit_p50_ms is not None
    assert stats.commit_p99_ms is not None
    assert 0 < stats.commit_p50_ms <= stats.commit_p99_ms
    assert stats.db_bytes > 0
    assert stats.wal_bytes > 0


async def test_a_bug_in_the_thread_ends_the_ledger_and_its_owner_learns_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outbox").mkdir()
    writer = LedgerWriter(tmp_path / "state.db", tmp_path / "outbox")
    await writer.start()

    def break_down(self: Store, batch: object, **options: object) -> Applied:
        raise ZeroDivisionError

    monkeypatch.setattr(Store, "apply", break_down)
    writer.submit(A, [said(1)], lambda upto: None)

    with pytest.raises(ZeroDivisionError):
        await writer.ended
    with pytest.raises(StoreError):
        writer.submit(A, [said(2)], lambda upto: None)
    Store(tmp_path / "state.db").close()
