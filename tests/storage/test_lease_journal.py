"""The lease journal: what was answered is on file, whatever happens to the broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from covey.protocol.errors import AlreadyRunning, StoreError, StoreFull
from covey.protocol.ids import BudgetKey, CallId, Incarnation
from covey.protocol.peer import Peer
from covey.storage.lease_journal import MAGIC, LeaseJournal, read_lease_journal
from covey.storage.leases import Lease, LeaseEnded, LeaseGranted, LeaseRecord, Outstanding
from covey.storage.owners import me

KEY = BudgetKey("zai:1")


def lease(call: str) -> Lease:
    return Lease(
        call=CallId(call),
        budget=KEY,
        provider="zai",
        base_url="https://api.z.ai/v4",
        model="glm",
        holder=Peer(role="client", name="client", incarnation=Incarnation("inc_1"), owner=me()),
        granted_at=1.0,
        expires_at=61.0,
        waited_s=0.5,
        started_at_ms=1000,
    )


def granted(call: str, in_flight: int = 1) -> LeaseGranted:
    return LeaseGranted(lease=lease(call), in_flight=in_flight)


def ended(call: str) -> LeaseEnded:
    return LeaseEnded(call=CallId(call))


def said(state: Outstanding) -> list[LeaseRecord]:
    return list(state.records())


def test_a_new_journal_says_nothing(tmp_path: Path) -> None:
    journal = LeaseJournal(tmp_path / "leases", life="one")

    assert journal.state.leases == {}
    assert (tmp_path / "leases").stat().st_mode & 0o777 == 0o600
    journal.close()


def test_a_successor_reads_what_is_outstanding_and_the_totals(tmp_path: Path) -> None:
    journal = LeaseJournal(tmp_path / "leases", life="one")
    for record in (granted("a"), granted("b", 2), ended("a"), granted("c", 2), ended("c"), ended("c")):
        journal.append(record)
    journal.close()

    for _ in range(2):
        successor = LeaseJournal(tmp_path / "leases", life="one")
        assert successor.state.leases == {CallId("b"): lease("b")}
        assert (successor.state.totals[KEY].granted, successor.state.totals[KEY].peak_in_flight) == (3, 2)
        successor.close()


def test_in_another_life_of_the_fleet_totals_begin_anew_and_leases_stay(tmp_path: Path) -> None:
    journal = LeaseJournal(tmp_path / "leases", life="one")
    journal.append(granted("a"))
    journal.close()

    successor = LeaseJournal(tmp_path / "leases", life="two")

    assert list(successor.state.leases) == ["a"]
    assert successor.state.totals == {}
    successor.close()


def test_a_torn_tail_is_ignored_at_every_byte_and_written_over(tmp_path: Path) -> None:
    path = tmp_path / "leases"
    journal = LeaseJournal(path, life="one")
    ends, states = [path.stat().st_size], [said(journal.state)]
    for record in (granted("a"), granted("b", 2), ended("a")):
        journal.append(record)
        ends.append(path.stat().st_size)
        states.append(said(journal.state))
    journal.close()
    content = path.read_bytes()

    for cut in range(len(content)):
        path.write_bytes(content[:cut])

        state, torn = read_lease_journal(path)

        whole = sum(end <= cut for end in ends)
        assert said(state) == (states[whole - 1] if whole else said(state))
        if whole:
            assert torn == cut - ends[whole - 1]

    successor = LeaseJournal(path, life="one")
    successor.append(granted("c"))
    successor.close()
    state, torn = read_lease_journal(path)
    assert (list(state.leases), torn) == (["a", "b", "c"], 0)


@pytest.mark.parametrize("tail", [b"\0" * 64, b"\xff" * 64, b"\1\0\0\0\0\0\0\0x"], ids=["zeros", "ones", "bad crc"])
def test_a_tail_of_rubbish_is_ignored(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "leases"
    journal = LeaseJournal(path, life="one")
    journal.append(granted("a"))
    journal.close()
    with path.open("ab") as file:
        file.write(tail)

    successor = LeaseJournal(path, life="one")

    assert list(successor.state.leases) == ["a"]
    assert successor.ignored_bytes == len(tail)
    successor.close()


def test_another_kind_of_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "leases"
    path.write_bytes(b"SQLite format 3\0")

    with pytest.raises(StoreError, match="not a lease journal"):
        LeaseJournal(path, life="one")

    assert path.read_bytes() == b"SQLite format 3\0"


def test_a_record_of_a_newer_covey_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "leases"
    body = msgspec.msgpack.encode({"type": "renewed", "call": "a"})
    content = MAGIC + len(body).to_bytes(4, "little") + zlib.crc32(body).to_bytes(4, "little") + body
    path.write_bytes(content)

    with pytest.raises(StoreError, match="another covey"):
        LeaseJournal(path, life="one")

    assert path.read_bytes() == content


def test_a_second_broker_is_kept_out_and_told_who_is_in(tmp_path: Path) -> None:
    journal = LeaseJournal(tmp_path / "leases", life="one")

    with pytest.raises(AlreadyRunning) as refused:
        LeaseJournal(tmp_path / "leases", life="one")

    assert refused.value.pid == os.getpid()
    journal.close()
    LeaseJournal(tmp_path / "leases", life="one").close()


def test_the_file_stays_small_and_true_over_many_records(tmp_path: Path) -> None:
    path = tmp_path / "leases"
    journal = LeaseJournal(path, life="one", compact_bytes=4096)
    journal.append(granted("kept"))

    for n in range(500):
        journal.append(granted(f"c{n}", 2))
        journal.append(ended(f"c{n}"))
        assert path.stat().st_size <= 4096 + 1024

    journal.close()
    state, _ = read_lease_journal(path)
    assert list(state.leases) == ["kept"]
    assert (state.totals[KEY].granted, state.totals[KEY].peak_in_flight) == (501, 2)


def test_a_full_disk_refuses_the_record_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = LeaseJournal(tmp_path / "leases", life="one")
    journal.append(granted("a"))
    whole, write = (tmp_path / "leases").read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda fd, content: write(fd, content[:7]))

    with pytest.raises(StoreFull):
        journal.append(granted("b"))

    monkeypatch.undo()
    assert (tmp_path / "leases").read_bytes() == whole
    assert list(journal.state.leases) == ["a"]
    journal.append(granted("c"))
    assert list(read_lease_journal(tmp_path / "leases")[0].leases) == ["a", "c"]
    journal.close()


RECORDS = st.lists(
    st.one_of(st.builds(granted, st.sampled_from("abcdef")), st.builds(ended, st.sampled_from("abcdef")))
)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RECORDS, st.integers(64, 2000))
def test_file_and_state_agree_whatever_is_written(
    tmp_path_factory: pytest.TempPathFactory, records: list[LeaseRecord], compact_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("journal") / "leases"
    journal, model = LeaseJournal(path, life="one", compact_bytes=compact_bytes), Outstanding()
    model.begin_life("one")

    for record in records:
        journal.append(record)
        model.apply(record)
    journal.close()

    state, torn = read_lease_journal(path)
    assert torn == 0
    assert sorted(map(repr, said(state))) == sorted(map(repr, said(model)))


GRANTING = """
import os, sys
from pathlib import Path
import msgspec
from covey.storage.lease_journal import LeaseJournal
from covey.storage.leases import Lease, LeaseEnded, LeaseGranted

