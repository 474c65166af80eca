"""A hermes-agent database brought over: what comes, what does not, and that a second time changes nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.protocol.errors import StoreError
from covey.protocol.ids import Incarnation, SessionId
from covey.protocol.messages.ledger import LedgerRecord, TotalsQuery, TranscriptQuery
from covey.protocol.transcript import Role, ToolCall
from covey.storage.hermes import Hermes
from covey.storage.hermes_import import Counted, Ours, records
from covey.storage.hermes_words import CUT, plain, tool_calls
from covey.storage.store import Store

SESSIONS = (
    "id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, model TEXT, model_config TEXT, system_prompt TEXT,"
    " parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL, end_reason TEXT, title TEXT,"
    " input_tokens INTEGER DEFAULT 0, output_tokens INTEGER DEFAULT 0, cache_read_tokens INTEGER DEFAULT 0,"
    " cache_write_tokens INTEGER DEFAULT 0, reasoning_tokens INTEGER DEFAULT 0, billing_provider TEXT,"
    " billing_base_url TEXT, estimated_cost_usd REAL, actual_cost_usd REAL, api_call_count INTEGER DEFAULT 0"
)
MESSAGES = (
    "id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT,"
    " tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL, reasoning TEXT,"
    " active INTEGER NOT NULL DEFAULT 1, compacted INTEGER NOT NULL DEFAULT 0, api_content TEXT"
)
USAGE = (
    "session_id TEXT NOT NULL, model TEXT NOT NULL, billing_provider TEXT NOT NULL DEFAULT '',"
    " billing_base_url TEXT NOT NULL DEFAULT '', billing_mode TEXT NOT NULL DEFAULT '', task TEXT NOT NULL DEFAULT '',"
    " api_call_count INTEGER NOT NULL DEFAULT 0, input_tokens INTEGER NOT NULL DEFAULT 0,"
    " output_tokens INTEGER NOT NULL DEFAULT 0, cache_read_tokens INTEGER NOT NULL DEFAULT 0,"
    " cache_write_tokens INTEGER NOT NULL DEFAULT 0, reasoning_tokens INTEGER NOT NULL DEFAULT 0,"
    " estimated_cost_usd REAL NOT NULL DEFAULT 0, actual_cost_usd REAL NOT NULL DEFAULT 0, first_seen REAL,"
    " PRIMARY KEY (session_id, model, billing_provider, billing_base_url, billing_mode, task)"
)
T = 1_750_000_000.5


class Fixture:
    """A database with the tables and names of hermes-agent 0.19, as far as they matter here."""

    def __init__(self, path: Path, *, sessions: str = SESSIONS, messages: str = MESSAGES, usage: str = USAGE) -> None:
        self.path = path
        self._connection = apsw.Connection(str(path))
        self.run("PRAGMA journal_mode = WAL")
        self.run("CREATE TABLE schema_version (version INTEGER NOT NULL)")
        self.run("INSERT INTO schema_version VALUES (22)")
        self.run(f"CREATE TABLE sessions ({sessions})")
        self.run(f"CREATE TABLE messages ({messages})")
        if usage:
            self.run(f"CREATE TABLE session_model_usage ({usage})")

    def run(self, sql: str, values: Sequence[Any] = ()) -> None:
        self._connection.execute(sql, values).fetchall()

    def add(self, table: str, **columns: object) -> None:
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        self.run(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(columns.values()))

    def session(self, name: str, *, at: float = T, **columns: object) -> None:
        self.add("sessions", id=name, source="cli", started_at=at, **columns)

    def say(self, session: str, role: str, content: object, *, at: float = T, **columns: object) -> None:
        self.add("messages", session_id=session, role=role, content=content, timestamp=at, **columns)

    def close(self) -> None:
        self._connection.close()


class Place:
    """Our own state.db and the records that an import brought."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "state.db"
        self._sender = 0

    def take(self, source: Path) -> tuple[Counted, list[LedgerRecord]]:
        """Import as the command does without a fleet."""
        counted = Counted()
        store = Store(self.path)
        try:
            ours = Ours(self.path)
            with Hermes(source) as theirs:
                found = list(records(theirs, ours, counted, lambda done, of: None))
            ours.close()
            self._sender += 1
            sender = Incarnation(f"import-{self._sender}")
            applied = store.apply([(sender, number, record) for number, record in enumerate(found, 1)])
            assert applied.unstorable == 0
        finally:
            store.close()
        return counted, found

    def read(self, sql: str) -> list[tuple[object, ...]]:
        connection = apsw.Connection(str(self.path))
        try:
            return list(connection.execute(sql))
        finally:
            connection.close()

    def dump(self) -> list[tuple[object, ...]]:
        # Not how often something was said of a session: a record that comes again is a word of it.
        sessions = "id, session, agent, goal, source, provider, model, parent, opened_at_ms, outcome, ended_at_ms"
        chosen = {"sessions": sessions, "messages": "*", "calls": "*", "compactions": "*"}
        return [row for table, what in chosen.items() for row in self.read(f"SELECT {what} FROM {table} ORDER BY id")]

    def transcript(self) -> list[tuple[Role, str]]:
        store = Store(self.path)
        try:
            ((name,),) = self.read("SELECT session FROM sessions")
            said = store.transcript(TranscriptQuery(session=SessionId(str(name))))
        finally:
            store.close()
        return [(message.role, message.content) for message in said.messages]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "ours").mkdir()
    return Place(tmp_path / "ours")


