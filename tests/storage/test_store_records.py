"""What the rarer records mean: routes of sessions, compaction, generations, swarms, leases of turns, dead letters."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import apsw
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from covey.protocol.ids import AgentId, CallId, Incarnation, SessionId, SwarmId
from covey.protocol.messages.ledger import (
    Append,
    CallRecorded,
    CallsQuery,
    CallStatus,
    DeadLetter,
    DeadLetters,
    DeadLettersQuery,
    Generation,
    GenerationAdvanced,
    GenerationQuery,
    LedgerRecord,
    LedgerRequest,
    MessageAppended,
    MessagesCompacted,
    SessionOpened,
    SessionQuery,
    Sessions,
    SessionTouched,
    StoreQuery,
    SwarmEnded,
    SwarmOpened,
    SwarmRow,
    Swarms,
    SwarmsQuery,
    TaskEnded,
    TaskRow,
    Tasks,
    TasksQuery,
    TaskStarted,
    TranscriptQuery,
    TurnLease,
    TurnLeased,
    TurnLeaseQuery,
    TurnReleased,
)
from covey.protocol.messages.tokens import Route, RouteChosen
from covey.protocol.settings import Dialect
from covey.protocol.transcript import Message, Role, Signed
from covey.protocol.usage import Usage
from covey.storage.store import Store

S = SessionId("s")
W = SwarmId("swarm_1")
T = TypeVar("T")
_lives = itertools.count()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(tmp_path_factory.mktemp("records") / "state.db")
    yield store
    store.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "state.db")
    yield store
    store.close()


def keep(store: Store, *records: LedgerRecord, apart: bool = False) -> None:
    """Commit the records in one batch, or each in its own, by a sender nobody has heard of."""
    sender = Incarnation(f"inc_{next(_lives)}")
    batch = [(sender, at, record) for at, record in enumerate(records, start=1)]
    for part in [[delivery] for delivery in batch] if apart else [batch]:
        store.apply(part)


def ask(store: Store, query: StoreQuery, kind: type[T]) -> T:
    reply = store.answer(query, deadline_s=9.0)
    assert isinstance(reply, kind)
    return reply


def said(index: int, **more: object) -> MessageAppended:
    message = Message(role=Role.USER, content=str(index))
    return MessageAppended(session=S, index=index, message=message, at_ms=-index, **more)  # type: ignore[arg-type]


def texts(store: Store, **more: bool) -> list[str]:
    return [message.content for message in store.transcript(TranscriptQuery(session=S, **more)).messages]


# --- messages --------------------------------------------------------------------------------------------------------


def test_a_message_is_kept_with_all_that_is_said_of_it(store: Store) -> None:
    keep(
        store,
        said(0, api_content="0 and the file", display_kind="hidden", display_metadata='{"a":1}'),
        said(1, api_content="1"),
    )

    first, second = store.transcript(TranscriptQuery(session=S, rows=True)).rows

    assert (first.api_content, first.display_kind, first.display_metadata) == ("0 and the file", "hidden", '{"a":1}')
    assert (first.message.content, first.at_ms, second.at_ms) == ("0", 0, -1)
    assert second.api_content is None


def test_signed_blocks_of_an_answer_are_there_after_the_store_was_opened_anew(tmp_path: Path) -> None:
    block = Signed(dialect=Dialect.ANTHROPIC, model="claude", data='{"type":"thinking","signature":"c2ln"}')
    answer = Message(role=Role.ASSISTANT, content="Yes.", signed=(block, block))
    store = Store(tmp_path / "state.db")
    keep(store, msgspec.structs.replace(said(0), message=answer), said(1))
    store.close()

    store = Store(tmp_path / "state.db")
    first, second = store.transcript(TranscriptQuery(session=S)).messages
    store.close()

    assert first == answer
    assert second.signed == ()


@pytest.mark.parametrize("apart", [True, False], ids=["one by one", "at once"])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_a_summary_takes_the_place_of_what_it_stands_for_in_whatever_order_it_is_told(
    store: Store, order: tuple[int, ...], apart: bool
) -> None:
    told: list[list[LedgerRecord]] = [
        [said(index) for index in range(6)],
        [said(6)],
        [MessagesCompacted(session=S, first=1, upto=3, summary=6, at_ms=0)],
    ]

    keep(store, *(record for at in order for record in told[at]), apart=apart)

    transcript = store.transcript(TranscriptQuery(session=S))
    assert [message.content for message in transcript.messages] == ["0", "6", "4", "5"]
    assert transcript.next_index == 7
    assert texts(store, compacted=True) == [str(index) for index in range(7)]


def test_a_summary_is_summed_up_in_its_turn(store: Store) -> None:
    keep(store, *(said(index) for index in range(8)), MessagesCompacted(session=S, first=1, upto=3, summary=6, at_ms=0))

    keep(store, MessagesCompacted(session=S, first=1, upto=6, summary=7, at_ms=0), said(8))

    assert texts(store) == ["0", "7", "8"]
    rows = store.transcript(TranscriptQuery(session=S, rows=True, compacted=True)).rows
    assert [row.index for row in rows if row.compacted] == [1, 2, 3, 4, 5, 6]


def test_a_compaction_that_is_repeated_changes_nothing(store: Store) -> None:
    compacted = MessagesCompacted(session=S, first=0, upto=1, summary=2, at_ms=0)
    keep(store, said(0), said(1), said(2), compacted)

    keep(store, msgspec.structs.replace(compacted, summary=1), said(3))

    assert texts(store) == ["2", "3"]


# --- sessions --------------------------------------------------------------------------------------------------------


def opened(**more: object) -> SessionOpened:
    fields: dict[str, object] = {"session": S, "agent": AgentId("a"), "goal": "g", "source": "run", "at_ms": 1}
    return SessionOpened(**(fields | more))  # type: ignore[arg-type]


def test_a_session_is_kept_with_all_that_is_said_of_it(store: Store) -> None:
    keep(
        store,
        opened(provider="zai", model="m", base_url="u", profile="work", swarm="w", conversation="c", parent="p"),
        SessionTouched(session=S, doing="reading", at_ms=5),
        said(0),
        said(1),
    )

    (row,) = ask(store, SessionQuery(session=S), Sessions).rows

    assert (row.provider, row.model, row.base_url, row.profile, row.swarm) == ("zai", "m", "u", "work", "w")
    assert (row.conversation, row.parent, row.doing, row.messages, row.active_at_ms) == ("c", "p", "reading", 2, -1)
    assert ask(store, SessionQuery(session=SessionId("none")), Sessions).rows == ()


def test_the_route_of_a_session_is_the_one_that_was_chosen_last(store: Store) -> None:
    keep(store, opened(provider="zai", model="m"), RouteChosen(session=S, route=Route(model="m2"), at_ms=2))

    (row,) = ask(store, SessionQuery(session=S), Sessions).rows

    assert (row.provider, row.model) == ("zai", "m2")


# --- calls -----------------------------------------------------------------------------------------------------------


def call(**more: object) -> CallRecorded:
    fields: dict[str, object] = {
        "call": CallId("c"),
        "provider": "p",
        "base_url": "u",
        "model": "m",
        "status": CallStatus.COMPLETED,
        "started_at_ms": 1,
    }
    return CallRecorded(**(fields | more))  # type: ignore[arg-type]


def test_all_that_is_new_of_a_call_comes_back_as_it_was(store: Store) -> None:
    full = call(
        usage=Usage(input=1, output=2, cache_write=3, cache_write_1h=2, is_adjusted=True, raw="{}"),
        session=S,
        fault_code="1302",
        cost_estimated_usd=0.000123456,
        cost_actual_usd=0.0,
        parent=SessionId("p"),
        parent_agent=AgentId("b"),
        profile="work",
    )

    keep(store, full)

    assert [row.record for row in store.calls(CallsQuery()).rows] == [full]


@pytest.mark.parametrize("cost", [-0.1, float("nan"), float("inf"), 1e30])
def test_a_cost_that_cannot_be_is_unknown(store: Store, cost: float) -> None:
    keep(store, call(cost_actual_usd=cost))

    (row,) = store.calls(CallsQuery()).rows
    assert row.record.cost_actual_usd is None


# --- generations -----------------------------------------------------------------------------------------------------


def began_anew(session: str | None, source: str = "chat", conversation: str = "c") -> GenerationAdvanced:
    return GenerationAdvanced(
        source=source,
        conversation=conversation,
        session=SessionId(session) if session else None,
        reason="reset",
        at_ms=0,
    )


def generation(store: Store, source: str = "chat", conversation: str = "c") -> int:
    return ask(store, GenerationQuery(source=source, conversation=conversation), Generation).generation


def test_a_conversation_that_was_never_begun_anew_has_generation_0(store: Store) -> None:
    assert generation(store) == 0


def test_the_same_end_said_twice_is_one_step(store: Store) -> None:
    keep(store, began_anew("s1"), began_anew("s1"))
    keep(store, began_anew("s1"))
    keep(store, began_anew("s2"), began_anew(None), began_anew(None))

    assert generation(store) == 4
    assert generation(store, source="other") == 0


_STEPS = st.tuples(st.sampled_from(["c", "d"]), st.sampled_from([None, "s1", "s2"]))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(_STEPS, max_size=6), max_size=5))
def test_a_generation_only_rises_and_by_the_steps_that_were_told(
    shared: Store, batches: list[list[tuple[str, str | None]]]
) -> None:
    source = f"chat-{next(_lives)}"
    expected, last = {"c": 0, "d": 0}, {"c": "", "d": ""}
    for batch in batches:
        before = {name: generation(shared, source, name) for name in expected}

        keep(shared, *(began_anew(session, source, name) for name, session in batch))

        for name, session in batch:
            expected[name] += session is None or session != last[name]
            last[name] = session or ""
        after = {name: generation(shared, source, name) for name in expected}
        assert after == expected
        assert all(after[name] >= before[name] for name in expected)


@pytest.mark.parametrize(
    "statement",
    ["UPDATE conversations SET generation = 0", "UPDATE conversations SET reason = 'x'", "DELETE FROM conversations"],
)
def test_no_statement_takes_a_generation_back(store: Store, statement: str) -> None:
    keep(store, began_anew("s1"))

    with pytest.raises(apsw.ConstraintError):
        store._database.execute(statement)

    assert generation(store) == 1


# --- swarms ----------------------------------------------------------------------------------------------------------

_SWARM: list[LedgerRecord] = [
    SwarmOpened(swarm=W, source="swarm", tasks=3, name="f.yaml", profile="work", at_ms=1),
    TaskStarted(swarm=W, index=0, goal="one", session=S, agent=AgentId("a"), at_ms=2),
    TaskStarted(swarm=W, index=1, goal="two", at_ms=2),
    TaskEnded(swarm=W, index=1, outcome="failed", error="no room", at_ms=3),
    TaskEnded(swarm=W, index=0, outcome="done", at_ms=4),
    SwarmEnded(swarm=W, outcome="failed", at_ms=5),
]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(range(len(_SWARM))), apart=st.booleans(), again=st.integers(0, 5))
def test_a_swarm_is_the_same_in_whatever_order_it_is_told(
    shared: Store, order: list[int], apart: bool, again: int
) -> None:
    swarm = SwarmId(f"swarm_{next(_lives)}")
    told = [msgspec.structs.replace(_SWARM[at], swarm=swarm) for at in [*order, again]]

    keep(shared, *told, apart=apart)

    row = ask(shared, SwarmsQuery(limit=1), Swarms).rows[0]
    assert row == SwarmRow(
        row=row.row,
        swarm=swarm,
        source="swarm",
        name="f.yaml",
        tasks=3,
        started=2,
        ended=2,
        done=1,
        profile="work",
        opened_at_ms=1,
        outcome="failed",
        ended_at_ms=5,
    )
    assert ask(shared, TasksQuery(swarm=swarm), Tasks).rows == (
        TaskRow(index=0, goal="one", session=S, agent=AgentId("a"), started_at_ms=2, outcome="done", ended_at_ms=4),
        TaskRow(index=1, goal="two", started_at_ms=2, outcome="failed", error="no room", ended_at_ms=3),
    )


def test_swarms_and_tasks_come_in_pages(store: Store) -> None:
    for at in range(3):
        keep(store, SwarmOpened(swarm=SwarmId(f"w{at}"), source="s", tasks=1, at_ms=-at))
    keep(store, *(TaskStarted(swarm=W, index=at, goal=str(at), at_ms=0) for at in range(5)))

    first = ask(store, SwarmsQuery(limit=2), Swarms).rows
    rest = ask(store, SwarmsQuery(limit=2, before=first[-1].row), Swarms).rows

    assert [row.swarm for row in (*first, *rest)] == ["w2", "w1", "w0"]
    assert [row.index for row in ask(store, TasksQuery(swarm=W, after=2, limit=9), Tasks).rows] == [3, 4]


# --- leases of turns -------------------------------------------------------------------------------------------------


def leased(lease: str, *, at_ms: int = 0, until_ms: int = 100) -> TurnLeased:
    return TurnLeased(session=S, lease=lease, holder=f"holder of {lease}", until_ms=until_ms, at_ms=at_ms)


def released(lease: str) -> TurnReleased:
    return TurnReleased(session=S, lease=lease, at_ms=0)


@pytest.mark.parametrize("apart", [True, False], ids=["one by one", "at once"])
@pytest.mark.parametrize(
    ("told", "holder"),
    [
        pytest.param([leased("a")], "a", id="the first one gets it"),
        pytest.param([leased("a"), leased("b")], "a", id="another one does not"),
        pytest.param([leased("a"), released("a")], None, id="nobody has it after its release"),
        pytest.param([leased("a"), released("a"), leased("b")], "b", id="a release makes room"),
        pytest.param([leased("a"), released("b"), leased("b")], "a", id="only the holder releases"),
        pytest.param([leased("a"), leased("b", at_ms=100)], "b", id="one that is over gives way"),
        pytest.param(
            [leased("a"), leased("a", until_ms=200), leased("b", at_ms=150)], "a", id="a renewed one does not"
        ),
        pytest.param([leased("a"), released("a"), leased("a")], None, id="a late renewal does not revive it"),
        pytest.param([leased("a"), released("a"), leased("b"), released("a")], "b", id="a late release frees nothing"),
    ],
)
def test_one_holder_has_the_turn(store: Store, told: list[LedgerRecord], holder: str | None, apart: bool) -> None:
    keep(store, *told, apart=apart)

    assert ask(store, TurnLeaseQuery(session=S), TurnLease).lease == holder


# --- dead letters ----------------------------------------------------------------------------------------------------


def test_dead_letters_are_kept_in_their_order_and_cut(store: Store) -> None:
    letters = [
        DeadLetter(receiver="agent", kind="Stop", reason="it is gone", body="x" * 5000, at_ms=-at) for at in (0, 1)
    ]

    keep(store, *letters)

    rows = ask(store, DeadLettersQuery(), DeadLetters).rows
    assert [row.letter for row in rows] == [msgspec.structs.replace(letter, body="x" * 4096) for letter in letters]
    assert [row.row for row in ask(store, DeadLettersQuery(after=1), DeadLetters).rows] == [2]


# --- records of earlier versions -------------------------------------------------------------------------------------

_EARLIER = [
    {"type": "session_opened", "session": "s", "agent": "a", "goal": "g", "source": "run", "at_ms": 1},
    {"type": "message_appended", "session": "s", "index": 0, "message": {"role": "user", "content": "hi"}, "at_ms": 2},
    {
        "type": "call_recorded",
        "call": "c",
        "provider": "p",
        "base_url": "u",
        "model": "m",
        "status": "completed",
        "started_at_ms": 3,
        "usage": {"input": 1, "output": 2},
        "fault": "x",
    },
    {"type": "session_ended", "session": "s", "outcome": "done", "at_ms": 4},
    {"type": "child_restarted", "child": "w", "incarnation": "i", "reason": "r", "at_ms": 5},
]


def test_records_that_an_earlier_version_left_in_a_spool_are_read_and_kept(store: Store) -> None:
    request = {"type": "append", "first": 1, "records": _EARLIER}

    append = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=LedgerRequest)

    assert isinstance(append, Append)
    keep(store, *append.records)
    assert (texts(store), store.rows()) == (["hi"], 3)


@pytest.mark.parametrize(
    "record", [*_SWARM, leased("a"), released("a"), began_anew("s")], ids=lambda r: type(r).__name__
)
def test_a_new_record_survives_the_wire(record: LedgerRecord) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=LedgerRecord) == record
