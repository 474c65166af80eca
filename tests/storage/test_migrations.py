"""Databases of earlier versions become today's, with every row they had; what is declared and missing is added."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import apsw
import pytest

from covey.protocol.ids import Incarnation, SessionId
from covey.protocol.messages.ledger import (
    CallsQuery,
    RestartsQuery,
    SearchQuery,
    SessionsQuery,
    TotalsQuery,
    TranscriptQuery,
)
from covey.storage.answers import answer
from covey.storage.database import Database
from covey.storage.migrations import LADDER, missing, upgrade
from covey.storage.schema import APPLICATION_ID, SCHEMA, Part, Schema, Table
from covey.storage.store import Store

SCHEMAS = Path(__file__).parent / "schemas"
EARLIER = [pytest.param(version, id=f"version {version}") for version in range(1, len(LADDER))]
NO_PARTS = Schema(tables=(Table("meta", {"key": "TEXT PRIMARY KEY", "value": "TEXT NOT NULL"}, has_rowid=False),))


def earlier(path: Path, version: int) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript((SCHEMAS / f"version_{version}.sql").read_text())
    connection.close()
    return path


def tables_of(path: Path) -> dict[str, list[dict[str, object]]]:
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    names = [
        row[0]
        for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB '*fts*'")
    ]
    found = {name: [dict(row) for row in connection.execute(f"SELECT * FROM {name} ORDER BY 1")] for name in names}
    connection.close()
    return found


def shape(path: Path) -> dict[str, object]:
    """What there is, without the order that columns were added in."""
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE name NOT GLOB '*fts*'").fetchall()
    found: dict[str, object] = {name: sql for kind, name, sql in rows if kind != "table"}
    for kind, name, _ in rows:
        if kind == "table":
            columns = connection.execute('SELECT name, type, "notnull", dflt_value FROM pragma_table_info(?)', (name,))
            found[name] = sorted(columns.fetchall())
    connection.close()
    return found


def test_there_is_a_fixture_for_every_earlier_version() -> None:
    assert {file.name for file in SCHEMAS.iterdir()} == {f"version_{at}.sql" for at in range(1, len(LADDER))}


@pytest.mark.parametrize("version", EARLIER)
def test_every_row_of_an_earlier_version_is_there_as_it_was(tmp_path: Path, version: int) -> None:
    path = earlier(tmp_path / "state.db", version)
    before = tables_of(path)

    Store(path).close()

    after = tables_of(path)
    assert before["messages"]
    assert before["calls"]
    for table, rows in before.items():
        if table == "meta":
            assert [row for row in after[table] if not str(row["key"]).startswith("search")] == rows
            continue
        assert [{name: row[name] for name in rows[0]} for row in after[table]] == rows if rows else not after[table]


@pytest.mark.parametrize("version", EARLIER)
def test_an_earlier_version_has_the_same_shape_as_a_new_database(tmp_path: Path, version: int) -> None:
    old, new = earlier(tmp_path / "old.db", version), tmp_path / "new.db"

    Store(old).close()
    Store(new).close()

    assert shape(old) == shape(new)
    assert sqlite3.connect(old).execute("PRAGMA user_version").fetchone() == (len(LADDER),)


@pytest.mark.parametrize("version", EARLIER)
def test_what_an_earlier_version_held_is_answered(tmp_path: Path, version: int) -> None:
    store = Store(earlier(tmp_path / "state.db", version))

    top = SessionId("ses_top")
    messages = store.transcript(TranscriptQuery(session=top)).messages
    assert [message.content for message in messages] == ["Please write the report", "", "report.txt"]
    totals = store.totals(TotalsQuery(session=top, tree=True))
    assert (totals.calls, totals.unknown_calls, totals.prompt_tokens, totals.cost_usd) == (2, 1, 134, None)
    assert [row.record.call for row in store.calls(CallsQuery()).rows] == ["call_1", "call_2", "call_3"]
    assert store.senders() == {Incarnation("inc_a"): 11, Incarnation("inc_b"): 3}
    restarts = store.answer(RestartsQuery(since_ms=0), deadline_s=9)
    assert len(restarts.restarts) == (2 if version > 1 else 0)  # type: ignore[union-attr]
    store.close()


@pytest.mark.parametrize("version", EARLIER)
def test_sessions_of_an_earlier_version_are_in_the_order_of_their_last_message(tmp_path: Path, version: int) -> None:
    store = Store(earlier(tmp_path / "state.db", version))

    rows = answer(store._database, SessionsQuery()).rows  # type: ignore[union-attr]

    assert [row.session for row in rows] == ["ses_top", "ses_child", "ses_silent", "ses_end_only"]  # type: ignore[union-attr]
    store.close()


@pytest.mark.parametrize("version", EARLIER)
def test_messages_of_an_earlier_version_can_be_found_once_the_index_is_made(tmp_path: Path, version: int) -> None:
    store = Store(earlier(tmp_path / "state.db", version))
    assert answer(store._database, SearchQuery(text="worterbuch")).problem is not None  # type: ignore[union-attr]

    while store.mend_search():
        pass

    found = answer(store._database, SearchQuery(text="worterbuch"))
    assert (found.problem, [hit.session for hit in found.hits]) == (None, ["ses_child"])  # type: ignore[union-attr]
    store.close()


def test_an_upgrade_that_is_repeated_changes_nothing(tmp_path: Path) -> None:
    path = earlier(tmp_path / "state.db", 1)
    Store(path).close()
    before = path.read_bytes()

    database = Database(path)
    upgrade(database)
    database.close()

    assert path.read_bytes() == before


def test_a_column_that_is_missing_is_added_without_a_step_of_the_ladder(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    Store(path).close()
    connection = apsw.Connection(str(path))
    connection.execute("ALTER TABLE sessions DROP COLUMN doing")
    connection.execute("DROP TABLE dead_letters")
    connection.execute("DROP INDEX calls_by_time")
    connection.close()

    store = Store(path)

    assert list(missing(store._database)) == []
    assert store._database.execute("SELECT doing FROM sessions") == []
    store.close()


def test_an_index_that_is_declared_otherwise_now_is_made_anew_and_one_that_nothing_asks_for_goes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.db"
    Store(path).close()
    connection = apsw.Connection(str(path))
    connection.execute("DROP INDEX calls_by_time")
    connection.execute("CREATE INDEX calls_by_time ON calls (started_at_ms, model)")
    connection.execute("CREATE INDEX calls_by_model ON calls (model)")
    connection.close()

    Store(path).close()

    assert shape(path)["calls_by_time"] == "CREATE INDEX calls_by_time ON calls (started_at_ms)"
    assert "calls_by_model" not in shape(path)


def test_a_column_of_somebody_elses_stays(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    Store(path).close()
    connection = apsw.Connection(str(path))
    connection.execute("ALTER TABLE sessions ADD COLUMN theirs TEXT")
    connection.close()

    store = Store(path)

    assert store._database.execute("SELECT theirs FROM sessions") == []
    store.close()


def test_a_file_gets_all_tables_and_only_an_earlier_one_the_steps_of_data(tmp_path: Path) -> None:
    database = Database(tmp_path / "state.db")
    schema = Schema(
        tables=(*NO_PARTS.tables, SCHEMA.tables[0], SCHEMA.tables[1], SCHEMA.tables[3]), parts=SCHEMA.parts[-6:-4]
    )
    upgrade(database, [()], schema)

    upgrade(database, [("never run again",), ("INSERT INTO meta VALUES ('step', '2')",), ("DELETE FROM meta",)], schema)

    assert database.execute("SELECT * FROM meta") == []
    assert database.number("PRAGMA user_version") == 3
    assert database.number("PRAGMA application_id") == APPLICATION_ID
    database.close()


def test_a_step_that_fails_takes_the_additions_and_all_steps_back(tmp_path: Path) -> None:
    database = Database(tmp_path / "state.db")
    upgrade(database, [()])
    before = database.execute("SELECT name, sql FROM sqlite_schema")
    more = Schema(tables=(*SCHEMA.tables, Table("later", {"id": "INTEGER PRIMARY KEY"})), parts=SCHEMA.parts)

    with pytest.raises(Exception, match="syntax error"):
        upgrade(database, [(), ("INSERT INTO meta VALUES ('step', '2')",), ("this is no SQL",)], more)

    assert database.execute("SELECT name, sql FROM sqlite_schema") == before
    assert database.execute("SELECT * FROM meta") == []
    assert database.number("PRAGMA user_version") == 1
    database.close()


@pytest.mark.parametrize("part", [part for part in SCHEMA.parts if part.kind == "INDEX"], ids=lambda part: part.name)
def test_an_index_is_on_a_declared_table(part: Part) -> None:
    assert part.text.split()[1] in {table.name for table in SCHEMA.tables}
