"""Exports: every row once, in order, over pages; and a look at state.db that leaves it as it is."""

from __future__ import annotations

import time
from pathlib import Path

import apsw
import pytest

from covey.protocol.errors import ForeignDatabase, StoreError, UsageError
from covey.protocol.ids import AgentId, CallId, Incarnation, SessionId
from covey.protocol.messages.ledger import CallRecorded, CallStatus, LedgerRecord, MessageAppended, SessionOpened
from covey.protocol.settings import Dialect
from covey.protocol.transcript import Message, Role, Signed, ToolCall
from covey.storage.checkup import check, stats
from covey.storage.exporting import PAGE, Export
from covey.storage.readonly import Reader
from covey.storage.store import Store

MANY = 2 * PAGE + 3


def call(name: str, session: str | None) -> CallRecorded:
    return CallRecorded(
        call=CallId(name),
        provider="zai",
        base_url="https://z",
        model="m",
        status=CallStatus.COMPLETED,
        started_at_ms=7,
        session=SessionId(session) if session else None,
    )


def opened(name: str) -> SessionOpened:
    return SessionOpened(session=SessionId(name), agent=AgentId("ag_a"), goal=f"goal of {name}", source="t", at_ms=5)


def said(session: str, index: int, message: Message) -> MessageAppended:
    return MessageAppended(session=SessionId(session), index=index, message=message, at_ms=index)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    block = Signed(dialect=Dialect.ANTHROPIC, model="m", data='{"type":"thinking"}')
    asks = Message(role=Role.ASSISTANT, tool_calls=(ToolCall(id="c", name="look", arguments="{}"),), signed=(block,))
    records: list[LedgerRecord] = [opened("ses_a"), opened("ses_b"), said("ses_b", 0, asks)]
    records += [said("ses_a", at, Message(role=Role.USER, content=f"{at}")) for at in reversed(range(MANY))]
    records += [call("call_1", "ses_a"), call("call_2", None), call("call_3", "ses_a")]
    store = Store(tmp_path / "state.db")
    store.apply([(Incarnation("sender"), number, record) for number, record in enumerate(records, 1)])
    store.close()
    return tmp_path / "state.db"


def test_messages_come_by_their_index_over_all_pages(database: Path) -> None:
    export = Export(database)

    found = [message.columns["idx"] for message in export.messages("ses_a")]

    export.close()
    assert found == list(range(MANY))


def test_sessions_have_their_calls_and_the_rest_belongs_to_none(database: Path) -> None:
    export = Export(database)

    names = [session.columns["session"] for session in export.sessions(None)]
    calls = [[one.columns["call"] for one in export.calls(session)] for session in ("ses_a", "ses_b", None)]

    export.close()
    assert names == ["ses_a", "ses_b"]
    assert calls == [["call_1", "call_3"], [], ["call_2"]]


def test_json_in_a_column_is_json(database: Path) -> None:
    export = Export(database)

    (message,) = export.messages("ses_b")

    export.close()
    assert message.columns["tool_calls"] == [{"id": "c", "name": "look", "arguments": "{}"}]
    assert message.columns["signed"] == [{"dialect": "anthropic", "model": "m", "data": '{"type":"thinking"}'}]
    assert "id" not in message.columns


def test_a_session_that_nobody_knows_is_the_caller_s_fault(database: Path) -> None:
    export = Export(database)

    with pytest.raises(UsageError, match="ses_x"):
        list(export.sessions(["ses_b", "ses_x"]))

    export.close()


def test_what_is_asked_for_is_read_while_the_owner_goes_on_writing(database: Path) -> None:
    store = Store(database)
    export = Export(database)
    messages = export.messages("ses_a")
    next(messages)

    store.apply([(Incarnation("later"), 1, said("ses_a", MANY, Message(role=Role.USER, content="new")))])
    rest = [message.columns["content"] for message in messages]
    # Nothing that reads is open between two pages: all of the WAL can be moved.
    deadline = time.monotonic() + 20
    while store.wal_bytes():
        store.maintain(idle_s=10.0, since_last_s=10.0)
        assert time.monotonic() < deadline

    export.close()
    store.close()
    assert rest[-1] == "new"


def test_a_check_with_an_owner_tells_who_that_is(database: Path) -> None:
    store = Store(database)

    found = check(database, is_full=True, deadline_s=None)

    assert store.inspect() == 0
    store.close()
    assert (found.is_sound, found.is_whole, found.findings) == (True, True, ())
    assert found.owner_pid is not None
    assert found.user_version == found.known_version
    assert "messages_fts" in found.full_text


def test_a_check_that_has_no_time_says_so(database: Path) -> None:
    found = check(database, is_full=True, deadline_s=-1.0)

    assert not found.is_whole
    assert found.findings == ()


def test_what_is_no_database_of_ours_is_told_apart_from_a_damaged_one(tmp_path: Path, database: Path) -> None:
    other = apsw.Connection(str(tmp_path / "other.db"))
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    (tmp_path / "noise.db").write_bytes(b"noise" * 4000)

    with pytest.raises(ForeignDatabase):
        check(tmp_path / "other.db", is_full=False, deadline_s=None)
    with pytest.raises(ForeignDatabase):
        stats(tmp_path / "other.db")
    with pytest.raises(StoreError, match="does not exist"):
        check(tmp_path / "never.db", is_full=False, deadline_s=None)
    assert not check(tmp_path / "noise.db", is_full=False, deadline_s=None).is_sound


def test_stats_count_and_name_the_largest(database: Path) -> None:
    found = stats(database)

    assert (found.rows["sessions"], found.rows["messages"], found.rows["calls"]) == (2, MANY + 1, 3)
    assert [(one.session, one.messages, one.goal) for one in found.largest] == [
        ("ses_a", MANY, "goal of ses_a"),
        ("ses_b", 1, "goal of ses_b"),
    ]
    assert (found.sessions.oldest_ms, found.calls.newest_ms) == (5, 7)


@pytest.mark.parametrize("statement", ["DELETE FROM meta", "CREATE TABLE x (y)", "PRAGMA user_version = 1"])
def test_a_reader_cannot_write(database: Path, statement: str) -> None:
    with Reader(database) as reader:
        reader.forbid_writes()
        with pytest.raises(StoreError):
            reader.rows(statement)
