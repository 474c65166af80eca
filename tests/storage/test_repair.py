"""Repair: bytes flipped, files cut, WALs left behind; what comes out is sound, and the originals are kept."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from covey.protocol.errors import AlreadyRunning, ForeignDatabase, SchemaTooNew, StoreDamaged, StoreError
from covey.protocol.ids import AgentId, CallId, Incarnation, SessionId
from covey.protocol.messages.ledger import CallRecorded, CallStatus, LedgerRecord, MessageAppended, SessionOpened
from covey.protocol.transcript import Message, Role
from covey.protocol.usage import Usage
from covey.storage.checkup import check
from covey.storage.database import TooSlow
from covey.storage.repair import How, Repaired, repair
from covey.storage.store import Store
from covey.storage.upkeep import vacuum

SESSIONS, MESSAGES, CALLS = 20, 100, 500
PAGE = 4096


def records() -> list[LedgerRecord]:
    found: list[LedgerRecord] = []
    for number in range(SESSIONS):
        session = SessionId(f"ses_{number}")
        found.append(SessionOpened(session=session, agent=AgentId(f"ag_{number}"), goal="g", source="test", at_ms=1))
        found += [
            MessageAppended(
                session=session,
                index=at,
                message=Message(role=Role.USER, content=f"{number} said {at} " + "x" * (at * 7 % 900)),
                at_ms=at,
            )
            for at in range(MESSAGES)
        ]
    # One that needs pages of its own.
    long = Message(role=Role.ASSISTANT, content="long " * 4000)
    found.append(MessageAppended(session=SessionId("ses_0"), index=MESSAGES, message=long, at_ms=1))
    found += [
        CallRecorded(
            call=CallId(f"call_{number}"),
            provider="zai",
            base_url="https://z",
            model="m",
            status=CallStatus.COMPLETED,
            started_at_ms=number,
            usage=Usage(input=number, output=1),
            session=SessionId("ses_0"),
        )
        for number in range(CALLS)
    ]
    return found


def make(path: Path) -> None:
    store = Store(path)
    store.apply([(Incarnation("sender"), number, record) for number, record in enumerate(records(), 1)])
    store.close()


ALL = {"sessions": SESSIONS, "messages": SESSIONS * MESSAGES + 1, "calls": CALLS}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    make(tmp_path / "state.db")
    return tmp_path / "state.db"


def overwrite(path: Path, at: int, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(content)


def pages_of(path: Path, name: str) -> list[tuple[int, str]]:
    """Numbers and kinds of the pages of a table or index."""
    connection = apsw.Connection(str(path))
    try:
        found = connection.execute("SELECT pageno, pagetype FROM dbstat WHERE name = ? ORDER BY pageno", (name,))
        return [(int(str(number)), str(kind)) for number, kind in found]
    finally:
        connection.close()


def kept(done: Repaired) -> dict[str, int]:
    return {table: done.rows[table] for table in ALL}


def is_usable(path: Path) -> bool:
    assert check(path, is_full=True, deadline_s=None).findings == ()
    store = Store(path)
    try:
        store.apply([(Incarnation("later"), 1, records()[0])])
        return True
    finally:
        store.close()


def originals(done: Repaired) -> Path:
    assert done.originals is not None
    return Path(done.originals)


# --- gentle ----------------------------------------------------------------------------------------------------------


def test_a_sound_database_is_left_alone(database: Path) -> None:
    before = database.read_bytes()

    done = repair(database)

    assert (done.how, done.originals) == (How.SOUND, None)
    assert database.read_bytes() == before
    assert sorted(path.name for path in database.parent.iterdir() if path.is_dir()) == []


def test_a_damaged_index_is_built_anew_and_no_row_is_lost(database: Path) -> None:
    (leaf, _) = next(page for page in pages_of(database, "sqlite_autoindex_messages_1") if page[1] == "leaf")
    # Among its keys: what they say is wrong, where they are is not.
    overwrite(database, leaf * PAGE - 100, b"\x37" * 60)

    done = repair(database)

    assert done.how is How.REBUILT
    assert kept(done) == ALL
    assert done.findings
    assert is_usable(database)


def test_an_index_too_damaged_to_be_removed_costs_no_row_either(database: Path) -> None:
    (leaf, _) = next(page for page in pages_of(database, "sqlite_autoindex_messages_1") if page[1] == "leaf")
    overwrite(database, (leaf - 1) * PAGE, bytes(64))

    done = repair(database)

    assert (done.how, kept(done)) == (How.SALVAGED, ALL)
    assert is_usable(database)


def test_a_damaged_search_index_is_built_anew(database: Path) -> None:
    connection = apsw.Connection(str(database))
    connection.execute("UPDATE messages_fts_data SET block = X'00FF00FF' WHERE id > 10")
    connection.close()
    assert not check(database, is_full=True, deadline_s=None).is_sound

    done = repair(database)

    assert done.how is How.REBUILT
    assert kept(done) == ALL
    assert is_usable(database)


def test_a_header_that_was_overwritten_comes_back(database: Path) -> None:
    # What a TLS record did that was written to the wrong descriptor.
    overwrite(database, 5, bytes.fromhex("1703030013") + os.urandom(19))

    done = repair(database)

    assert (done.how, kept(done)) == (How.REBUILT, ALL)
    assert is_usable(database)


# --- row by row ------------------------------------------------------------------------------------------------------


def test_of_a_damaged_page_only_its_own_rows_are_lost(database: Path) -> None:
    leaves = [number for number, kind in pages_of(database, "messages") if kind == "leaf"]
    overwrite(database, (leaves[len(leaves) // 2] - 1) * PAGE, os.urandom(PAGE))

    done = repair(database)

    assert done.how is How.SALVAGED
    lost = ALL["messages"] - done.rows["messages"]
    assert 0 < lost <= 60
    assert (done.rows["sessions"], done.rows["calls"]) == (SESSIONS, CALLS)
    assert {table.table: table.missing for table in done.tables if table.missing} == {"messages": lost}
    assert is_usable(database)


def test_along_the_trees_alone_only_the_rows_of_the_page_are_lost(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves = [number for number, kind in pages_of(database, "messages") if kind == "leaf"]
    for place in (3, len(leaves) // 2, -2):
        overwrite(database, (leaves[place] - 1) * PAGE, os.urandom(PAGE))
    monkeypatch.setattr("covey.storage.salvage.rows_of_page", lambda *args, **kwargs: iter(()))

    done = repair(database)

    assert 0 < ALL["messages"] - done.rows["messages"] <= 3 * 60
    assert is_usable(database)


def test_rows_are_found_though_the_root_of_their_table_is_gone(database: Path) -> None:
    root = next(number for number, kind in pages_of(database, "messages") if kind == "internal")
    overwrite(database, (root - 1) * PAGE, bytes(PAGE))

    done = repair(database)

    assert (done.how, kept(done)) == (How.SALVAGED, ALL)
    connection = apsw.Connection(str(database))
    long = connection.execute(
        "SELECT content FROM messages WHERE session = 'ses_0' AND idx = ?", (MESSAGES,)
    ).fetchall()
    connection.close()
    assert long == [("long " * 4000,)]
    assert is_usable(database)


def test_rows_are_found_though_the_first_page_with_the_schema_is_gone(database: Path) -> None:
    overwrite(database, 0, os.urandom(PAGE))

    done = repair(database)

    assert (done.how, kept(done)) == (How.SALVAGED, ALL)
    assert is_usable(database)


def test_of_a_file_that_was_cut_the_rest_is_kept(database: Path) -> None:
    size = database.stat().st_size
    os.truncate(database, size // 2 // PAGE * PAGE + 100)

    done = repair(database)

    assert done.how is How.SALVAGED
    assert 0 < sum(kept(done).values()) < sum(ALL.values())
    assert is_usable(database)


@pytest.mark.parametrize("seed", [0, 1, 2, 105, 148])
def test_whatever_is_overwritten_what_comes_out_is_sound_and_the_originals_are_there(database: Path, seed: int) -> None:
    random_ = random.Random(seed)
    size = database.stat().st_size
    for _ in range(random_.randint(1, 12)):
        overwrite(database, random_.randrange(size), random_.randbytes(random_.choice((1, 16, 512, 4096))))
    broken = database.read_bytes()[:size]

    done = repair(database)

    assert is_usable(database)
    assert sum(kept(done).values()) > 0, seed
    if done.originals is not None:
        assert (originals(done) / "state.db").read_bytes()[:size] == broken


def test_a_value_that_no_row_may_have_is_put_right_or_left_out(database: Path) -> None:
    connection = apsw.Connection(str(database))
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_schema SET sql = replace(sql, 'STRICT', '') WHERE name = 'calls'")
    connection.close()
    connection = apsw.Connection(str(database))
    connection.execute("UPDATE calls SET model = CAST(X'ff61' AS TEXT) WHERE id = 1")
    connection.execute("UPDATE calls SET started_at_ms = 'never' WHERE id = 2")
    connection.close()
    leaves = [number for number, kind in pages_of(database, "messages") if kind == "leaf"]
    overwrite(database, (leaves[-1] - 1) * PAGE, bytes(8))

    done = repair(database)

    (calls,) = [table for table in done.tables if table.table == "calls"]
    assert (calls.rows, calls.unfit) == (CALLS - 1, 1)
    assert is_usable(database)


# --- the WAL, and killed owners --------------------------------------------------------------------------------------

WRITER = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from covey.storage.store import Store
import test_repair
store = Store(Path(sys.argv[1]))
store.apply([("sender", n, r) for n, r in enumerate(test_repair.records(), 1)])
os.kill(os.getpid(), 9)
"""


