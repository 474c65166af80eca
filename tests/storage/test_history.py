"""What an earlier root had spent is found again, wherever its last records are."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from covey.protocol.ids import Incarnation
from covey.protocol.messages.ledger import ChildRestarted, Restarts, RestartsQuery
from covey.storage.history import recent_restarts
from covey.storage.outbox import Outbox
from covey.storage.store import Store


def restart(life: str, at_ms: int, child: str = "broker") -> ChildRestarted:
    return ChildRestarted(child=child, incarnation=Incarnation(life), reason="SIGKILL", at_ms=at_ms)


def lives(records: tuple[ChildRestarted, ...]) -> list[str]:
    return [record.incarnation for record in records]


@pytest.fixture
def outbox(tmp_path: Path) -> Path:
    (tmp_path / "outbox").mkdir()
    return tmp_path / "outbox"


def store_records(path: Path, *records: ChildRestarted) -> None:
    store = Store(path)
    store.apply([(Incarnation("root"), seq, record) for seq, record in enumerate(records, 1)])
    store.close()


def spool(outbox: Path, *records: ChildRestarted, role: str = "root", life: str = "dead") -> Outbox:
    box = Outbox(outbox, role=role, incarnation=Incarnation(life))
    for seq, record in enumerate(records, 1):
        box.append(seq, record)
    return box


def test_a_home_without_a_past_has_no_history(tmp_path: Path, outbox: Path) -> None:
    assert recent_restarts(tmp_path / "state.db", outbox, role="root", since_ms=0) == ()
    assert not (tmp_path / "state.db").exists()


def test_history_is_what_was_stored_and_what_was_not_yet(tmp_path: Path, outbox: Path) -> None:
    store_records(tmp_path / "state.db", restart("a", 100), restart("b", 300))
    spool(outbox, restart("c", 200), restart("b", 300)).close()

    found = recent_restarts(tmp_path / "state.db", outbox, role="root", since_ms=0)

    assert lives(found) == ["a", "c", "b"]


def test_history_begins_where_it_is_asked_for(tmp_path: Path, outbox: Path) -> None:
    store_records(tmp_path / "state.db", restart("a", 100), restart("b", 200))
    spool(outbox, restart("c", 100), restart("d", 200)).close()

    assert lives(recent_restarts(tmp_path / "state.db", outbox, role="root", since_ms=200)) == ["d", "b"]


def test_the_word_of_others_is_no_history(tmp_path: Path, outbox: Path) -> None:
    spool(outbox, restart("a", 100), role="worker").close()

    assert recent_restarts(tmp_path / "state.db", outbox, role="root", since_ms=0) == ()


def test_history_is_read_beside_a_living_owner(tmp_path: Path, outbox: Path) -> None:
    store = Store(tmp_path / "state.db")
    store.apply([(Incarnation("root"), 1, restart("a", 100))])

    assert lives(recent_restarts(tmp_path / "state.db", outbox, role="root", since_ms=0)) == ["a"]

    store.apply([(Incarnation("root"), 2, restart("b", 200))])
    assert store.answer(RestartsQuery(since_ms=0), deadline_s=1.0) == Restarts(
        restarts=(restart("a", 100), restart("b", 200))
    )
    store.close()


@pytest.mark.parametrize(
    "content",
    [pytest.param(b"", id="empty"), pytest.param(b"no database" * 500, id="no database")],
)
def test_a_file_that_cannot_be_read_counts_as_no_history(tmp_path: Path, outbox: Path, content: bytes) -> None:
    (tmp_path / "state.db").write_bytes(content)

    assert recent_restarts(tmp_path / "state.db", outbox, role="root", since_ms=0) == ()
    assert (tmp_path / "state.db").read_bytes() == content


def test_a_database_from_before_there_was_a_history_is_upgraded_and_keeps_what_it_has(
    tmp_path: Path, outbox: Path
) -> None:
    connection = sqlite3.connect(tmp_path / "state.db")
    connection.executescript((Path(__file__).parent / "schemas" / "version_1.sql").read_text())
    connection.close()
    assert recent_restarts(tmp_path / "state.db", outbox, role="root", since_ms=0) == ()

    store_records(tmp_path / "state.db", restart("a", 100))

    assert lives(recent_restarts(tmp_path / "state.db", outbox, role="root", since_ms=0)) == ["a"]


def test_the_same_life_is_kept_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    store.apply([(Incarnation("one"), 1, restart("a", 100)), (Incarnation("two"), 1, restart("a", 900))])

    assert store.answer(RestartsQuery(since_ms=0), deadline_s=1.0) == Restarts(restarts=(restart("a", 100),))
    store.close()


def test_only_the_newest_are_given_when_there_are_more(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    store.apply([(Incarnation("root"), seq, restart(str(seq), seq)) for seq in range(1, 6)])

    found = store.answer(RestartsQuery(since_ms=0, limit=2), deadline_s=1.0)

    assert isinstance(found, Restarts)
    assert lives(found.restarts) == ["4", "5"]
    store.close()