@pytest.fixture
def theirs(tmp_path: Path) -> Fixture:
    return Fixture(tmp_path / "hermes.db")


def talk(theirs: Fixture, session: str = "s1") -> None:
    theirs.session(session, model="glm-4.6", billing_provider="zai", billing_base_url="https://z/v1")
    theirs.say(session, "user", "why do geese fly in a V?")
    asked = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"up": true}'}}]
    theirs.say(session, "assistant", "", tool_calls=json.dumps(asked), reasoning="let me see")
    theirs.say(session, "tool", "geese", tool_call_id="c1")
    theirs.say(session, "assistant", "because", at=T + 9)


# --- what comes ------------------------------------------------------------------------------------------------------


def test_a_session_comes_with_its_messages_in_order_its_parent_and_its_end(place: Place, theirs: Fixture) -> None:
    talk(theirs, "s1")
    theirs.session("s2", at=T + 1, parent_session_id="s1", title="Geese", ended_at=T + 60, end_reason="cli_close")

    counted, _ = place.take(theirs.path)

    assert (counted.sessions_new, counted.messages_new) == (2, 4)
    first, second = place.read(
        "SELECT session, goal, source, provider, model, base_url, parent, opened_at_ms, outcome, ended_at_ms"
        " FROM sessions ORDER BY id"
    )
    assert first[1:] == (
        "why do geese fly in a V?", "hermes:cli", "zai", "glm-4.6", "https://z/v1", None, 1_750_000_000_500, None, None
    )  # fmt: skip
    assert (second[1], second[6], second[8], second[9]) == ("Geese", first[0], "done", 1_750_000_060_500)
    assert place.read("SELECT idx, role, content, tool_call_id, at_ms FROM messages ORDER BY idx") == [
        (0, "user", "why do geese fly in a V?", None, 1_750_000_000_500),
        (1, "assistant", "", None, 1_750_000_000_500),
        (2, "tool", "geese", "c1", 1_750_000_000_500),
        (3, "assistant", "because", None, 1_750_000_009_500),
    ]
    assert json.loads(str(place.read("SELECT tool_calls FROM messages WHERE idx = 1")[0][0])) == [
        {"id": "c1", "name": "look", "arguments": '{"up": true}'}
    ]


def test_messages_are_in_the_order_of_their_numbers_though_the_clock_went_back(place: Place, theirs: Fixture) -> None:
    theirs.session("s1")
    for number, at in enumerate([T, T - 500, T + 5]):
        theirs.say("s1", "user", f"number {number}", at=at)

    place.take(theirs.path)

    assert [text for _, text in place.transcript()] == ["number 0", "number 1", "number 2"]


def test_what_is_only_an_empty_answer_or_was_taken_back_stays_there(place: Place, theirs: Fixture) -> None:
    theirs.session("s1")
    theirs.say("s1", "user", "taken back", active=0)
    theirs.say("s1", "user", "kept")
    theirs.say("s1", "assistant", None, reasoning="only thoughts")
    theirs.say("s1", "session_meta", "a note of the program's own")
    theirs.say("gone", "user", "of no session")

    counted, _ = place.take(theirs.path)

    assert place.transcript() == [(Role.USER, "kept")]
    assert (counted.messages_rewound, counted.messages_not_kept, counted.messages_without_session) == (1, 2, 1)


