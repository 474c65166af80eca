"""Looking at state.db from outside: what is said of each kind of file, and that none is touched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from covey.storage.inspection import Condition, inspect
from covey.storage.store import Store


def make(path: Path) -> None:
    """Owned and closed by a process that is gone."""
    code = (
        "import sys; from pathlib import Path; from covey.storage.store import Store; Store(Path(sys.argv[1])).close()"
    )
    subprocess.run([sys.executable, "-P", "-c", code, str(path)], check=True, timeout=30)


def entries(path: Path) -> dict[str, tuple[int, int]]:
    return {one.name: (one.stat().st_size, one.stat().st_mtime_ns) for one in path.parent.iterdir()}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def test_a_database_that_was_closed_in_order_is_sound_and_not_touched(database: Path) -> None:
    make(database)
    before = entries(database)

    assert inspect(database).condition is Condition.SOUND
    assert entries(database) == before


def test_none_is_absent_and_an_empty_one_is_sound(database: Path) -> None:
    assert inspect(database).condition is Condition.ABSENT
    assert entries(database) == {}

    database.touch()
    assert inspect(database).condition is Condition.SOUND


def test_one_with_a_living_owner_is_not_looked_at(database: Path) -> None:
    store = Store(database)
    try:
        assert inspect(database).condition is Condition.OWNED
    finally:
        store.close()


def test_a_damaged_page_is_found(database: Path) -> None:
    make(database)
    with open(database, "r+b") as file:
        file.seek(4096)
        file.write(os.urandom(8192))

    found = inspect(database)

    assert found.condition is Condition.DAMAGED
    assert found.detail


def test_a_database_of_others_is_foreign(database: Path) -> None:
    other = apsw.Connection(str(database))
    other.execute("CREATE TABLE theirs (x)")
    other.close()

    assert inspect(database).condition is Condition.FOREIGN


def test_one_of_a_newer_covey_is_too_new(database: Path) -> None:
    make(database)
    newer = apsw.Connection(str(database))
    newer.execute("PRAGMA user_version = 999")
    newer.close()

    assert inspect(database).condition is Condition.TOO_NEW


def test_a_wal_that_a_crash_left_is_for_the_next_ledger(database: Path) -> None:
    make(database)
    wal = Path(f"{database}-wal")
    wal.write_bytes(b"left")
    before = entries(database)

    assert inspect(database).condition is Condition.UNCHECKED
    assert entries(database) == before


def test_one_that_takes_longer_than_there_is_time_is_unchecked(database: Path) -> None:
    make(database)
    writer = apsw.Connection(str(database))
    writer.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
                   "INSERT INTO meta SELECT 'key ' || i, 'value' FROM n")  # fmt: skip
    writer.close()

    assert inspect(database, deadline_s=0.0).condition is Condition.UNCHECKED
