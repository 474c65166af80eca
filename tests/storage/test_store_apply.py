"""Batches of records: exactly once, in any order, and what each record means."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from covey.protocol.ids import AgentId, CallId, Incarnation, SessionId
from covey.protocol.messages.ledger import (
    CallRecorded,
    CallsQuery,
    CallStatus,
    LedgerRecord,
    MessageAppended,
    SessionEnded,
    SessionOpened,
    TotalsQuery,
    TranscriptQuery,
)
from covey.protocol.transcript import Message, Role, ToolCall
from covey.protocol.usage import Usage
from covey.storage.inbox import Delivery
from covey.storage.store import Store

A, B = Incarnation("inc_a"), Incarnation("inc_b")
S = SessionId("ses_1")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "state.db")
    yield store
    store.close()


def opened(session: SessionId = S, goal: str = "g") -> SessionOpened:
    return SessionOpened(session=session, agent=AgentId("ag_1"), goal=goal, source="run", at_ms=1)


def said(index: int, content: str = "hi", session: SessionId = S) -> MessageAppended:
    return MessageAppended(session=session, index=index, message=Message(role=Role.USER, content=content), at_ms=5)


def call(name: str, **changes: object) -> CallRecorded:
    fields: dict[str, object] = {
        "call": CallId(name),
        "provider": "zai",
        "base_url": "https://example.com/v1",
        "model": "m",
        "status": CallStatus.COMPLETED,
        "started_at_ms": 7,
    }
    return CallRecorded(**(fields | changes))  # type: ignore[arg-type]


def numbered(records: list[LedgerRecord], *, first: int = 1, sender: Incarnation = A) -> list[Delivery]:
    return [(sender, first + at, record) for at, record in enumerate(records)]


def texts(store: Store, session: SessionId = S) -> list[str]:
    return [message.content for message in store.transcript(TranscriptQuery(session=session)).messages]


def test_a_repeated_batch_is_counted_and_changes_nothing(store: Store) -> None:
    batch = numbered([opened(), said(0), call("c1"), said(1)])
    first = store.apply(batch)
    rows = store.rows()

    second = store.apply(batch)

    assert (first.new, first.duplicates) == (4, 0)
    assert (second.new, second.duplicates) == (0, 4)
    assert store.rows() == rows == 4


def test_what_was_committed_is_known_after_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    store.apply(numbered([said(0), said(1)]))
    store.close()

    store = Store(tmp_path / "state.db")

    assert store.senders() == {A: 2}
    assert store.apply(numbered([said(0, "other"), said(1), said(2)])).duplicates == 2
    assert texts(store) == ["hi", "hi", "hi"]
    store.close()


def test_records_beyond_a_gap_are_held_back(store: Store) -> None:
    store.apply(numbered([said(0)]))

    applied = store.apply(numbered([said(2)], first=3))

    assert (applied.new, applied.held_back, store.committed_upto(A)) == (0, 1, 1)
    assert store.apply(numbered([said(1), said(2)], first=2)).new == 2
    assert texts(store) == ["hi"] * 3


def test_a_gap_is_final_when_nothing_older_exists(store: Store) -> None:
    store.apply(numbered([said(0)]))

    store.apply(numbered([said(1)], first=9), is_complete=True)

    assert store.committed_upto(A) == 9


def test_an_unknown_sender_may_begin_anywhere(store: Store) -> None:
    store.apply(numbered([said(0)], first=500))

    assert store.committed_upto(A) == 500


def test_senders_are_numbered_apart(store: Store) -> None:
    store.apply([*numbered([said(0)]), *numbered([said(1)], sender=B)])

    assert store.senders() == {A: 1, B: 1}


def test_the_same_message_by_another_sender_changes_nothing(store: Store) -> None:
    store.apply(numbered([said(0, "first")]))

    store.apply(numbered([said(0, "second")], sender=B))

    assert texts(store) == ["first"]


def test_a_message_comes_back_as_it_was(store: Store) -> None:
    calls = (ToolCall(id="t1", name="run", arguments='{"a": "\\u0000"'), ToolCall(id="t2", name="x", arguments=""))
    messages = [
        Message(role=Role.SYSTEM, content="näh \x00 😀"),
        Message(role=Role.ASSISTANT, tool_calls=calls),
        Message(role=Role.TOOL, content="", tool_call_id="t1"),
    ]

    store.apply(
        numbered([MessageAppended(session=S, index=i, message=message, at_ms=0) for i, message in enumerate(messages)])
    )

    assert list(store.transcript(TranscriptQuery(session=S)).messages) == messages


def test_a_call_comes_back_as_it_was(store: Store) -> None:
    full = call(
        "c1",
        usage=Usage(input=1, output=2, cache_read=3, cache_write=4, reasoning=5),
        session=S,
        agent="ag_1",
        task="compress",
        model_answered="m2",
        response_id="r",
        waited_ms=1.5,
        first_byte_ms=2.5,
        duration_ms=3.5,
        fault="1302",
    )

    store.apply(numbered([full, call("c2")]))

    assert [row.record for row in store.calls(CallsQuery()).rows] == [full, call("c2")]


def test_the_first_end_of_a_session_counts(store: Store) -> None:
    store.apply(numbered([opened(), SessionEnded(session=S, outcome="done", result="42", at_ms=9)]))

    store.apply(numbered([SessionEnded(session=S, outcome="failed", error="x", at_ms=10)], sender=B))

    transcript = store.transcript(TranscriptQuery(session=S))
    assert (transcript.outcome, transcript.result, transcript.error) == ("done", "42", None)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["begin first", "end first"])
def test_a_session_is_one_row_whichever_record_of_it_comes_first(store: Store, order: tuple[int, int]) -> None:
    records: list[LedgerRecord] = [opened(goal="first"), SessionEnded(session=S, outcome="done", at_ms=9)]

    store.apply([(Incarnation(f"inc_{at}"), 1, records[at]) for at in order])
    store.apply(numbered([opened(goal="second")], sender=B))

    rows = store._database.execute("SELECT session, goal, outcome, ended_at_ms FROM sessions")
    assert rows == [(S, "first", "done", 9)]


@pytest.mark.parametrize(
    "usage",
    [
        pytest.param(Usage(input=-1, output=2), id="negative"),
        pytest.param(Usage(input=1, output=1 << 80), id="beyond 64 bits"),
        pytest.param(Usage(input=1 << 62, output=1), id="absurd"),
    ],
)
def test_a_usage_that_cannot_be_is_unknown(store: Store, usage: Usage) -> None:
    store.apply(numbered([call("c1", usage=usage), call("c2", usage=Usage(input=1, output=1))]))

    totals = store.totals(TotalsQuery())
    assert (totals.calls, totals.unknown_calls, totals.prompt_tokens) == (2, 1, 1)


def test_a_record_that_fits_no_column_is_put_aside_and_holds_up_no_other(store: Store) -> None:
    batch = numbered([said(0), said(1 << 70), call("c1", session="\ud800"), said(1)])

    applied = store.apply(batch)

    assert (applied.new, applied.unstorable, store.committed_upto(A)) == (4, 2, 4)
    assert texts(store) == ["hi", "hi"]
    kept = store._database.execute("SELECT incarnation, seq, problem FROM unstorable ORDER BY id")
    assert kept == [(A, 2, "OverflowError"), (A, 3, "UnicodeEncodeError")]
    assert store.apply(batch).duplicates == 4


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), counts=st.lists(st.integers(0, 30), min_size=1, max_size=3))
def test_replay_of_any_prefixes_leaves_every_record_once(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, counts: list[int]
) -> None:
    store = Store(tmp_path_factory.mktemp("replay") / "state.db")
    senders = {
        Incarnation(f"inc_{at}"): [
            call(f"c{at}_{n}") if n % 2 else said(n, session=SessionId(f"s{at}")) for n in range(count)
        ]
        for at, count in enumerate(counts)
    }
    sent = dict.fromkeys(senders, 0)

    while any(sent[sender] < len(records) for sender, records in senders.items()):
        batch: list[Delivery] = []
        for sender, records in senders.items():
            start = data.draw(st.integers(0, sent[sender]), label="resend from")
            end = data.draw(st.integers(sent[sender], len(records)), label="up to")
            batch += numbered(list(records[start:end]), first=start + 1, sender=sender)
            sent[sender] = end
        store.apply(batch)
        if data.draw(st.booleans(), label="restart"):
            path = store.path
            store.close()
            store = Store(path)

    assert store.senders() == {sender: len(records) for sender, records in senders.items() if records}
    assert store.rows() == sum(counts)
    assert store.totals(TotalsQuery()).calls == sum(count // 2 for count in counts)
    store.close()
