"""Adoption: what a dead sender left is found whole, and a live one's is not touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from covey.protocol.ids import Incarnation, SessionId
from covey.protocol.messages.ledger import LedgerRecord, SessionEnded
from covey.storage.orphans import adopt
from covey.storage.outbox import Outbox
from covey.storage.spool import End, frame, parse

LIFE = Incarnation("inc_1")


def record(number: int) -> LedgerRecord:
    return SessionEnded(session=SessionId(f"ses_{number}"), outcome="done", at_ms=number)


def leave(directory: Path, count: int, *, life: str = LIFE) -> Path:
    outbox = Outbox(directory, role="worker", incarnation=Incarnation(life))
    for number in range(1, count + 1):
        outbox.append(number, record(number))
    outbox._lock.close()  # as the kernel does when its process dies
    return outbox.path


def test_a_spool_is_handed_out_and_gone_once_it_is_forgotten(tmp_path: Path) -> None:
    leave(tmp_path, 3)

    (orphan,) = adopt(tmp_path)

    assert (orphan.role, orphan.incarnation) == ("worker", LIFE)
    assert list(orphan.entries) == [(number, record(number)) for number in (1, 2, 3)]
    assert list(adopt(tmp_path)) == []  # it is being adopted
    orphan.forget()
    assert os.listdir(tmp_path) == []


def test_a_released_spool_is_adopted_another_time(tmp_path: Path) -> None:
    leave(tmp_path, 1)
    (orphan,) = adopt(tmp_path)

    orphan.release()

    (again,) = adopt(tmp_path)
    assert again.entries == orphan.entries
    again.release()


def test_a_missing_directory_has_no_orphans(tmp_path: Path) -> None:
    assert list(adopt(tmp_path / "none")) == []


def test_the_spool_of_a_live_owner_is_not_touched(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, role="worker", incarnation=LIFE)
    outbox.append(1, record(1))

    assert list(adopt(tmp_path)) == []

    outbox.append(2, record(2))
    assert len(parse(outbox.path.read_bytes()).entries) == 2
    outbox.close()


def test_empty_spools_and_unfinished_rewrites_of_the_dead_are_removed(tmp_path: Path) -> None:
    leave(tmp_path, 0)
    (tmp_path / "worker-inc_2.spool").touch()
    (tmp_path / "worker-inc_3.spool.new").write_bytes(b"half")
    (tmp_path / "notes").touch()

    assert list(adopt(tmp_path)) == []

    assert os.listdir(tmp_path) == ["notes"]


def test_a_spool_cut_at_any_byte_gives_all_whole_records(tmp_path: Path) -> None:
    content = leave(tmp_path, 3).read_bytes()
    ends = [len(content) - sum(len(frame(n, record(n))) for n in range(first, 4)) for first in (2, 3, 4)]

    for length in range(len(content) + 1):
        spool = parse(content[:length])

        assert [seq for seq, _ in spool.entries] == [at + 1 for at, end in enumerate(ends) if length >= end]
        assert spool.end is not End.DAMAGED
        assert (spool.end is End.WHOLE) == (length in (*ends, ends[0] - len(frame(1, record(1)))))


def test_a_byte_that_was_changed_anywhere_makes_no_record_up(tmp_path: Path) -> None:
    content = leave(tmp_path, 3).read_bytes()
    whole = parse(content).entries

    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] ^= 0x41

        spool = parse(bytes(changed))

        assert spool.entries == whole[: len(spool.entries)]
        assert spool.end is not End.WHOLE


def test_what_does_not_read_is_kept_for_people_and_the_rest_is_adopted(tmp_path: Path) -> None:
    path = leave(tmp_path, 2)
    damaged = path.read_bytes() + bytes(64) + frame(3, record(3))
    path.write_bytes(damaged)

    (orphan,) = adopt(tmp_path)
    orphan.forget()

    assert [seq for seq, _ in orphan.entries] == [1, 2]
    assert os.listdir(tmp_path) == ["worker-inc_1.spool.damaged"]
    assert (tmp_path / "worker-inc_1.spool.damaged").read_bytes() == damaged
    assert list(adopt(tmp_path)) == []


SENDER = """
import sys
from pathlib import Path
from covey.protocol.ids import Incarnation, SessionId
from covey.protocol.messages.ledger import SessionEnded
from covey.storage.outbox import Outbox
outbox = Outbox(Path(sys.argv[1]), role="worker", incarnation=Incarnation("killed"), compact_bytes=5000)
number = 0
while True:
    number += 1
    outbox.append(number, SessionEnded(session=SessionId(f"ses_{number}"), outcome="done", at_ms=number))
    outbox.acknowledge(number - 50)
    print(number, flush=True)
"""


@pytest.mark.kill
@pytest.mark.parametrize("lines", [1, 60, 500])
def test_what_a_killed_sender_had_appended_is_adopted_and_not_before(tmp_path: Path, lines: int) -> None:
    sender = subprocess.Popen([sys.executable, "-P", "-c", SENDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert sender.stdout is not None
    seen = [int(sender.stdout.readline()) for _ in range(lines)]
    adopted_alive = list(adopt(tmp_path))

    sender.send_signal(signal.SIGKILL)
    seen += [int(line) for line in sender.stdout.read().split("\n")[:-1]]
    sender.stdout.close()
    sender.wait()

    assert adopted_alive == []
    (orphan,) = adopt(tmp_path)
    numbers = [seq for seq, _ in orphan.entries]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert numbers[0] <= max(1, numbers[-1] - 49)
    assert numbers[-1] in (seen[-1], seen[-1] + 1)
    orphan.forget()


def test_an_owner_that_starts_while_somebody_adopts_has_its_spool(tmp_path: Path) -> None:
    done = threading.Event()
    adopted: list[object] = []

    def keep_adopting() -> None:
        while not done.is_set():
            adopted.extend(adopt(tmp_path))

    adopter = threading.Thread(target=keep_adopting)
    adopter.start()
    outboxes = []
    for number in range(200):
        outbox = Outbox(tmp_path, role="worker", incarnation=Incarnation(f"inc_{number}"))
        outbox.append(1, record(number))
        outboxes.append(outbox)
    done.set()
    adopter.join()

    assert adopted == []
    assert all(len(parse(outbox.path.read_bytes()).entries) == 1 for outbox in outboxes)
    for outbox in outboxes:
        outbox.acknowledge(1)
        outbox.close()
    assert os.listdir(tmp_path) == []
