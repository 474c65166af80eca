"""Token accounting: what a count does to the sums, and that coalesced counts leave the same rows as single ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.protocol.ids import Incarnation, SessionId
from covey.protocol.messages.ledger import SessionOpened
from covey.protocol.messages.tokens import Cost, Counts, Route, RouteChosen, Tokens, TokensCounted, TokensQuery
from covey.storage.store import Store
from covey.storage.token_counts import SessionUsage, UsageRecord, apply, coalesce, is_sound

S = SessionId("ses_1")
A = Incarnation("inc_a")
GLM = Route(provider="zai", base_url="https://z", model="glm", mode="plan")
OTHER = Route(provider="other", base_url="https://o", model="small", mode="payg")


def used(
    tokens: int = 10, *, route: Route = GLM, at_ms: int = 1, calls: int = 1, cost: Cost | None = None, **said: Any
) -> TokensCounted:
    counts = Counts(input=tokens, output=tokens, api_calls=calls)
    return TokensCounted(session=S, at_ms=at_ms, route=route, counts=counts, cost=cost or Cost(), **said)


def after(*records: UsageRecord, before: SessionUsage | None = None) -> SessionUsage:
    usage = before or SessionUsage()
    for record in records:
        usage = apply(usage, record)
    return usage


# --- the rule ----------------------------------------------------------------------------------------------------

small = st.integers(0, 3)
costs = st.none() | small
words = st.none() | st.sampled_from(["", "a", "b"])
routes = st.builds(Route, provider=words, base_url=words, model=words, mode=words)
counted = st.builds(
    TokensCounted,
    session=st.sampled_from([SessionId("ses_1"), SessionId("ses_2")]),
    at_ms=st.integers(0, 9),
    is_total=st.booleans(),
    task=st.none() | st.sampled_from(["", "title"]),
    route=routes | st.just(GLM),
    counts=st.builds(Counts, input=small, output=small, cache_read=small, reasoning=small, api_calls=small),
    cost=st.builds(
        Cost, estimated_nano_usd=costs, actual_nano_usd=costs, status=words, source=words, pricing_version=words
    ),
)
chosen = st.builds(RouteChosen, session=st.just(S), route=routes, at_ms=st.just(0))
# Most counts of a session are alike: without that hardly any would merge.
alike = counted.flatmap(
    lambda first: st.lists(
        st.builds(
            TokensCounted,
            session=st.just(first.session),
            at_ms=st.integers(0, 9),
            task=st.just(first.task),
            route=st.just(first.route),
            counts=st.builds(Counts, input=small, api_calls=small),
            cost=st.builds(
                Cost,
                estimated_nano_usd=costs,
                actual_nano_usd=costs,
                status=st.just(first.cost.status),
                source=st.just(first.cost.source),
                pricing_version=st.just(first.cost.pricing_version),
            ),
        ),
        max_size=6,
    )
)
histories = st.lists(st.one_of(alike, counted.map(lambda one: [one]), chosen.map(lambda one: [one])), max_size=8).map(
    lambda parts: [record for part in parts for record in part if is_sound(record)]
)
befores = st.builds(SessionUsage, route=routes)


def worked_in(records: list[UsageRecord], before: SessionUsage) -> dict[SessionId, SessionUsage]:
    usages: dict[SessionId, SessionUsage] = {}
    for record in records:
        usages[record.session] = apply(usages.get(record.session, before), record)
    return usages


@settings(max_examples=400, deadline=None)
@given(records=histories, before=befores)
def test_coalesced_counts_leave_the_same_sums_and_routes_as_single_ones(
    records: list[UsageRecord], before: SessionUsage
) -> None:
    assert worked_in(coalesce(records), before) == worked_in(records, before)


def test_counts_of_one_route_that_follow_each_other_become_one() -> None:
    merged = coalesce([used(1, at_ms=5), used(2, at_ms=6), used(3, at_ms=7)])

    assert len(merged) == 1
    assert merged[0] == used(6, at_ms=7, since_ms=5, calls=3)


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(used(100, is_total=True), id="a total"),
        pytest.param(RouteChosen(session=S, route=OTHER, at_ms=0), id="a chosen route"),
        pytest.param(used(route=OTHER), id="another route"),
        pytest.param(used(cost=Cost(status="estimated")), id="another word about the cost"),
        pytest.param(used(task="title"), id="another task"),
        pytest.param(used(0, calls=0, cost=Cost(actual_nano_usd=1)), id="a bill that makes no row"),
    ],
)
def test_what_stands_between_keeps_counts_apart(between: UsageRecord) -> None:
    assert coalesce([used(), between, used()]) == [used(), between, used()]


def test_what_another_session_does_in_between_keeps_nothing_apart() -> None:
    elsewhere = TokensCounted(session=SessionId("ses_2"), at_ms=1, is_total=True)

    assert len(coalesce([used(), elsewhere, used()])) == 2


def test_a_cost_that_nobody_knows_stays_unknown_and_a_known_one_stays_known() -> None:
    assert after(used(), used()).cost.actual_nano_usd is None
    assert after(used(cost=Cost(actual_nano_usd=5)), used()).cost.actual_nano_usd == 5
    assert after(used(cost=Cost(actual_nano_usd=5)), used(is_total=True)).cost.actual_nano_usd == 5


def test_a_total_replaces_the_sums_and_makes_no_row_of_a_route() -> None:
    usage = after(used(10), used(7, is_total=True, calls=2))

    assert usage.counts == Counts(input=7, output=7, api_calls=2)
    assert [row.counts.input for row in usage.routes.values()] == [10]


def test_the_first_accounted_route_replaces_the_one_that_was_meant_and_later_ones_do_not() -> None:
    meant = SessionUsage(route=Route(provider="zai", model="meant"))

    usage = after(used(0, calls=0, route=GLM), used(route=OTHER), used(route=GLM), before=meant)

    assert usage.route == OTHER


def test_a_chosen_route_holds_against_counts_of_the_old_one() -> None:
    assert after(used(), RouteChosen(session=S, route=OTHER, at_ms=0), used()).route == OTHER


def test_words_about_the_cost_are_the_last_that_were_said() -> None:
    said = after(used(cost=Cost(status="estimated", source="list")), used(cost=Cost(status="billed")), used()).cost

    assert (said.status, said.source) == ("billed", "list")


def test_the_row_of_a_session_s_own_call_inherits_the_route_and_that_of_a_task_never_does() -> None:
    usage = after(used(), used(route=Route()), used(task="title", route=Route()))

    assert set(usage.routes) == {("zai", "https://z", "glm", "plan", ""), ("", "", "unknown", "", "title")}
    assert usage.counts.api_calls == 2


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(used(-1), id="negative"),
        pytest.param(used(1 << 70), id="beyond any number of SQLite's"),
        pytest.param(used(cost=Cost(actual_nano_usd=-5)), id="a negative cost"),
        pytest.param(used(at_ms=1 << 63), id="a time that is none"),
        pytest.param(used(route=Route(model="\ud800")), id="a name that is no text"),
        pytest.param(used(task="title", is_total=True), id="the total of a task"),
    ],
)
def test_what_cannot_be_added_up_is_put_aside_and_holds_up_nothing(tmp_path: Path, record: TokensCounted) -> None:
    store = Store(tmp_path / "state.db")

    applied = store.apply([(A, 1, used()), (A, 2, record), (A, 3, used())])

    assert (applied.new, applied.unstorable) == (3, 1)
    assert answered(store).counts.api_calls == 2
    store.close()


# --- in the database -----------------------------------------------------------------------------------------------


def answered(store: Store) -> Tokens:
    reply = store.answer(TokensQuery(session=S), deadline_s=1)
    assert isinstance(reply, Tokens)
    return reply


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Store]]:
    pair = tuple(Store(tmp_path_factory.mktemp(name) / "state.db") for name in ("one", "other"))
    yield (pair[0], pair[1])
    for store in pair:
        store.close()


def table(store: Store, name: str) -> list[tuple[object, ...]]:
    columns = "session, " + ", ".join(
        str(row[0])
        for row in store._database.execute("SELECT name FROM pragma_table_info(?)", (name,))
        if row[0] not in ("id", "session")
    )
    return [tuple(row) for row in store._database.execute(f"SELECT {columns} FROM {name} ORDER BY {columns}")]


@settings(max_examples=25, deadline=None)
@given(records=histories)
def test_a_batch_leaves_the_same_rows_as_its_records_one_by_one(
    stores: tuple[Store, Store], records: list[UsageRecord]
) -> None:
    together, single = stores
    for store in stores:
        with store._database.transaction():
            for name in ("session_tokens", "route_tokens"):
                store._database.execute(f"DELETE FROM {name}")
    first = together.committed_upto(A) + 1

    together.apply([(A, first + at, record) for at, record in enumerate(records)])
    for at, record in enumerate(records):
        single.apply([(A, first + at, record)])

    for name in ("session_tokens", "route_tokens"):
        assert table(together, name) == table(single, name)


def test_a_session_s_route_is_the_one_it_was_opened_with_until_another_is_accounted(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    opened = SessionOpened(session=S, agent="ag_1", goal="", source="", provider="zai", model="meant", at_ms=0)  # type: ignore[arg-type]

    store.apply([(A, 1, opened), (A, 2, used(0, calls=0, task="title", route=Route()))])
    assert answered(store).route == Route(provider="zai", model="meant")
    store.apply([(A, 3, used(route=OTHER))])

    assert answered(store).route == OTHER
    store.close()


def test_what_a_reader_gets_survives_the_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    store.apply([(A, 1, used(cost=Cost(actual_nano_usd=5, status="billed", pricing_version="v1"))), (A, 2, used(3))])
    before = answered(store)
    store.close()

    store = Store(tmp_path / "state.db")

    assert answered(store) == before
    assert before.cost.actual_nano_usd == 5
    store.close()