def test_compacted_messages_are_kept_out_of_the_transcript(place: Place, theirs: Fixture) -> None:
    theirs.session("s1")
    theirs.say("s1", "user", "old", active=0, compacted=1)
    theirs.say("s1", "assistant", "old answer", active=0, compacted=1)
    theirs.say("s1", "user", "a summary")
    theirs.say("s1", "assistant", "new answer")

    place.take(theirs.path)

    assert place.transcript() == [(Role.USER, "a summary"), (Role.ASSISTANT, "new answer")]
    assert place.read("SELECT first, upto FROM compactions") == [(0, 1)]
    assert place.read("SELECT idx, compacted FROM messages ORDER BY idx") == [(0, 1), (1, 1), (2, 0), (3, 0)]


# --- what was used ---------------------------------------------------------------------------------------------------


def test_usage_is_a_row_for_each_route_and_sums_to_what_was_there(place: Place, theirs: Fixture) -> None:
    theirs.session("s1", model="a", input_tokens=150, output_tokens=60, cache_read_tokens=9, api_call_count=5)
    theirs.add("session_model_usage", session_id="s1", model="a", billing_provider="zai", api_call_count=3,
               input_tokens=100, output_tokens=50, cache_read_tokens=9, reasoning_tokens=20,
               estimated_cost_usd=0.25, first_seen=T + 3)  # fmt: skip
    theirs.add("session_model_usage", session_id="s1", model="b", task="title", api_call_count=1, input_tokens=7)

    counted, _ = place.take(theirs.path)

    rows = place.read(
        "SELECT task, provider, model, status, started_at_ms, input_tokens, output_tokens, cache_read_tokens,"
        " reasoning_tokens, duration_ms, cost_estimated_nusd, cost_actual_nusd FROM calls ORDER BY task, provider"
    )
    assert rows == [
        # What the session's sums have beyond its models': of the session's model, over a route nobody named.
        ("import", "", "a", "completed", 1_750_000_000_500, 50, 10, 0, 0, None, None, None),
        ("import", "zai", "a", "completed", 1_750_000_003_500, 100, 30, 9, 20, None, 250_000_000, None),
        ("import/title", "", "b", "completed", 1_750_000_000_500, 7, 0, 0, 0, None, None, None),
    ]
    assert (counted.calls_new, counted.api_calls) == (3, 6)
    assert (counted.prompt_tokens, counted.completion_tokens) == (166, 60)


def test_calls_that_nobody_reported_on_are_unknown_and_not_nothing(place: Place, theirs: Fixture) -> None:
    theirs.session("s1", model="a", api_call_count=4)
    theirs.session("s2", at=T + 1, model="a")

    place.take(theirs.path)

    store = Store(place.path)
    totals = store.totals(TotalsQuery())
    store.close()
    assert (totals.calls, totals.unknown_calls, totals.prompt_tokens) == (1, 1, 0)


# --- again -----------------------------------------------------------------------------------------------------------


def test_a_second_import_brings_nothing_and_changes_no_row(place: Place, theirs: Fixture) -> None:
    talk(theirs)
    theirs.say("s1", "user", "old", active=0, compacted=1)
    theirs.add("session_model_usage", session_id="s1", model="a", api_call_count=3, input_tokens=100)
    theirs.session("s2", at=T + 1, ended_at=T + 2, api_call_count=1)
    place.take(theirs.path)
    before = place.dump()

    counted, found = place.take(theirs.path)

    assert found == []
    assert (counted.sessions, counted.sessions_new, counted.messages_new, counted.calls_new) == (2, 0, 0, 0)
    assert place.dump() == before


def test_records_of_an_import_that_was_killed_before_it_knew_may_come_twice(place: Place, theirs: Fixture) -> None:
    talk(theirs)
    theirs.add("session_model_usage", session_id="s1", model="a", api_call_count=3, input_tokens=100)
    _, found = place.take(theirs.path)
    before = place.dump()

    store = Store(place.path)
    store.apply([(Incarnation("again"), number, record) for number, record in enumerate(found, 1)])
    store.close()

    assert place.dump() == before


