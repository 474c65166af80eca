"""The sender's spool: what was appended is on file, what was acknowledged is forgotten, and it has bounds."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.protocol.errors import AlreadyRunning, OutboxFull, StoreError
from covey.protocol.ids import Incarnation, SessionId
from covey.protocol.messages.ledger import LedgerRecord, SessionEnded
from covey.storage.orphans import adopt
from covey.storage.outbox import Outbox
from covey.storage.spool import End, frame, parse

LIFE = Incarnation("inc_1")


def record(number: int, *, size: int = 10) -> LedgerRecord:
    return SessionEnded(session=SessionId(f"ses_{number}"), outcome="done", result="x" * size, at_ms=number)


def make(directory: Path, **bounds: int) -> Outbox:
    return Outbox(directory, role="worker", incarnation=LIFE, **bounds)


def on_file(outbox: Outbox) -> list[tuple[int, LedgerRecord]]:
    spool = parse(outbox.path.read_bytes())
    assert spool.end is End.WHOLE
    return list(spool.entries)


def test_the_spool_is_private_and_says_whose_it_is(tmp_path: Path) -> None:
    outbox = make(tmp_path)

    assert outbox.path == tmp_path / "worker-inc_1.spool"
    assert stat.S_IMODE(os.stat(outbox.path).st_mode) == 0o600
    sender = parse(outbox.path.read_bytes()).sender
    assert sender is not None
    assert (sender.role, sender.incarnation) == ("worker", LIFE)
    outbox.close()


def test_an_appended_record_is_on_file_before_append_returns(tmp_path: Path) -> None:
    outbox = make(tmp_path)

    outbox.append(1, record(1))
    outbox.append(2, record(2))

    assert on_file(outbox) == list(outbox.unacknowledged()) == [(1, record(1)), (2, record(2))]
    outbox.close()


def test_what_is_acknowledged_is_not_sent_again(tmp_path: Path) -> None:
    outbox = make(tmp_path)
    for number in (1, 2, 3):
        outbox.append(number, record(number))

    outbox.acknowledge(2)
    outbox.acknowledge(1)

    assert list(outbox.unacknowledged()) == [(3, record(3))]
    assert outbox.waiting == 1
    outbox.close()


def test_an_empty_spool_goes_with_its_owner(tmp_path: Path) -> None:
    outbox = make(tmp_path)
    outbox.append(1, record(1))
    outbox.acknowledge(1)

    outbox.close()
    outbox.close()

    assert os.listdir(tmp_path) == []


def test_a_spool_with_records_stays_for_adoption(tmp_path: Path) -> None:
    outbox = make(tmp_path)
    outbox.append(1, record(1))

    outbox.close()

    assert [(orphan.incarnation, *orphan.entries) for orphan in adopt(tmp_path)] == [(LIFE, (1, record(1)))]


@pytest.mark.parametrize(
    "bounds", [{"max_records": 2}, {"max_bytes": 2 * len(frame(1, record(1)))}], ids=["by count", "by bytes"]
)
def test_at_the_bound_a_record_is_refused_and_leaves_no_trace(tmp_path: Path, bounds: dict[str, int]) -> None:
    outbox = make(tmp_path, **bounds)
    outbox.append(1, record(1))
    outbox.append(2, record(2))
    before = outbox.path.read_bytes()

    with pytest.raises(OutboxFull) as refused:
        outbox.append(3, record(3))

    assert refused.value.waiting == 2
    assert outbox.path.read_bytes() == before
    outbox.acknowledge(1)
    outbox.append(3, record(3))
    assert [seq for seq, _ in outbox.unacknowledged()] == [2, 3]
    outbox.close()


def test_a_record_that_was_written_in_part_is_refused_and_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = make(tmp_path)
    outbox.append(1, record(1))
    write = os.write

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, content: write(fd, content[:7]))
        with pytest.raises(OutboxFull):
            outbox.append(2, record(2))
    outbox.append(2, record(2))

    assert on_file(outbox) == [(1, record(1)), (2, record(2))]
    outbox.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT], ids=errno.errorcode.get)
def test_a_full_disk_is_a_full_outbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    outbox = make(tmp_path)

    def refuse(fd: int, content: bytes) -> int:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(OutboxFull):
            outbox.append(1, record(1))
    outbox.append(1, record(1))

    assert on_file(outbox) == [(1, record(1))]
    outbox.close()


def test_one_life_has_one_spool(tmp_path: Path) -> None:
    outbox = make(tmp_path)

    with pytest.raises(AlreadyRunning):
        make(tmp_path)

    outbox.close()


def test_a_spool_of_this_life_with_records_is_not_begun_anew(tmp_path: Path) -> None:
    first = make(tmp_path)
    first.append(1, record(1))
    first.close()

    with pytest.raises(AlreadyRunning):
        make(tmp_path)


def test_a_closed_outbox_takes_nothing(tmp_path: Path) -> None:
    outbox = make(tmp_path)
    outbox.close()

    with pytest.raises(StoreError):
        outbox.append(1, record(1))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_cannot_append_to_its_parents_spool(tmp_path: Path) -> None:
    outbox = make(tmp_path)
    child = os.fork()
    if child == 0:  # pragma: no cover - the child
        try:
            outbox.append(1, record(1))
        except StoreError:
            os._exit(7)
        os._exit(0)

    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 7
    assert on_file(outbox) == []
    outbox.close()


def test_a_big_spool_is_cut_when_everything_is_acknowledged(tmp_path: Path) -> None:
    outbox = make(tmp_path, compact_bytes=1000)
    empty = os.stat(outbox.path).st_size
    for number in range(1, 51):
        outbox.append(number, record(number, size=100))

    outbox.acknowledge(50)

    assert os.stat(outbox.path).st_size == empty
    outbox.append(51, record(51))
    assert on_file(outbox) == [(51, record(51))]
    outbox.close()


def test_a_spool_that_is_never_empty_does_not_grow_for_ever(tmp_path: Path) -> None:
    outbox = make(tmp_path, compact_bytes=1000)
    largest, descriptors = 0, len(os.listdir("/proc/self/fd"))
    for number in range(1, 2001):
        outbox.append(number, record(number))
        outbox.acknowledge(number - 5)
        largest = max(largest, os.stat(outbox.path).st_size)

    assert largest < 5000
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert [seq for seq, _ in outbox.unacknowledged()] == [1996, 1997, 1998, 1999, 2000]
    assert on_file(outbox)[-5:] == list(outbox.unacknowledged())
    assert os.listdir(tmp_path) == [outbox.path.name]
    assert list(adopt(tmp_path)) == []
    outbox.close()


@settings(max_examples=50, deadline=None)
@given(steps=st.lists(st.one_of(st.just("append"), st.integers(0, 12)), max_size=60))
def test_the_spool_always_holds_what_is_not_acknowledged(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str | int]
) -> None:
    outbox = make(tmp_path_factory.mktemp("spool"), compact_bytes=150, max_records=10)
    last = acknowledged = 0
    for step in steps:
        if isinstance(step, int):
            acknowledged = max(acknowledged, min(step, last))
            outbox.acknowledge(step)
        elif last - acknowledged < 10:
            last += 1
            outbox.append(last, record(last))
        waiting = [(number, record(number)) for number in range(acknowledged + 1, last + 1)]
        assert list(outbox.unacknowledged()) == waiting
        assert on_file(outbox)[-len(waiting) or last + 1 :] == waiting
    outbox.acknowledge(last)
    outbox.close()
