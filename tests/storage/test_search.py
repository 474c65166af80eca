"""Messages are found by their words; a damaged index costs the search and no message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from covey.protocol.errors import StoreDamaged
from covey.protocol.ids import Incarnation, SessionId
from covey.protocol.messages.ledger import Found, MessageAppended, SearchQuery, TotalsQuery, TranscriptQuery
from covey.protocol.transcript import Message, Role, ToolCall
from covey.storage import search
from covey.storage.store import Store

A = Incarnation("inc_a")
S = SessionId("s")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = Store(path)
    yield store
    store.close()


def said(index: int, text: str, *, session: str = "s", **more: object) -> MessageAppended:
    message = more.pop("message", None) or Message(role=Role.USER, content=text)
    return MessageAppended(session=SessionId(session), index=index, message=message, at_ms=-index, **more)  # type: ignore[arg-type]


def keep(store: Store, *records: MessageAppended) -> None:
    first = store.committed_upto(A) + 1
    store.apply([(A, first + at, record) for at, record in enumerate(records)])


def find(store: Store, text: str, **more: object) -> Found:
    found = store.answer(SearchQuery(text=text, **more), deadline_s=9.0)  # type: ignore[arg-type]
    assert isinstance(found, Found)
    return found


def indices(found: Found) -> list[int]:
    return [hit.index for hit in found.hits]


def texts(store: Store) -> list[str]:
    return [message.content for message in store.transcript(TranscriptQuery(session=S)).messages]


def test_the_newest_hit_comes_first_whatever_the_clock_said(store: Store) -> None:
    keep(store, said(0, "an apple"), said(1, "a pear"), said(2, "Äpple pie and apples"), said(3, "APPLE"))

    assert indices(find(store, "apple")) == [3, 2, 0]
    assert indices(find(store, "app* -pie")) == [2]
    assert find(store, "apple").problem is None


def test_hits_come_in_pages(store: Store) -> None:
    keep(store, *(said(at, "word") for at in range(5)))

    first = find(store, "word", limit=2)
    rest = find(store, "word", before=first.hits[-1].row)

    assert indices(first) + indices(rest) == [4, 3, 2, 1, 0]


def test_a_search_can_be_kept_to_one_session(store: Store) -> None:
    keep(store, said(0, "word"), said(7, "word", session="other"))

    assert indices(find(store, "word", session=SessionId("other"))) == [7]


def test_a_snippet_shows_what_was_found(store: Store) -> None:
    keep(store, said(0, "far " * 50 + "the needle here" + " away" * 50))

    (hit,) = find(store, "needle").hits

    assert "the \x02needle\x03 here" in hit.snippet
    assert len(hit.snippet) < 300


def test_what_a_tool_was_asked_is_found_and_of_its_output_the_beginning(store: Store) -> None:
    call = ToolCall(id="t", name="terminal", arguments='{"command": "make install"}')
    keep(
        store,
        said(0, "", message=Message(role=Role.ASSISTANT, tool_calls=(call,))),
        said(1, "", message=Message(role=Role.TOOL, content="early " + "x " * 8192 + "late", tool_call_id="t")),
    )

    assert indices(find(store, "install")) == [0]
    assert indices(find(store, "early")) == [1]
    assert indices(find(store, "late")) == []


def test_a_hidden_message_is_not_found_and_its_text_for_the_model_never(store: Store) -> None:
    keep(store, said(0, "secret", display_kind="hidden"), said(1, "shown", api_content="shown with secret"))

    assert indices(find(store, "secret")) == []
    assert indices(find(store, "shown")) == [1]


def test_a_text_without_a_word_finds_nothing_and_is_no_error(store: Store) -> None:
    keep(store, said(0, "word"))

    assert find(store, '"" *** AND').hits == find(store, "").hits == ()


# --- damage ----------------------------------------------------------------------------------------------------------


def outside(path: Path, *statements: str) -> None:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement).fetchall()
    connection.close()


def overwrite_root(path: Path, table: str) -> None:
    connection = apsw.Connection(str(path))
    (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchall()[0]
    connection.close()
    assert isinstance(root, int)
    content = bytearray(path.read_bytes())
    content[(root - 1) * 4096 : root * 4096] = b"\xa5" * 4096
    path.write_bytes(content)


def spoil_rows(path: Path) -> None:
    """What FTS5 reads first is no structure of an index any more."""
    outside(path, "UPDATE messages_fts_data SET block = x'ffffffffffffffff'")


def spoil_pages(path: Path) -> None:
    """The pages of a tree of the index are overwritten in the file itself."""
    overwrite_root(path, "messages_fts_data")


def lose_a_table(path: Path) -> None:
    outside(path, "DROP TABLE messages_fts_idx")


def lose_the_table_it_opens_with(path: Path) -> None:
    outside(path, "DROP TABLE messages_fts_config")


DAMAGES = [
    pytest.param(spoil_rows, id="its rows are nonsense"),
    pytest.param(spoil_pages, id="its pages are nonsense"),
    pytest.param(lose_a_table, id="a table of it is gone"),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_costs_no_message_and_is_made_anew(path: Path, damage: Callable[[Path], None]) -> None:
    store = Store(path)
    keep(store, said(0, "word"), said(1, "word"))
    store.close()
    damage(path)

    store = Store(path)
    keep(store, said(2, "word"), said(3, "word"))

    assert texts(store) == ["word"] * 4
    assert store.totals(TotalsQuery()).messages == 4
    assert find(store, "word").problem is not None
    while store.mend_search():
        pass
    assert (indices(find(store, "word")), find(store, "word").problem) == ([3, 2, 1, 0], None)
    keep(store, said(4, "word"))
    assert indices(find(store, "word")) == [4, 3, 2, 1, 0]
    store.close()
    store = Store(path)
    assert find(store, "word").problem is None
    store.close()


def test_an_index_that_cannot_even_be_opened_costs_no_message(path: Path) -> None:
    store = Store(path)
    keep(store, said(0, "word"))
    store.close()
    lose_the_table_it_opens_with(path)

    for at in (1, 2):
        store = Store(path)
        keep(store, said(at, "word"))
        assert not store.mend_search()
        assert find(store, "word").problem is not None
        assert len(texts(store)) == at + 1
        store.close()


@pytest.mark.parametrize("damage", DAMAGES[::2])
def test_a_batch_that_met_a_damaged_index_is_committed_as_it_was(path: Path, damage: Callable[[Path], None]) -> None:
    store = Store(path)
    keep(store, said(0, "word"))
    outside_commit = store.committed_upto(A)
    store.close()
    damage(path)
    store = Store(path)
    store._check = lambda: None  # type: ignore[method-assign]

    keep(store, *(said(at, "word") for at in range(1, 700)))

    assert (outside_commit, store.committed_upto(A)) == (1, 700)
    assert len(texts(store)) == 700
    assert store._database.execute("SELECT count(*) FROM unstorable") == [(0,)]
    store.close()


def test_a_search_that_meets_damage_is_answered_and_the_store_stays_sound(path: Path) -> None:
    store = Store(path)
    keep(store, said(0, "word"))
    store._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with apsw.Connection(str(path)) as other:
        other.execute("UPDATE messages_fts_data SET block = x'ffffffffffffffff'")
    other.close()

    assert find(store, "word").problem is not None

    keep(store, said(1, "more"))
    assert texts(store) == ["word", "more"]
    assert not search.is_on(store._database)
    store.close()


def test_damage_of_the_messages_themselves_is_not_blamed_on_the_index(path: Path) -> None:
    store = Store(path)
    keep(store, *(said(at, "word " * 500) for at in range(50)))
    store.close()
    overwrite_root(path, "messages")

    with pytest.raises(StoreDamaged):
        Store(path)


def test_mending_goes_in_steps_and_on_after_a_restart(path: Path) -> None:
    store = Store(path)
    keep(store, *(said(at, "word") for at in range(30)))
    with search.turned_off(store._database, "for a test"):
        pass
    keep(store, said(30, "word"))

    assert search.mend(store._database)  # the new index
    keep(store, said(31, "word"))
    assert search.mend(store._database, rows=10)
    assert indices(find(store, "word", limit=99)) == [31, *reversed(range(10))]
    store.close()
    store = Store(path)
    assert search.mend(store._database, rows=10)
    assert search.mend(store._database, rows=10)
    assert not search.mend(store._database, rows=10)

    assert indices(find(store, "word", limit=99)) == list(reversed(range(32)))
    assert not store.mend_search()
    store._database.execute("INSERT INTO messages_fts (messages_fts, rank) VALUES ('integrity-check', 1)")
    store.close()


def test_an_index_that_fails_again_stays_off_until_the_next_start(path: Path) -> None:
    store = Store(path)
    for at in range(2):
        keep(store, said(at, "word"))
        store._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        outside(path, "UPDATE messages_fts_data SET block = x'ffffffffffffffff'")
        keep(store, said(at + 10, "word"))
        if at == 0:
            while store.mend_search():
                pass

    assert not search.is_on(store._database)
    assert not store.mend_search()
    store.close()
    store = Store(path)
    assert store.mend_search()
    store.close()
