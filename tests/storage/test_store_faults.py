"""What happens to state.db behind the store's back, and that nothing is written to the wrong file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from covey.protocol.errors import StoreError, StoreFull, StoreMoved
from covey.protocol.ids import Incarnation, SessionId
from covey.protocol.messages.ledger import MessageAppended, TotalsQuery
from covey.protocol.transcript import Message, Role
from covey.storage.inbox import Delivery
from covey.storage.store import Store

A = Incarnation("inc_a")


def said(seq: int, *, size: int = 10) -> Delivery:
    message = Message(role=Role.USER, content="x" * size)
    return (A, seq, MessageAppended(session=SessionId("s"), index=seq - 1, message=message, at_ms=0))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "state.db")
    store.apply([said(1)])
    yield store
    store.close()


def unlinked(path: Path) -> None:
    path.unlink()


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def replaced(path: Path) -> None:
    shutil.copyfile(path, path.with_name("copy"))
    path.with_name("copy").rename(path)


@pytest.mark.parametrize("what", [unlinked, moved, replaced], ids=lambda what: what.__name__)
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", ".lock"])
def test_a_file_that_is_not_in_its_place_is_noticed_before_the_next_commit(
    store: Store, tmp_path: Path, suffix: str, what: Callable[[Path], None]
) -> None:
    what(tmp_path / f"state.db{suffix}")

    with pytest.raises(StoreMoved) as noticed:
        store.apply([said(2)])

    assert noticed.value.path == str(tmp_path / f"state.db{suffix}")
    assert store.committed_upto(A) == 1
    with pytest.raises(StoreMoved):
        store.answer(TotalsQuery(), deadline_s=1)


def test_a_file_that_is_replaced_within_a_transaction_is_not_committed_to(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreMoved), store._database.transaction():  # noqa: PT012
        store._database.execute("INSERT INTO meta VALUES ('a', 'b')")
        replaced(tmp_path / "state.db")

    assert not store._database._connection.in_transaction


def test_what_was_committed_while_the_file_was_replaced_counts_as_not_done(store: Store, tmp_path: Path) -> None:
    def replace_after_commit(_connection: apsw.Connection, _name: str, _pages: int) -> int:
        replaced(tmp_path / "state.db")
        return apsw.SQLITE_OK

    store._database._connection.set_wal_hook(replace_after_commit)

    with pytest.raises(StoreMoved):
        store.apply([said(2)])

    assert store.committed_upto(A) == 1


def test_closing_does_not_touch_the_files_that_were_put_in_place_of_ours(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    store.apply([said(1)])
    (tmp_path / "other").mkdir()
    other = Store(tmp_path / "other" / "state.db")
    other.apply([said(1, size=5000)])
    names = ("state.db", "state.db-wal", "state.db-shm")
    for name in names:
        (tmp_path / "other" / name).rename(tmp_path / name)
    before = {name: (tmp_path / name).read_bytes() for name in names}

    store.close()

    assert {name: (tmp_path / name).read_bytes() for name in names} == before
    other.close()


def test_closing_leaves_a_wal_that_is_not_ours_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    store.apply([said(1)])
    wal = tmp_path / "state.db-wal"
    wal.rename(tmp_path / "ours")
    wal.write_bytes(b"somebody else's")

    store.close()

    assert wal.read_bytes() == b"somebody else's"


def test_a_file_that_was_cut_is_noticed(store: Store, tmp_path: Path) -> None:
    store._database.checkpoint(truncate=True)

    os.truncate(tmp_path / "state.db", 8192)

    with pytest.raises(StoreMoved, match="was cut to 8192 bytes"):
        store.apply([said(2)])


def test_a_writer_from_outside_is_noticed_and_our_own_writes_are_not(store: Store, tmp_path: Path) -> None:
    store.apply([said(2)])
    assert store.inspect() == 0
    script = "import apsw, sys; apsw.Connection(sys.argv[1]).execute(\"INSERT INTO meta VALUES ('a', 'b')\")"

    subprocess.run([sys.executable, "-P", "-c", script, str(tmp_path / "state.db")], check=True)

    assert store.inspect() == 1
    assert store.inspect() == 1


def test_readers_do_not_hold_up_a_commit_and_a_checkpoint_does_not_wait_for_them(store: Store, tmp_path: Path) -> None:
    reader = apsw.Connection(str(tmp_path / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    rows = reader.execute("SELECT * FROM messages UNION ALL SELECT * FROM messages")
    next(rows)

    applied = store.apply([said(2)])

    assert applied.new == 1
    assert not store._database.checkpoint(truncate=True)
    reader.close()
    assert store._database.checkpoint(truncate=True)
    assert store.wal_bytes() == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield place
    # Lazily: a test that failed may have left a file open on it.
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(store: Store) -> int:
    """Apply until it fails; return how many records were applied."""
    seq = 1
    with pytest.raises(StoreFull):  # noqa: PT012
        while True:
            store.apply([said(seq, size=3000), said(seq + 1, size=3000)])
            seq += 2
    return seq - 1


def test_a_full_disk_takes_back_the_batch_and_what_was_committed_stays(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(300_000))
    store = Store(small_disk / "state.db")

    kept = fill(store)

    assert kept > 10
    assert store.committed_upto(A) == kept
    assert store.totals(TotalsQuery()).messages == kept
    ballast.unlink()
    assert store.apply([said(kept + 1, size=3000), said(kept + 2, size=3000)]).new == 2
    assert store.totals(TotalsQuery()).messages == kept + 2
    assert store._database.execute("PRAGMA integrity_check") == [("ok",)]
    store.close()


def test_a_database_at_its_size_limit_is_full(store: Store) -> None:
    store._database.execute("PRAGMA max_page_count = 40")
    store.apply([said(2)])
    with pytest.raises(StoreFull):
        store.apply([said(seq, size=3000) for seq in range(3, 100)])

    assert store.committed_upto(A) == 2
    assert store.totals(TotalsQuery()).messages == 2
    assert store.apply([said(3)]).new == 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_cannot_use_its_parents_store(store: Store) -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child
        try:
            store.apply([said(2)])
            os.write(write, b"written")
        except StoreError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)

    said_by_child = os.read(read, 4096).decode()

    os.close(read)
    assert f"was opened by process {os.getpid()}" in said_by_child
    assert store.apply([said(2)]).new == 1


def test_another_thread_cannot_use_the_connection(store: Store) -> None:
    raised: list[BaseException] = []

    def use() -> None:
        try:
            store.rows()
        except AssertionError as error:
            raised.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()

    assert str(raised[0]).startswith("the connection belongs to one thread")
