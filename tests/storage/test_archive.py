"""state.db read beside its ledger: the same answers, nothing written; and calls in cells that prices can be put on."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.protocol.errors import ForeignDatabase, SchemaTooNew, StoreError, UsageError
from covey.protocol.ids import AgentId, CallId, Incarnation, SessionId
from covey.protocol.messages.ledger import (
    CallRecorded,
    CallStatus,
    LedgerRecord,
    MessageAppended,
    SearchQuery,
    SessionOpened,
    SessionsQuery,
    StoreQuery,
    TotalsQuery,
    TranscriptQuery,
    UsageBy,
    UsageQuery,
    UsageRows,
)
from covey.protocol.messages.pricing import PriceCell, PriceCells, PriceCellsQuery
from covey.protocol.transcript import Message, Role
from covey.protocol.usage import Usage
from covey.storage.archive import Archive
from covey.storage.store import Store

TOP, BELOW = SessionId("ses_top"), SessionId("ses_below")
HOUR_MS = 3_600_000
CALLS = 60


def opened(session: SessionId, parent: SessionId | None = None) -> SessionOpened:
    agent = AgentId(f"ag_{session}")
    return SessionOpened(session=session, agent=agent, goal="count geese", source="run", parent=parent, at_ms=1)


def hour(number: int) -> int:
    """When a call began: they are recorded in another order, for some take long."""
    return number * 7 % CALLS


def call(number: int) -> CallRecorded:
    return CallRecorded(
        call=CallId(f"call_{number}"),
        provider="p",
        base_url="http://p/v1",
        model=f"m{number % 3}",
        status=CallStatus.REFUSED if number % 10 == 9 else CallStatus.COMPLETED,
        started_at_ms=hour(number) * HOUR_MS,
        usage=None if number % 5 == 4 else Usage(input=number, output=2, cache_write=5, cache_write_1h=3, reasoning=1),
        session=(TOP, BELOW)[number % 2],
        cost_estimated_usd=0.25 if number % 4 == 0 else None,
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "state.db")
    said = MessageAppended(session=TOP, index=0, message=Message(role=Role.USER, content="count geese"), at_ms=1)
    records: list[LedgerRecord] = [opened(TOP), opened(BELOW, TOP), said, *(call(number) for number in range(CALLS))]
    store.apply([(Incarnation("inc"), seq, record) for seq, record in enumerate(records, 1)])
    yield store
    store.close()


@pytest.mark.parametrize(
    "query",
    [
        TranscriptQuery(session=TOP, rows=True),
        TotalsQuery(session=TOP, tree=True),
        SessionsQuery(),
        SearchQuery(text="geese"),
        *(UsageQuery(by=by) for by in UsageBy),
        *(PriceCellsQuery(by=by.value, limit=7) for by in UsageBy),
    ],
    ids=lambda query: f"{type(query).__name__} {getattr(query, 'by', '')}",
)
def test_an_archive_answers_as_the_store_does_while_that_is_open(store: Store, query: StoreQuery) -> None:
    with Archive(store.path) as archive:
        assert archive.answer(query, deadline_s=5) == store.answer(query, deadline_s=5)


def cells(archive: Archive, by: UsageBy, *, limit: int, since_ms: int = 0) -> list[PriceCell]:
    found: list[PriceCell] = []
    upto: int | None = 0
    while upto is not None:
        page = archive.answer(PriceCellsQuery(by=by.value, since_ms=since_ms, after=upto, limit=limit), deadline_s=5)
        assert isinstance(page, PriceCells)
        found += page.cells
        upto = page.upto
    return found


@pytest.mark.parametrize("limit", [1, 7, CALLS, 1000])
@pytest.mark.parametrize("since_ms", [0, 20 * HOUR_MS])
@pytest.mark.parametrize("by", UsageBy)
def test_cells_of_all_pages_are_what_the_sums_say(store: Store, by: UsageBy, since_ms: int, limit: int) -> None:
    with Archive(store.path) as archive:
        found = cells(archive, by, limit=limit, since_ms=since_ms)
        rows = archive.answer(UsageQuery(by=by, since_ms=since_ms), deadline_s=5)
    assert isinstance(rows, UsageRows)

    for row in rows.rows:
        mine = [one for one in found if one.key == row.key]
        assert sum(one.calls for one in mine) == row.sums.known_calls
        assert sum(one.input_tokens for one in mine) == row.sums.input_tokens
        assert sum(one.cache_write_tokens for one in mine) == row.sums.cache_write_tokens
    assert sum(one.cache_write_1h_tokens for one in found) == 3 * sum(one.calls for one in found)
    assert {one.key for one in found} == {row.key for row in rows.rows}


def test_cells_say_which_calls_have_a_cost_and_when_they_began(store: Store) -> None:
    with Archive(store.path) as archive:
        found = cells(archive, UsageBy.MODEL, limit=1000)

    assert {one.quarter * 900_000 // HOUR_MS for one in found if one.has_cost} == {
        hour(number) for number in range(CALLS) if number % 4 == 0 and number % 5 != 4 and number % 10 != 9
    }


def test_after_the_last_call_there_is_nothing(store: Store) -> None:
    with Archive(store.path) as archive:
        assert cells(archive, UsageBy.DAY, limit=10, since_ms=10**15) == []


def test_an_unknown_grouping_is_refused_with_the_known_ones(store: Store) -> None:
    with Archive(store.path) as archive, pytest.raises(UsageError, match="profile"):
        archive.answer(PriceCellsQuery(by="moon"), deadline_s=5)


@pytest.mark.parametrize(("version", "error"), [(1, StoreError), (999, SchemaTooNew)])
def test_another_schema_is_refused_with_what_to_do(store: Store, version: int, error: type[StoreError]) -> None:
    copy = store.path.with_name("copy.db")
    with sqlite3.connect(copy) as made:
        made.execute(f"PRAGMA application_id = {0x63766579}")
        made.execute(f"PRAGMA user_version = {version}")
    made.close()

    with pytest.raises(error, match="covey"):
        Archive(copy)


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as made:
        made.execute("CREATE TABLE t (a)")
    made.close()

    with pytest.raises(ForeignDatabase):
        Archive(tmp_path / "other.db")
