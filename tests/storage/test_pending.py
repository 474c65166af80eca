"""The journal beside state.db: what is in it survives, what is torn or damaged is told apart, and it has a bound."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from covey.protocol.errors import AlreadyRunning, StoreFull
from covey.protocol.ids import Incarnation, SessionId
from covey.protocol.messages.ledger import MessageAppended
from covey.protocol.transcript import Message, Role
from covey.storage.inbox import Delivery
from covey.storage.pending import Pending, left_behind

A, B = Incarnation("inc_a"), Incarnation("inc_b")


def said(seq: int, sender: Incarnation = A, *, size: int = 10) -> Delivery:
    message = Message(role=Role.USER, content="x" * size)
    return (sender, seq, MessageAppended(session=SessionId("s"), index=seq, message=message, at_ms=0))


def journal(database: Path, *batches: list[Delivery]) -> Path:
    pending = Pending(database)
    for batch in batches:
        pending.append(batch)
    pending.close()
    return pending.path


def test_what_was_kept_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    database = tmp_path / "state.db"
    journal(database, [said(1), said(7, B)], [said(2)])

    pending = Pending(database)

    assert pending.deliveries == [said(1), said(7, B), said(2)]
    assert pending.records == 3
    pending.append([said(3)])
    assert pending.records == 4
    pending.close()
    assert Pending(database).deliveries[-1] == said(3)


def test_only_its_owner_may_read_it_and_there_is_one(tmp_path: Path) -> None:
    pending = Pending(tmp_path / "state.db")

    with pytest.raises(AlreadyRunning):
        Pending(tmp_path / "state.db")

    assert pending.path.stat().st_mode & 0o777 == 0o600
    pending.close()


def test_forgetting_removes_it(tmp_path: Path) -> None:
    journal(tmp_path / "state.db", [said(1)])
    assert left_behind(tmp_path / "state.db")

    Pending(tmp_path / "state.db").forget()

    assert os.listdir(tmp_path) == []
    assert not left_behind(tmp_path / "state.db")


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_record_whose_writer_was_killed_is_cut_off_and_others_follow(tmp_path: Path, cut: int) -> None:
    path = journal(tmp_path / "state.db", [said(1)], [said(2)])
    os.truncate(path, path.stat().st_size - cut)

    pending = Pending(tmp_path / "state.db")
    assert pending.deliveries == [said(1)]
    pending.append([said(3)])
    pending.close()

    assert Pending(tmp_path / "state.db").deliveries == [said(1), said(3)]


def test_zeros_that_a_crash_of_the_host_left_are_no_records_and_no_damage(tmp_path: Path) -> None:
    path = journal(tmp_path / "state.db", [said(1)])
    os.truncate(path, path.stat().st_size + 100)

    pending = Pending(tmp_path / "state.db")

    assert pending.deliveries == [said(1)]
    pending.forget()
    assert os.listdir(tmp_path) == []


def test_bytes_that_make_no_sense_are_kept_for_people(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = journal(tmp_path / "state.db", [said(1)], [said(2)], [said(3)])
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)

    pending = Pending(tmp_path / "state.db")
    pending.forget()

    assert pending.deliveries == [said(1)]
    assert os.listdir(tmp_path) == ["state.db.pending.damaged"]
    assert "pending_damaged" in caplog.text


def test_another_kind_of_file_is_no_journal_and_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")
    (tmp_path / "state.db.pending").write_bytes(b"something else entirely")

    pending = Pending(tmp_path / "state.db")
    pending.forget()

    assert pending.deliveries == []
    assert (tmp_path / "state.db.pending.damaged").read_bytes() == b"something else entirely"


def test_at_its_bound_a_batch_is_refused_whole_and_what_was_kept_stays(tmp_path: Path) -> None:
    pending = Pending(tmp_path / "state.db", max_bytes=4096)
    pending.append([said(1, size=2000)])

    with pytest.raises(StoreFull, match="more is not taken"):
        pending.append([said(2, size=1000), said(3, size=3000)])

    pending.append([said(2)])
    pending.close()
    assert [seq for _, seq, _ in Pending(tmp_path / "state.db").deliveries] == [1, 2]