@pytest.mark.kill
def test_what_a_killed_ledger_left_in_the_wal_is_kept(tmp_path: Path) -> None:
    database = tmp_path / "state.db"
    command = [sys.executable, "-P", "-c", WRITER, str(database), str(Path(__file__).parent)]
    assert subprocess.run(command, timeout=60).returncode == -9
    assert Path(f"{database}-wal").stat().st_size > 100_000
    # Damage in the file, of which the WAL knows nothing.
    overwrite(database, 30 * PAGE if database.stat().st_size > 31 * PAGE else 0, os.urandom(64))

    done = repair(database)

    assert kept(done) == ALL
    assert is_usable(database)
    if done.originals is not None:
        assert (originals(done) / "state.db-wal").stat().st_size > 100_000


def test_a_wal_of_another_database_is_not_taken_in(database: Path) -> None:
    Path(f"{database}-wal").write_bytes(os.urandom(50_000))

    done = repair(database)

    assert kept(done) == ALL
    assert is_usable(database)


# --- refusals and bounds ---------------------------------------------------------------------------------------------


def test_a_database_that_a_ledger_has_open_is_refused_and_not_touched(database: Path) -> None:
    store = Store(database)
    before = database.read_bytes()
    try:
        with pytest.raises(AlreadyRunning):
            repair(database)
        with pytest.raises(AlreadyRunning):
            vacuum(database)
    finally:
        store.close()

    assert database.read_bytes() == before