def test_a_session_that_went_on_gets_what_was_added(place: Place, theirs: Fixture) -> None:
    talk(theirs)
    theirs.add("session_model_usage", session_id="s1", model="a", api_call_count=3, input_tokens=100)
    place.take(theirs.path)
    theirs.say("s1", "user", "and ducks?")
    theirs.run("UPDATE session_model_usage SET input_tokens = 130, api_call_count = 4")
    theirs.run("UPDATE sessions SET ended_at = ?", (T + 99,))

    counted, found = place.take(theirs.path)

    assert (counted.sessions_new, counted.messages_new, counted.calls_new, len(found)) == (0, 1, 1, 3)
    assert place.transcript()[-1] == (Role.USER, "and ducks?")
    assert place.read("SELECT sum(input_tokens), count(*) FROM calls") == [(130, 2)]
    assert place.read("SELECT outcome FROM sessions") == [("done",)]
    assert place.take(theirs.path)[1] == []


def test_a_session_whose_messages_were_rewritten_stays_as_it_came(place: Place, theirs: Fixture) -> None:
    talk(theirs)
    place.take(theirs.path)
    before = place.transcript()
    theirs.run("UPDATE messages SET content = 'why do ducks?' WHERE id = 1")
    theirs.say("s1", "user", "more")

    counted, _ = place.take(theirs.path)

    assert (counted.sessions_changed, counted.messages_new) == (1, 0)
    assert place.transcript() == before


def test_a_session_that_was_compacted_since_is_compacted_here(place: Place, theirs: Fixture) -> None:
    talk(theirs)
    place.take(theirs.path)
    theirs.run("UPDATE messages SET active = 0, compacted = 1")
    theirs.say("s1", "user", "summary")

    place.take(theirs.path)

    assert place.transcript() == [(Role.USER, "summary")]


def test_a_copy_elsewhere_brings_the_same_sessions_under_the_same_names(place: Place, theirs: Fixture) -> None:
    talk(theirs)
    place.take(theirs.path)
    copy = theirs.path.with_name("elsewhere.db")
    theirs.run("VACUUM INTO ?", (str(copy),))

    assert place.take(copy)[1] == []


# --- other versions, and what is none --------------------------------------------------------------------------------


def test_an_older_version_lacks_columns_and_the_table_of_usage(tmp_path: Path, place: Place) -> None:
    old = Fixture(
        tmp_path / "old.db",
        sessions="id TEXT PRIMARY KEY, started_at REAL, input_tokens INTEGER, output_tokens INTEGER",
        messages="id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT",
        usage="",
    )
    old.add("sessions", id="s1", started_at=T, input_tokens=5, output_tokens=2)
    old.add("messages", session_id="s1", role="user", content="hello")

    place.take(old.path)

    assert place.transcript() == [(Role.USER, "hello")]
    assert place.read("SELECT model, provider, input_tokens, output_tokens FROM calls") == [("unknown", "", 5, 2)]


def test_a_newer_version_has_columns_that_are_taken_over_or_left(tmp_path: Path, place: Place) -> None:
    new = Fixture(
        tmp_path / "new.db",
        sessions=f"{SESSIONS}, profile_name TEXT, system_prompt_hash TEXT, pinned INTEGER",
        messages=f"{MESSAGES}, display_kind TEXT, display_metadata TEXT, display_identity BLOB",
    )
    new.session("s1", profile_name="work", pinned=1)
    new.say("s1", "user", "shown", api_content="sent", display_kind="hidden", display_metadata="{}")

    place.take(new.path)

    assert place.read("SELECT profile FROM sessions") == [("work",)]
    assert place.read("SELECT content, api_content, display_kind, display_metadata FROM messages") == [
        ("shown", "sent", "hidden", "{}")
    ]


def test_times_and_text_that_are_none_cost_no_row(place: Place, theirs: Fixture) -> None:
    theirs.session("s1", at=float("inf"))
    theirs.say("s1", "user", b"caf\xe9", at=-1.0)
    theirs.run("UPDATE messages SET content = CAST(content AS TEXT)")
    theirs.say("s1", "assistant", 7, at=float("inf"))

    place.take(theirs.path)

    assert place.transcript() == [(Role.USER, "caf\ufffd"), (Role.ASSISTANT, "7")]
    assert place.read("SELECT DISTINCT at_ms FROM messages") == [(0,)]