lease = msgspec.json.decode(sys.argv[2], type=Lease)
journal = LeaseJournal(Path(sys.argv[1]), life="one", compact_bytes=20_000)
for n in range(10_000_000):
    journal.append(LeaseGranted(lease=msgspec.structs.replace(lease, call=f"c{n}"), in_flight=min(n + 1, 3)))
    os.write(1, b"+%d\\n" % n)
    if n >= 2:
        os.write(1, b"-%d\\n" % (n - 2))
        journal.append(LeaseEnded(call=f"c{n - 2}"))
"""


@pytest.mark.kill
@pytest.mark.parametrize("answers", [1, 50, 777, 2003])
def test_after_sigkill_the_successor_knows_every_grant_that_was_answered(tmp_path: Path, answers: int) -> None:
    """The child says `+n` after grant n is on file, and `-n` before it writes that lease n ended."""
    argument = msgspec.json.encode(lease("c")).decode()
    child = subprocess.Popen(
        [sys.executable, "-c", GRANTING, str(tmp_path / "leases"), argument], stdout=subprocess.PIPE, cwd="/"
    )
    assert child.stdout is not None
    with child.stdout as out:
        lines = [out.readline() for _ in range(answers)]
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        lines += [line for line in out.read().splitlines(keepends=True) if line.endswith(b"\n")]

    successor = LeaseJournal(tmp_path / "leases", life="one")

    told = {int(line[1:]) for line in lines if line[:1] == b"+"}
    ending = {int(line[1:]) for line in lines if line[:1] == b"-"}
    known = {int(call[1:]) for call in successor.state.leases}
    assert told - ending <= known, "a grant that was answered is outstanding"
    assert len(known) <= 3 + 1
    assert successor.state.totals[KEY].granted in (len(told), len(told) + 1)
    assert successor.ignored_bytes == 0
    successor.close()