def test_one_of_another_program_or_of_a_newer_covey_is_refused(tmp_path: Path, database: Path) -> None:
    other = apsw.Connection(str(tmp_path / "other.db"))
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    newer = apsw.Connection(str(database))
    newer.execute("PRAGMA user_version = 999")
    newer.close()

    with pytest.raises(ForeignDatabase):
        repair(tmp_path / "other.db")
    with pytest.raises(SchemaTooNew):
        repair(database)
    with pytest.raises(StoreError, match="does not exist"):
        repair(tmp_path / "never.db")


def test_where_nothing_can_be_read_the_file_stays_as_it_is_with_a_copy_aside(tmp_path: Path) -> None:
    database = tmp_path / "state.db"
    noise = os.urandom(40 * PAGE)
    database.write_bytes(noise)

    with pytest.raises(StoreDamaged, match="no row"):
        repair(database)

    assert database.read_bytes() == noise
    (aside,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert (aside / "state.db").read_bytes() == noise


def test_at_the_deadline_it_is_given_up_and_nothing_was_changed(database: Path) -> None:
    leaves = [number for number, kind in pages_of(database, "messages") if kind == "leaf"]
    overwrite(database, (leaves[3] - 1) * PAGE, os.urandom(PAGE))
    before = database.read_bytes()

    with pytest.raises(TooSlow):
        repair(database, deadline_s=1e-9)

    assert database.read_bytes() == before
    assert [path.name for path in database.parent.iterdir() if ".repair-" in path.name] == []


def test_a_vacuum_gives_room_back_and_changes_no_row(database: Path) -> None:
    connection = apsw.Connection(str(database))
    connection.execute("DELETE FROM messages WHERE id > 1000")
    connection.close()

    done = vacuum(database)

    assert done.bytes_after < done.bytes_before / 1.5
    assert check(database, is_full=True, deadline_s=None).is_sound
    store = Store(database)
    assert store.rows() == SESSIONS + 1000 + CALLS
    store.close()
