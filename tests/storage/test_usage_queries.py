"""Usage by model, session, tree, day and profile: what brute force over the rows makes of it, and what it covers."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from covey.protocol.ids import AgentId, CallId, Incarnation, SessionId
from covey.protocol.messages.ledger import (
    CallRecorded,
    CallStatus,
    LedgerRecord,
    SessionOpened,
    Totals,
    TotalsQuery,
    UsageBy,
    UsageQuery,
    UsageRows,
    UsageSums,
)
from covey.protocol.usage import Usage
from covey.storage.store import Store

_lives = itertools.count()
DAY_MS = 86_400_000
PARENTS = {"top": None, "child": "top", "grandchild": "child", "other": None, "lone": "circle", "circle": "lone"}
"""`lone` and `circle` call each other their parent: there is no top."""


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Store]]:
    stores: list[Store] = []

    def make() -> Store:
        while stores:
            stores.pop().close()
        stores.append(Store(tmp_path_factory.mktemp("usage") / "state.db"))
        return stores[0]

    yield make
    while stores:
        stores.pop().close()


def keep(store: Store, records: Iterable[LedgerRecord]) -> None:
    store.apply([(Incarnation(f"inc_{next(_lives)}"), 1, record) for record in records])


def opened(session: str) -> SessionOpened:
    parent = PARENTS[session]
    return SessionOpened(
        session=SessionId(session),
        agent=AgentId("a"),
        goal="g",
        source="run",
        parent=SessionId(parent) if parent else None,
        profile="work" if session == "top" else None,
        at_ms=0,
    )


def call(name: str, status: CallStatus = CallStatus.COMPLETED, **more: object) -> CallRecorded:
    fields: dict[str, object] = {"provider": "p", "base_url": "u", "model": "m", "started_at_ms": 0}
    return CallRecorded(call=CallId(name), status=status, **(fields | more))  # type: ignore[arg-type]


def usage(store: Store, by: UsageBy, **more: object) -> UsageRows:
    found = store.answer(UsageQuery(by=by, **more), deadline_s=9.0)  # type: ignore[arg-type]
    assert isinstance(found, UsageRows)
    return found


# --- brute force -----------------------------------------------------------------------------------------------------


def sums(calls: Iterable[CallRecorded]) -> UsageSums:
    taken = [one for one in calls if one.status is not CallStatus.REFUSED]
    refused = [one for one in calls if one.status is CallStatus.REFUSED]
    known = [one.usage for one in taken if one.usage is not None]
    nanos = [
        _nanos(one.cost_actual_usd if one.cost_actual_usd is not None else one.cost_estimated_usd) for one in taken
    ]
    costs = [nano for nano in nanos if nano is not None]

    def total(name: str) -> int | None:
        return sum(getattr(one, name) for one in known) if known else None

    return UsageSums(
        calls=len(taken),
        unknown_calls=len(taken) - len(known),
        refused_calls=len(refused),
        input_tokens=total("input"),
        output_tokens=total("output"),
        cache_read_tokens=total("cache_read"),
        cache_write_tokens=total("cache_write"),
        reasoning_tokens=total("reasoning"),
        cost_usd=sum(costs) / 1e9 if costs else None,
        cost_known_calls=len(costs),
        cost_estimated_usd=_dollars(one.cost_estimated_usd for one in taken),
        cost_actual_usd=_dollars(one.cost_actual_usd for one in taken),
    )


def _nanos(dollars: float | None) -> int | None:
    return None if dollars is None else round(dollars * 1e9)


def _dollars(costs: Iterable[float | None]) -> float | None:
    known = [nano for nano in map(_nanos, costs) if nano is not None]
    return sum(known) / 1e9 if known else None


def top_of(session: str | None) -> str | None:
    seen: set[str] = set()
    at = session
    while at is not None and PARENTS[at] is not None:
        if at in seen:
            return session
        seen.add(at)
        at = PARENTS[at]
    return at


def day_of(one: CallRecorded, offset_s: int) -> str:
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(
        milliseconds=one.started_at_ms, seconds=offset_s
    )
    return moment.date().isoformat()


def key_of(by: UsageBy, one: CallRecorded, offset_s: int) -> str | None:
    match by:
        case UsageBy.MODEL:
            return one.model
        case UsageBy.SESSION:
            return one.session
        case UsageBy.TREE:
            return top_of(one.session)
        case UsageBy.DAY:
            return day_of(one, offset_s)
        case UsageBy.PROFILE:
            return one.profile or ("work" if one.session == "top" else None)


TOKENS = st.builds(
    Usage,
    input=st.integers(0, 9),
    output=st.integers(0, 9),
    cache_read=st.integers(0, 3),
    cache_write=st.integers(0, 3),
    reasoning=st.integers(0, 3),
)
COSTS = st.none() | st.integers(0, 5000).map(lambda nano: nano / 1e9)


@st.composite
def some_calls(draw: st.DrawFn) -> list[CallRecorded]:
    made = []
    for at in range(draw(st.integers(0, 12))):
        status = draw(st.sampled_from(CallStatus))
        has_usage = status is not CallStatus.REFUSED and draw(st.booleans())
        made.append(
            call(
                f"c{at}",
                status,
                usage=draw(TOKENS) if has_usage else None,
                cost_estimated_usd=draw(COSTS) if has_usage else None,
                cost_actual_usd=draw(COSTS) if status is not CallStatus.REFUSED else None,
                session=draw(st.sampled_from([None, *PARENTS])),
                model=draw(st.sampled_from(["m", "n"])),
                profile=draw(st.sampled_from([None, "home"])),
                started_at_ms=draw(st.integers(-2 * DAY_MS, 2 * DAY_MS)),
            )
        )
    return made


QUERIES = st.builds(
    UsageQuery,
    by=st.sampled_from(UsageBy),
    since_ms=st.just(-1 << 60) | st.integers(-DAY_MS, DAY_MS),
    until_ms=st.none() | st.integers(-DAY_MS, DAY_MS),
    within=st.none() | st.sampled_from([SessionId(name) for name in PARENTS]),
    utc_offset_s=st.integers(-50_000, 50_000),
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=some_calls(), query=QUERIES)
def test_usage_is_what_brute_force_over_the_rows_makes_of_it(
    empty: Callable[[], Store], calls: list[CallRecorded], query: UsageQuery
) -> None:
    store = empty()
    keep(store, [*(opened(session) for session in PARENTS), *calls])
    tree = {None, *PARENTS} if query.within is None else below(query.within)
    until_ms = 1 << 60 if query.until_ms is None else query.until_ms
    chosen = [one for one in calls if query.since_ms <= one.started_at_ms < until_ms and one.session in tree]
    expected: dict[str | None, list[CallRecorded]] = {}
    for one in chosen:
        expected.setdefault(key_of(query.by, one, query.utc_offset_s), []).append(one)

    found = store.answer(query, deadline_s=9.0)

    assert isinstance(found, UsageRows)
    assert {row.key: row.sums for row in found.rows} == {key: sums(group) for key, group in expected.items()}
    assert found.total == sums(chosen)


def below(session: str) -> set[str | None]:
    tree: set[str | None] = {session}
    while more := {name for name, parent in PARENTS.items() if parent in tree} - tree:
        tree |= more
    return tree


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=some_calls(), session=st.sampled_from([None, *PARENTS]), tree=st.booleans())
def test_totals_are_what_brute_force_over_the_rows_makes_of_them(
    empty: Callable[[], Store], calls: list[CallRecorded], session: str | None, tree: bool
) -> None:
    store = empty()
    keep(store, [*(opened(name) for name in PARENTS), *calls])
    counted = {None, *PARENTS} if session is None else below(session) if tree else {session}
    expected = sums([one for one in calls if one.session in counted])

    found = store.answer(TotalsQuery(session=SessionId(session) if session else None, tree=tree), deadline_s=9.0)

    assert isinstance(found, Totals)
    assert (found.calls, found.unknown_calls, found.refused_calls, found.known_calls) == (
        expected.calls,
        expected.unknown_calls,
        expected.refused_calls,
        expected.known_calls,
    )
    assert (found.cost_usd, found.cost_known_calls) == (expected.cost_usd, expected.cost_known_calls)
    assert found.reasoning_tokens == (expected.reasoning_tokens or 0)
    assert found.sessions == len(counted - {None})


# --- single facts ----------------------------------------------------------------------------------------------------


def test_what_nobody_knows_stays_unknown_through_sums(empty: Callable[[], Store]) -> None:
    store = empty()
    keep(store, [call("c1", CallStatus.LOST), call("c2", CallStatus.FAILED), call("c3", CallStatus.REFUSED)])

    total = usage(store, UsageBy.MODEL).total

    assert total == UsageSums(calls=2, unknown_calls=2, refused_calls=1)
    assert (total.input_tokens, total.cost_usd, total.known_calls, total.cost_known_calls) == (None, None, 0, 0)


def test_what_was_charged_counts_before_what_was_estimated(empty: Callable[[], Store]) -> None:
    store = empty()
    spent = Usage(input=1, output=1)
    keep(
        store,
        [
            call("c1", usage=spent, cost_estimated_usd=0.5, cost_actual_usd=0.25),
            call("c2", usage=spent, cost_estimated_usd=1.0),
            call("c3", usage=spent),
        ],
    )

    total = usage(store, UsageBy.MODEL).total

    assert (total.cost_usd, total.cost_known_calls, total.calls) == (1.25, 2, 3)
    assert (total.cost_estimated_usd, total.cost_actual_usd) == (1.5, 0.25)


def test_calls_of_a_session_nobody_opened_count_with_its_parent(empty: Callable[[], Store]) -> None:
    store = empty()
    spent = Usage(input=1, output=1)
    keep(store, [call("c1", session="theirs", parent="root", usage=spent), call("c2", session="root", usage=spent)])

    (row,) = usage(store, UsageBy.TREE).rows

    assert (row.key, row.sums.calls) == ("root", 2)


def test_a_day_ends_where_local_time_says(empty: Callable[[], Store]) -> None:
    store = empty()
    keep(store, [call("c1", started_at_ms=DAY_MS - 1), call("c2", started_at_ms=DAY_MS)])

    utc = usage(store, UsageBy.DAY).rows
    west = usage(store, UsageBy.DAY, utc_offset_s=-3600).rows
    east = usage(store, UsageBy.DAY, utc_offset_s=3600).rows

    assert [(row.key, row.sums.calls) for row in utc] == [("1970-01-01", 1), ("1970-01-02", 1)]
    assert [(row.key, row.sums.calls) for row in west] == [("1970-01-01", 2)]
    assert [(row.key, row.sums.calls) for row in east] == [("1970-01-02", 2)]


def test_rows_are_cut_at_the_limit_and_the_total_is_of_all(empty: Callable[[], Store]) -> None:
    store = empty()
    keep(store, [call(f"c{at}", model=f"m{at}", usage=Usage(input=at, output=0)) for at in range(5)])

    found = usage(store, UsageBy.MODEL, limit=2)

    assert [(row.key, row.provider) for row in found.rows] == [("m4", "p"), ("m3", "p")]
    assert found.total.calls == 5


def test_the_view_for_people_says_the_same(empty: Callable[[], Store]) -> None:
    store = empty()
    keep(store, [call("c1", usage=Usage(input=1, output=1), cost_actual_usd=0.5), call("c2", CallStatus.LOST)])

    rows = store._database.execute(
        "SELECT provider, model, calls, unknown_calls, input_tokens, cost_actual_usd, cost_estimated_usd"
        " FROM usage_by_model"
    )

    assert rows == [("p", "m", 2, 1, 1, 0.5, None)]
