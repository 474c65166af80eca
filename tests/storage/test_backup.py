"""Backups: what is in them, that nothing unfinished ever has their name, and what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from covey.protocol.errors import ForeignDatabase, StoreDamaged, StoreError, UsageError
from covey.protocol.ids import AgentId, Incarnation, SessionId
from covey.protocol.messages.ledger import LedgerRecord, MessageAppended, SessionOpened
from covey.protocol.transcript import Message, Role
from covey.storage.backup import Backup, back_up, rotate
from covey.storage.store import Store

ROWS = 3000


def fill(store: Store, *, start: int = 0, rows: int = ROWS, sender: str = "sender") -> None:
    session = SessionId("ses_a")
    opened = SessionOpened(session=session, agent=AgentId("ag_a"), goal="geese", source="test", at_ms=1)
    said = [
        MessageAppended(
            session=session, index=at, message=Message(role=Role.USER, content=f"message {at} " + "x" * 300), at_ms=at
        )
        for at in range(start, start + rows)
    ]
    records: list[LedgerRecord] = [opened, *said]
    store.apply([(Incarnation(sender), number, record) for number, record in enumerate(records, start + 1)])


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "state.db"
    store = Store(path)
    fill(store)
    store.close()
    return path


def copy_of(database: Path, dest: Path, *, overwrite: bool = False) -> Backup:
    return back_up(database, dest, overwrite=overwrite, deadline_s=60.0)


def test_a_backup_is_a_sound_state_db_with_all_rows_and_private(database: Path, tmp_path: Path) -> None:
    dest = tmp_path / "copy.db"

    done = copy_of(database, dest)

    assert (done.path, done.bytes) == (str(dest), dest.stat().st_size)
    assert (done.rows["messages"], done.rows["sessions"]) == (ROWS, 1)
    assert dest.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []
    store = Store(dest)
    assert store.rows() == ROWS + 1
    store.close()


def test_what_is_only_in_the_wal_is_in_the_backup_while_its_owner_goes_on(tmp_path: Path) -> None:
    database = tmp_path / "state.db"
    store = Store(database)
    fill(store)

    done = copy_of(database, tmp_path / "copy.db")
    fill(store, start=ROWS + 1, rows=5)

    assert done.rows["messages"] == ROWS
    assert store.inspect() == 0
    store.close()


def test_what_exists_is_not_overwritten_unless_that_is_meant(database: Path, tmp_path: Path) -> None:
    dest = tmp_path / "copy.db"
    dest.write_text("precious")

    with pytest.raises(UsageError, match="--force"):
        copy_of(database, dest)
    assert dest.read_text() == "precious"

    assert copy_of(database, dest, overwrite=True).rows["messages"] == ROWS


def test_a_destination_that_comes_while_the_copy_grows_is_not_overwritten(database: Path, tmp_path: Path) -> None:
    dest = tmp_path / "copy.db"

    def come() -> None:
        dest.write_text("precious")

    with pytest.raises(UsageError):
        back_up(database, dest, overwrite=False, deadline_s=60.0, on_step=come)

    assert dest.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", ".lock"])
def test_the_database_itself_is_no_destination(database: Path, suffix: str) -> None:
    before = database.read_bytes()

    with pytest.raises(UsageError):
        copy_of(database, Path(f"{database}{suffix}"), overwrite=True)

    assert database.read_bytes() == before


def test_a_wal_beside_the_destination_is_not_made_a_part_of_it(database: Path, tmp_path: Path) -> None:
    dest = tmp_path / "copy.db"
    Path(f"{dest}-wal").write_bytes(b"of another one")

    with pytest.raises(UsageError, match="taken for a part"):
        copy_of(database, dest)


def test_of_a_damaged_database_there_is_no_backup(database: Path, tmp_path: Path) -> None:
    with open(database, "r+b") as file:
        file.seek(20 * 4096)
        file.write(os.urandom(4096))

    with pytest.raises(StoreDamaged):
        copy_of(database, tmp_path / "copy.db")

    assert not (tmp_path / "copy.db").exists()


def test_nor_of_what_is_no_database_of_ours(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        copy_of(tmp_path / "never.db", tmp_path / "copy.db")
    other = apsw.Connection(str(tmp_path / "other.db"))
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    with pytest.raises(ForeignDatabase):
        copy_of(tmp_path / "other.db", tmp_path / "copy.db")


SLOW = """
import os, sys
from pathlib import Path
from covey.storage import backup
steps = 0
def step():
    global steps
    steps += 1
    if steps == int(sys.argv[3]):
        print("in the middle", flush=True)
        sys.stdin.read()
backup.back_up(Path(sys.argv[1]), Path(sys.argv[2]), overwrite=True, deadline_s=None, on_step=step)
"""


@pytest.mark.kill
@pytest.mark.parametrize("step", [1, 2])
def test_a_backup_that_is_killed_leaves_the_old_one_and_the_next_one_removes_its_rest(
    database: Path, tmp_path: Path, step: int
) -> None:
    dest = tmp_path / "copy.db"
    copy_of(database, dest)
    before = dest.read_bytes()
    command = [sys.executable, "-P", "-c", SLOW, str(database), str(dest), str(step)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as maker:
        assert maker.stdout is not None
        assert maker.stdout.readline() == b"in the middle\n"
        maker.send_signal(signal.SIGKILL)

    left = [path for path in tmp_path.iterdir() if path.name.endswith(".partial")]
    assert len(left) == 1
    assert dest.read_bytes() == before

    copy_of(database, dest, overwrite=True)
    assert not left[0].exists()


def test_a_backup_that_goes_on_is_not_taken_for_a_rest(database: Path, tmp_path: Path) -> None:
    dest = tmp_path / "copy.db"
    inner: list[Backup] = []

    def another() -> None:
        if not inner:
            inner.append(copy_of(database, dest, overwrite=True))

    done = back_up(database, dest, overwrite=True, deadline_s=60.0, on_step=another)

    assert inner[0].rows == done.rows


def test_rotation_keeps_the_newest_and_touches_no_other_name(tmp_path: Path) -> None:
    for name in ("state-1.db", "state-2.db", "state-3.db", "mine.db"):
        (tmp_path / name).touch()

    assert rotate(tmp_path, prefix="state-", keep=2) == ("state-1.db",)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.db", "state-2.db", "state-3.db"]
