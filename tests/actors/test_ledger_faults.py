"""Every write, sync and open of the database fails once: what was acknowledged is there, once, and nothing else breaks.

The faults are real ones to SQLite: they come from a file system of the test's own below it.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from covey.actors.ledger_keeper import Keeper
from covey.protocol.errors import StoreError
from covey.protocol.ids import Incarnation, SessionId
from covey.protocol.messages.ledger import MessageAppended
from covey.protocol.transcript import Message, Role
from covey.storage.inbox import Delivery

A = Incarnation("inc_a")
BATCHES = 8
TRIES = 3


def said(seq: int) -> Delivery:
    message = Message(role=Role.USER, content=f"message {seq} " + "x" * 2000)
    return (A, seq, MessageAppended(session=SessionId("s"), index=seq - 1, message=message, at_ms=0))


class Flaky(apsw.VFS):
    """Fails one call of one kind: the `nth`, counted from 1."""

    def __init__(self, what: str, nth: int) -> None:
        super().__init__("flaky", "unix")
        self.what, self.nth = what, nth
        self.calls: Counter[str] = Counter()
        self.has_failed = False

    def xOpen(self, name: apsw.URIFilename | str | None, flags: list[int]) -> FlakyFile:
        self.count("open", apsw.CantOpenError("the test says no"))
        return FlakyFile(self, name, flags)

    def count(self, what: str, error: apsw.Error) -> None:
        self.calls[what] += 1
        if what == self.what and self.calls[what] == self.nth:
            self.has_failed = True
            raise error


class FlakyFile(apsw.VFSFile):
    def __init__(self, flaky: Flaky, name: apsw.URIFilename | str | None, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._flaky = flaky

    def xWrite(self, data: bytes, offset: int) -> None:
        self._flaky.count("write", apsw.IOError("the test says no"))
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._flaky.count("sync", apsw.IOError("the test says no"))
        super().xSync(flags)

    def xTruncate(self, size: int) -> None:
        self._flaky.count("truncate", apsw.IOError("the test says no"))
        super().xTruncate(size)


@contextmanager
def flaky(what: str, nth: int) -> Iterator[Flaky]:
    below = Flaky(what, nth)
    apsw.set_default_vfs("flaky")
    try:
        yield below
    finally:
        apsw.set_default_vfs("unix")
        below.unregister()


def work(database: Path) -> list[int]:
    """Open, keep records with checkpoints between them, close; the numbers that were acknowledged."""
    try:
        keeper = Keeper(database, on_lasting_fault=lambda: None)
    except StoreError:
        return []
    acknowledged: list[int] = []
    for seq in range(1, BATCHES + 1):
        for _ in range(TRIES):
            if keeper.apply([said(seq)]):
                acknowledged.append(seq)
                break
        if seq % 3 == 0 and keeper.standing.fault is None:
            try:
                keeper._store._database.checkpoint(truncate=seq % 2 == 0)
            except StoreError as error:
                keeper.fail(error)
    keeper.close()
    return acknowledged


def kept(database: Path) -> list[int]:
    """What a ledger that is started anew has, after it took in the journal."""
    keeper = Keeper(database, on_lasting_fault=lambda: None)
    while keeper.can_take_in:
        keeper.take_in()
    assert keeper.standing.fault is None
    assert keeper._store._database.execute("PRAGMA integrity_check") == [("ok",)]
    rows = keeper._store._database.execute("SELECT idx FROM messages ORDER BY idx")
    keeper.close()
    return [int(str(index)) + 1 for (index,) in rows]


@pytest.mark.parametrize("what", [pytest.param("write", marks=pytest.mark.slow), "sync", "open", "truncate"])
def test_whichever_call_fails_what_was_acknowledged_is_there_once(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")
    faults = 0
    for nth in itertools.count(1):
        home = tmp_path / str(nth)
        home.mkdir()
        with flaky(what, nth) as below:
            acknowledged = work(home / "state.db")
        if not below.has_failed:
            break
        faults += 1

        found = kept(home / "state.db")

        assert found[: len(acknowledged)] == acknowledged, (what, nth)
        assert len(set(found)) == len(found), (what, nth)
        assert not (home / "state.db.pending").exists()

    assert faults >= {"write": 20, "sync": 8, "open": 2, "truncate": 1}[what]
    assert acknowledged == list(range(1, BATCHES + 1))


def test_after_a_sync_that_failed_the_file_is_not_trusted_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = Keeper(tmp_path / "state.db", on_lasting_fault=lambda: None)
    keeper.close()
    with flaky("sync", 1) as below:
        below.nth = 1 << 30
        keeper = Keeper(tmp_path / "state.db", on_lasting_fault=lambda: None)
        assert keeper.apply([said(1)])
        below.nth = below.calls["sync"] + 1

        assert keeper.apply([said(2)])

        assert keeper.standing.is_lasting
        assert type(keeper.standing.fault).__name__ == "StoreBroken"
        writes = below.calls["write"]
        assert keeper.apply([said(3)])
        assert below.calls["write"] == writes
        assert keeper.committed_upto(A) == 3
        keeper.close()
    assert kept(tmp_path / "state.db") == [1, 2, 3]


@pytest.mark.parametrize("call", ["fsync", "write"])
def test_a_journal_that_takes_nothing_acknowledges_nothing_until_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    keeper = Keeper(tmp_path / "state.db", on_lasting_fault=lambda: None)
    assert keeper.apply([said(1)])
    (tmp_path / "state.db").unlink()
    assert keeper.apply([said(2)])
    with monkeypatch.context() as patch:
        patch.setattr(os, call, _refuse)

        assert not keeper.apply([said(3)])

    assert keeper.standing.is_waiting
    assert keeper.committed_upto(A) == 2
    assert keeper.apply([said(3)])
    keeper.close()
    assert kept(tmp_path / "state.db") == [2, 3]


def _refuse(*arguments: object) -> Callable[[], None]:
    raise OSError(5, "Input/output error")