def test_a_message_longer_than_a_link_carries_is_cut_and_says_so(
    place: Place, theirs: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.storage.hermes_words.MAX_CHARS", 10)
    theirs.session("s1")
    theirs.say("s1", "user", "0123456789abc")

    place.take(theirs.path)

    assert place.transcript() == [(Role.USER, f"0123456789{CUT}")]
    assert place.take(theirs.path)[1] == []


@pytest.mark.parametrize(
    ("make", "says"),
    [
        pytest.param(lambda path: path.write_bytes(b"no database" * 500), "not a database", id="no database"),
        pytest.param(lambda path: Store(path).close(), "not a state.db of hermes-agent", id="one of ours"),
        pytest.param(lambda path: None, "does not exist", id="not there"),
    ],
)
def test_what_is_no_hermes_database_is_refused(tmp_path: Path, make: Callable[[Path], object], says: str) -> None:
    path = tmp_path / "other.db"
    make(path)

    with pytest.raises(StoreError, match=says):
        Hermes(path)


def test_their_database_is_not_changed(place: Place, theirs: Fixture) -> None:
    talk(theirs)
    theirs.close()
    before = theirs.path.read_bytes()

    place.take(theirs.path)

    assert theirs.path.read_bytes() == before


# --- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param("plain", "plain", id="plain text"),
        pytest.param('\0json:[{"type":"text","text":"a"},{"type":"image_url"}]', "a\n[image_url]", id="parts"),
        pytest.param('\0json:["a", 7]', "a\n7", id="bare parts"),
        pytest.param('\0json:{"text":"a"}', "a", id="one part"),
        pytest.param("\0json:{cut", "{cut", id="cut off"),
    ],
)
def test_structured_content_is_its_text(content: str, text: str) -> None:
    assert plain(content) == text


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        pytest.param('[{"id":"a","function":{"name":"f","arguments":"{}"}}]', [("a", "f", "{}")], id="as usual"),
        pytest.param('[{"call_id":"a","function":{"name":"f","arguments":{"x": 1}}}]', [("a", "f", '{"x": 1}')],
                     id="an object, and the other name of the id"),
        pytest.param('[{"id":"a","function":{"name":"f"}}]', [("a", "f", "")], id="no arguments"),
        pytest.param('[{"id": 7}]', [], id="no text"),
        pytest.param("{", [], id="cut off"),
    ],
)  # fmt: skip
def test_tool_calls_are_read_as_far_as_they_make_sense(text: str, calls: list[tuple[str, str, str]]) -> None:
    assert tool_calls(text) == tuple(ToolCall(id=id_, name=name, arguments=said) for id_, name, said in calls)


@given(st.text(), st.text())
@settings(max_examples=200)
def test_no_text_of_theirs_is_too_odd(content: str, calls: str) -> None:
    plain("\0json:" + content)
    tool_calls(calls)


# --- size ------------------------------------------------------------------------------------------------------------

MANY = """
import sys, time
from pathlib import Path
from covey.supervisor.cli.db_import import import_db
from covey.supervisor.home import Home
began = time.monotonic()
assert import_db(Home(Path(sys.argv[1])), Path(sys.argv[2]), is_rehearsal=False, as_json=True) == 0
print(time.monotonic() - began, file=sys.stderr)
"""


@pytest.mark.slow
def test_ten_thousand_sessions_with_two_hundred_thousand_messages_take_less_than_a_minute(
    tmp_path: Path, theirs: Fixture
) -> None:
    theirs.run("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)"
               " INSERT INTO sessions (id, source, started_at, model, input_tokens, api_call_count)"
               " SELECT 's' || i, 'cli', 1.75e9 + i, 'a', 100, 3 FROM n")  # fmt: skip
    theirs.run("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)"
               " INSERT INTO messages (session_id, role, content, timestamp)"
               " SELECT 's' || (1 + i % 10000), iif((i / 10000) % 2, 'assistant', 'user'),"
               " 'message ' || i || printf('%.400c', 'x'), 1.75e9 + i FROM n")  # fmt: skip
    home = tmp_path / "home"
    home.mkdir()

    done = subprocess.run(
        [sys.executable, "-P", "-c", MANY, str(home), str(theirs.path)], capture_output=True, text=True, timeout=110
    )

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["sessions_new"], said["messages_new"], said["prompt_tokens"]) == (10_000, 200_000, 1_000_000)
    assert float(done.stderr.split()[-1]) < 60
