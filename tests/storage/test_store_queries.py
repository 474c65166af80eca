"""What is read: transcripts, totals, and through which index."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.protocol.ids import CallId, Incarnation, SessionId
from covey.protocol.messages.ledger import (
    CallRecorded,
    CallsQuery,
    CallStatus,
    LedgerRecord,
    MessageAppended,
    Totals,
    TotalsQuery,
    Transcript,
    TranscriptQuery,
)
from covey.protocol.transcript import Message, Role
from covey.protocol.usage import Usage
from covey.storage.database import TooSlow
from covey.storage.store import Store

A = Incarnation("inc_a")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "state.db")
    yield store
    store.close()


def keep(store: Store, *records: LedgerRecord) -> None:
    first = store.committed_upto(A) + 1
    store.apply([(A, first + at, record) for at, record in enumerate(records)])


def said(index: int, *, session: str = "s") -> MessageAppended:
    message = Message(role=Role.USER, content=str(index))
    return MessageAppended(session=SessionId(session), index=index, message=message, at_ms=-index)


def call(name: str, status: CallStatus, usage: Usage | None = None, *, session: str | None = None) -> CallRecorded:
    return CallRecorded(
        call=CallId(name),
        provider="p",
        base_url="u",
        model="m",
        status=status,
        started_at_ms=0,
        usage=usage,
        session=SessionId(session) if session else None,
    )


def test_an_unknown_session_has_an_empty_transcript(store: Store) -> None:
    assert store.transcript(TranscriptQuery(session=SessionId("none"))) == Transcript()


def test_a_transcript_ends_before_the_first_gap(store: Store) -> None:
    keep(store, said(3), said(1), said(0), said(-1), said(0, session="other"))

    messages = store.transcript(TranscriptQuery(session=SessionId("s"))).messages

    assert [message.content for message in messages] == ["0", "1"]


def test_totals_sum_what_is_known_and_count_what_is_not(store: Store) -> None:
    keep(
        store,
        call(
            "1", CallStatus.COMPLETED, Usage(input=10, output=20, cache_read=1, cache_write=2, reasoning=3), session="s"
        ),
        call("2", CallStatus.CANCELLED, Usage(input=0, output=0)),
        call("3", CallStatus.TRUNCATED, session="s"),
        call("4", CallStatus.LOST),
        call("5", CallStatus.REFUSED, session="s"),
        said(0),
    )

    assert store.totals(TotalsQuery()) == Totals(
        calls=4,
        unknown_calls=2,
        refused_calls=1,
        prompt_tokens=13,
        completion_tokens=23,
        cache_read_tokens=1,
        cache_write_tokens=2,
        reasoning_tokens=3,
        messages=1,
    )
    assert store.totals(TotalsQuery(session=SessionId("s"))) == Totals(
        calls=2,
        unknown_calls=1,
        refused_calls=1,
        prompt_tokens=13,
        completion_tokens=23,
        cache_read_tokens=1,
        cache_write_tokens=2,
        reasoning_tokens=3,
        messages=1,
    )


def test_totals_of_nothing_are_zero(store: Store) -> None:
    zero = Totals(calls=0, unknown_calls=0, refused_calls=0, prompt_tokens=0, completion_tokens=0)

    assert store.totals(TotalsQuery()) == store.totals(TotalsQuery(session=SessionId("s"))) == zero


def test_the_number_of_rows_is_what_the_tables_hold_after_conflicts(store: Store) -> None:
    for _ in range(3):
        keep(store, said(0), said(1), call("1", CallStatus.LOST), call("1", CallStatus.FAILED), said(1))

    counted = sum(
        store._database.number(f"SELECT count(*) FROM {table}") for table in ("sessions", "messages", "calls")
    )
    assert store.rows() == counted == 3


def test_a_query_is_stopped_at_its_deadline_and_the_next_one_is_not(store: Store) -> None:
    keep(store, *(said(index) for index in range(3000)))

    with pytest.raises(TooSlow):
        store.answer(TranscriptQuery(session=SessionId("s")), deadline_s=-1.0)

    assert store.totals(TotalsQuery()).messages == 3000


def test_calls_are_found_by_row(store: Store) -> None:
    keep(store, *(call(str(at), CallStatus.FAILED) for at in range(5)))

    rows = store.calls(CallsQuery(after=2, limit=2)).rows

    assert [row.record.call for row in rows] == ["2", "3"]


def test_calls_of_a_session_are_paged_in_their_order(store: Store) -> None:
    keep(store, *(call(str(at), CallStatus.FAILED, session="s" if at % 2 else "other") for at in range(9)))

    first = store.calls(CallsQuery(session=SessionId("s"), limit=3)).rows
    rest = store.calls(CallsQuery(session=SessionId("s"), limit=3, after=first[-1].row)).rows

    assert [row.record.call for row in (*first, *rest)] == ["1", "3", "5", "7"]


def test_totals_of_a_session_nobody_opened_count_its_calls_alone(store: Store) -> None:
    keep(store, call("1", CallStatus.COMPLETED, Usage(input=1, output=2), session="s"), call("2", CallStatus.LOST))

    totals = store.totals(TotalsQuery(session=SessionId("s"), tree=True))

    assert (totals.calls, totals.known_calls, totals.prompt_tokens, totals.sessions) == (1, 1, 1, 0)
