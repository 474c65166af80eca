"""Which files the store opens, which it refuses, and that a refused one is left as it was."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import apsw
import pytest

from covey.protocol.errors import ForeignDatabase, SchemaTooNew, StoreError
from covey.storage.migrations import LADDER
from covey.storage.schema import APPLICATION_ID, SCHEMA
from covey.storage.store import Store


def read(path: Path, sql: str) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(path))
    try:
        return list(connection.execute(sql).fetchall())
    finally:
        connection.close()


def make(path: Path, *statements: str) -> None:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement).fetchall()
    connection.close()


def contents(directory: Path) -> dict[str, bytes]:
    return {name: (directory / name).read_bytes() for name in os.listdir(directory) if not name.endswith(".lock")}


def test_a_new_database_is_ours_versioned_and_private(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    store = Store(path)

    modes = {name: stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in os.listdir(tmp_path)}
    store.close()
    assert modes == dict.fromkeys(("state.db", "state.db-wal", "state.db-shm", "state.db.lock"), 0o600)
    assert read(path, "PRAGMA application_id") == [(APPLICATION_ID,)]
    assert read(path, "PRAGMA user_version") == [(len(LADDER),)]


def test_every_table_is_strict(tmp_path: Path) -> None:
    Store(tmp_path / "state.db").close()

    # Those of the search index are SQLite's own.
    tables = read(
        tmp_path / "state.db",
        "SELECT name, strict FROM pragma_table_list WHERE type = 'table' AND name NOT LIKE 'sqlite%'",
    )

    assert {name for name, _ in tables} == {table.name for table in SCHEMA.tables}
    assert all(strict for _, strict in tables)


def test_the_connection_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")

    pragmas = {
        name: store._database.execute(f"PRAGMA {name}")[0][0]
        for name in ("journal_mode", "synchronous", "wal_autocheckpoint", "foreign_keys", "trusted_schema")
    }
    store.close()

    assert pragmas == {
        "journal_mode": "wal",
        "synchronous": 2,
        "wal_autocheckpoint": 0,
        "foreign_keys": 1,
        "trusted_schema": 0,
    }


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch()

    Store(tmp_path / "state.db").close()

    assert read(tmp_path / "state.db", "PRAGMA application_id") == [(APPLICATION_ID,)]


def test_the_wal_of_a_database_that_is_gone_is_not_taken_for_ours(tmp_path: Path) -> None:
    (tmp_path / "state.db-wal").write_bytes(b"left behind")

    store = Store(tmp_path / "state.db")

    assert store.rows() == 0
    store.close()


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    Store(path).close()
    make(path, f"PRAGMA user_version = {len(LADDER) + 1}")
    before = read(path, "SELECT * FROM sqlite_schema")

    with pytest.raises(SchemaTooNew) as refused:
        Store(path)

    assert (refused.value.found, refused.value.known) == (len(LADDER) + 1, len(LADDER))
    assert read(path, "SELECT * FROM sqlite_schema") == before


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param(("CREATE TABLE theirs (x)",), id="without an application id"),
        pytest.param(("PRAGMA application_id = 7", "CREATE TABLE theirs (x)"), id="with another application id"),
        pytest.param(("PRAGMA application_id = 7", "VACUUM"), id="without tables"),
        pytest.param(("PRAGMA journal_mode = WAL", "CREATE TABLE theirs (x)"), id="in WAL mode"),
    ],
)
def test_a_database_of_another_program_is_refused_and_not_touched(tmp_path: Path, statements: tuple[str, ...]) -> None:
    path = tmp_path / "state.db"
    make(path, *statements)
    before = contents(tmp_path)

    with pytest.raises(ForeignDatabase):
        Store(path)

    assert contents(tmp_path) == before


def test_a_file_that_is_no_database_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"my notes, and more of them\n" * 400)
    before = contents(tmp_path)

    with pytest.raises(ForeignDatabase):
        Store(path)

    assert contents(tmp_path) == before


def test_a_malformed_database_is_refused_at_start(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    Store(path).close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)

    with pytest.raises(StoreError):
        Store(path)


def test_a_refused_file_is_owned_by_nobody(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    make(path, "CREATE TABLE theirs (x)")
    with pytest.raises(ForeignDatabase):
        Store(path)
    path.unlink()

    Store(path).close()
