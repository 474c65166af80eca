"""Who moves the WAL into the database and when, and that it stays small beside commits and readers."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import apsw
import pytest

from covey.protocol.ids import Incarnation, SessionId
from covey.protocol.messages.ledger import MessageAppended, TotalsQuery
from covey.protocol.transcript import Message, Role
from covey.storage import checkpoints, store
from covey.storage.checkpoints import (
    FEW_PAGES,
    FORCED_PAGES,
    RETRY_S,
    TRUNCATE_IDLE_S,
    WORTHWHILE_PAGES,
    Checkpoint,
    due,
)
from covey.storage.inbox import Delivery
from covey.storage.store import Store

A = Incarnation("inc_a")


def said(seq: int, *, size: int = 3000) -> Delivery:
    message = Message(role=Role.USER, content="x" * size)
    return (A, seq, MessageAppended(session=SessionId("s"), index=seq - 1, message=message, at_ms=0))


@pytest.mark.parametrize(
    ("wal_pages", "moved_pages", "idle_s", "since_last_s", "has_helped", "expected"),
    [
        pytest.param(10, 0, 0.0, 9.0, False, None, id="little is not worth it"),
        pytest.param(WORTHWHILE_PAGES, 0, 0.0, 9.0, False, Checkpoint.HELPER, id="enough is moved beside the commits"),
        pytest.param(WORTHWHILE_PAGES, 0, 0.0, 0.0, False, None, id="not at once again"),
        pytest.param(FORCED_PAGES, 0, 0.0, 9.0, False, Checkpoint.HELPER, id="a large one by the helper first"),
        pytest.param(
            FORCED_PAGES, FORCED_PAGES - 9, 0.0, 0.0, True, Checkpoint.FINISH, id="then the few that are left"
        ),
        pytest.param(FORCED_PAGES + FEW_PAGES + 1, FORCED_PAGES, 0.0, 0.0, True, None, id="but not many"),
        pytest.param(
            FORCED_PAGES, FORCED_PAGES - 9, 0.0, RETRY_S, False, Checkpoint.FINISH, id="a reader was in the way"
        ),
        pytest.param(FORCED_PAGES, FORCED_PAGES, 0.0, 9.0, False, None, id="all is moved"),
        pytest.param(1, 0, TRUNCATE_IDLE_S, 9.0, False, Checkpoint.HELPER, id="at rest all is moved"),
        pytest.param(1, 1, TRUNCATE_IDLE_S, 9.0, False, Checkpoint.TRUNCATE, id="then the WAL is cut"),
    ],
)
def test_which_checkpoint_is_due(  # noqa: PLR0917 - a table
    wal_pages: int, moved_pages: int, idle_s: float, since_last_s: float, has_helped: bool, expected: Checkpoint | None
) -> None:
    found = due(
        wal_pages=wal_pages,
        moved_pages=moved_pages,
        wal_bytes=wal_pages * 4096,
        idle_s=idle_s,
        since_last_s=since_last_s,
        has_helped=has_helped,
    )

    assert found is expected


def wait_for_helper(store: Store) -> None:
    deadline = time.monotonic() + 10
    while store._helper._results.empty():
        assert time.monotonic() < deadline, "the helper says nothing"
        time.sleep(0.001)


def rest(store: Store) -> None:
    deadline = time.monotonic() + 10
    while store.wal_bytes():
        assert time.monotonic() < deadline, "the WAL is not cut"
        store.maintain(idle_s=TRUNCATE_IDLE_S, since_last_s=RETRY_S)


def test_a_wal_that_a_killed_ledger_left_is_taken_in_at_rest_by_the_helper_first(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    store.apply([said(seq) for seq in range(1, 100)])
    store._database._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    store.close()

    store = Store(tmp_path / "state.db")
    store.maintain(idle_s=TRUNCATE_IDLE_S, since_last_s=RETRY_S)

    assert bool(store._helper.is_at_work)
    rest(store)
    assert store.totals(TotalsQuery()).messages == 99
    store.close()


def test_under_load_the_wal_begins_anew_and_stays_small_and_nobody_takes_us_for_a_stranger(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    last, largest = 0.0, 0

    for seq in range(1, 6001, 60):
        store.apply([said(number) for number in range(seq, seq + 60)])
        last = 0.0 if store.maintain(idle_s=0.0, since_last_s=last) else last + RETRY_S / 4
        largest = max(largest, store.wal_bytes())
        if store._helper.is_at_work:
            wait_for_helper(store)

    assert largest < 2 * FORCED_PAGES * 4096
    assert store._database.wal_pages < 2 * FORCED_PAGES
    assert store.inspect() == 0
    store.close()
    assert not (tmp_path / "state.db-wal").exists()


def test_a_commit_does_not_wait_for_the_helper(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    store.apply([said(seq) for seq in range(1, 500)])
    assert store.maintain(idle_s=0.0, since_last_s=1.0)
    assert bool(store._helper.is_at_work)

    assert store.apply([said(500)]).new == 1

    wait_for_helper(store)
    assert store.maintain(idle_s=0.0, since_last_s=0.0)
    assert not store._helper.is_at_work
    assert store._database.moved_pages > 0
    store.close()


READER = """
import apsw, sys
reader = apsw.Connection(sys.argv[1], flags=apsw.SQLITE_OPEN_READONLY)
rows = reader.execute("SELECT * FROM messages UNION ALL SELECT * FROM messages")
next(rows)
print("reading", flush=True)
sys.stdin.readline()
"""


def test_a_reader_that_never_ends_raises_the_alarm_and_the_wal_is_taken_in_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store, "LARGE_BYTES", 1 << 20)
    ledger = Store(tmp_path / "state.db")
    ledger.apply([said(1)])
    reader = subprocess.Popen(
        [sys.executable, "-P", "-c", READER, str(tmp_path / "state.db")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert reader.stdout is not None
    reader.stdout.readline()

    ledger.apply([said(seq) for seq in range(2, 600)])
    ledger.maintain(idle_s=checkpoints.TRUNCATE_IDLE_S, since_last_s=1.0)

    assert ledger.is_wal_large
    assert caplog.text.count("wal_large") == 1
    assert ledger.totals(TotalsQuery()).messages == 599
    reader.communicate()
    rest(ledger)
    ledger.maintain(idle_s=0.0, since_last_s=0.0)
    assert not bool(ledger.is_wal_large)
    assert ledger.wal_bytes() == 0
    ledger.close()


def test_readers_of_other_processes_can_only_read(tmp_path: Path) -> None:
    ledger = Store(tmp_path / "state.db")
    reader = apsw.Connection(str(tmp_path / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)

    with pytest.raises(apsw.ReadOnlyError):
        reader.execute("DELETE FROM messages")

    reader.close()
    ledger.close()
