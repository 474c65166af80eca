"""The list of sessions is in the order of commits, whatever clocks say."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from covey.protocol.ids import AgentId, CallId, Incarnation, SessionId
from covey.protocol.messages.ledger import (
    CallRecorded,
    CallStatus,
    LedgerRecord,
    MessageAppended,
    Place,
    SessionEnded,
    SessionOpened,
    Sessions,
    SessionsQuery,
    SessionTouched,
)
from covey.protocol.transcript import Message, Role
from covey.storage.store import Store

NAMES = ("a", "b", "c", "d")
_lives = itertools.count()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(tmp_path_factory.mktemp("sessions") / "state.db")
    yield store
    store.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "state.db")
    yield store
    store.close()


def keep(store: Store, *records: LedgerRecord) -> None:
    sender = Incarnation(f"inc_{next(_lives)}")
    store.apply([(sender, at, record) for at, record in enumerate(records, start=1)])


def page(store: Store, **more: object) -> Sessions:
    found = store.answer(SessionsQuery(**more), deadline_s=9.0)  # type: ignore[arg-type]
    assert isinstance(found, Sessions)
    return found


def names(store: Store, **more: object) -> list[str]:
    return [row.session for row in page(store, **more).rows]


def opened(session: str, **more: object) -> SessionOpened:
    fields: dict[str, object] = {"agent": AgentId("ag"), "goal": "g", "source": "run", "at_ms": 0}
    return SessionOpened(session=SessionId(session), **(fields | more))  # type: ignore[arg-type]


def activity(kind: int, session: str, number: int, at_ms: int) -> LedgerRecord:
    name = SessionId(session)
    match kind:
        case 0:
            message = Message(role=Role.USER, content="x")
            return MessageAppended(session=name, index=number, message=message, at_ms=at_ms)
        case 1:
            return CallRecorded(
                call=CallId(f"{session}-{number}"),
                provider="p",
                base_url="u",
                model="m",
                status=CallStatus.COMPLETED,
                started_at_ms=at_ms,
                session=name,
            )
        case 2:
            return SessionTouched(session=name, at_ms=at_ms)
        case _:
            return SessionEnded(session=name, outcome="done", at_ms=at_ms)


_COMMITS = st.lists(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(NAMES), st.integers(-(10**12), 10**12)), min_size=1, max_size=4
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(commits=_COMMITS)
def test_sessions_are_in_the_order_of_their_last_commit_with_clocks_that_run_anywhere(
    shared: Store, commits: list[list[tuple[int, str, int]]]
) -> None:
    source = f"source-{next(_lives)}"
    keep(shared, *(opened(source + name, source=source) for name in NAMES))
    last = dict.fromkeys(NAMES, -1)
    for number, commit in enumerate(commits):
        keep(
            shared,
            *(activity(kind, source + name, number * 10 + at, when) for at, (kind, name, when) in enumerate(commit)),
        )
        last.update((name, number) for _, name, _ in commit)

    expected = sorted(NAMES, key=lambda name: (last[name], name), reverse=True)
    assert names(shared, source=source) == [source + name for name in expected]
    assert names(shared, limit=4) == [source + name for name in expected]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(limit=st.integers(1, 5), data=st.data())
def test_pages_together_are_the_list(shared: Store, limit: int, data: st.DataObject) -> None:
    source = f"paged-{next(_lives)}"
    count = data.draw(st.integers(0, 9))
    for at in range(count):
        keep(shared, opened(f"{source}-{at}", source=source))

    found: list[str] = []
    before: Place | None = None
    while rows := page(shared, source=source, limit=limit, before=before).rows:
        found += [row.session for row in rows]
        before = rows[-1].place

    assert found == [f"{source}-{at}" for at in reversed(range(count))]


def test_a_list_can_be_kept_to_a_source_a_profile_a_parent_or_the_top(store: Store) -> None:
    keep(
        store,
        opened("top", source="run", profile="work"),
        opened("child", source="run", profile="home", parent="top"),
        opened("other", source="swarm", profile="work"),
    )

    assert names(store) == ["other", "child", "top"]
    assert names(store, source="run") == ["child", "top"]
    assert names(store, profile="work") == ["other", "top"]
    assert names(store, source="run", profile="work") == ["top"]
    assert names(store, parent=SessionId("top")) == ["child"]
    assert names(store, top=True) == ["other", "top"]
    assert names(store, top=True, source="swarm", profile="work", parent=SessionId("top")) == []


def test_a_session_of_which_only_calls_are_known_is_listed_below_its_parent(store: Store) -> None:
    call = activity(1, "theirs", 0, 5)
    assert isinstance(call, CallRecorded)
    keep(
        store,
        CallRecorded(**{name: getattr(call, name) for name in call.__struct_fields__} | {"parent": SessionId("p")}),
    )

    (row,) = page(store).rows
    assert (row.session, row.parent, row.agent, row.active_at_ms) == ("theirs", "p", None, 5)
    keep(store, opened("theirs", goal="found"))
    (row,) = page(store).rows
    assert (row.goal, row.parent) == ("found", "p")


def test_names_that_are_no_text_hold_up_no_other_record(store: Store) -> None:
    keep(store, opened("\ud800"), opened("s"), activity(0, "\ud800", 0, 0), activity(0, "s", 0, 1 << 80))

    assert names(store) == ["s"]
