"""One row per call: which account of it wins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from covey.protocol.ids import CallId, Incarnation
from covey.protocol.messages.ledger import CallRecorded, CallsQuery, CallStatus
from covey.protocol.usage import Usage
from covey.storage.store import Store

TOKENS = Usage(input=1, output=2)
_lives = itertools.count()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(tmp_path_factory.mktemp("calls") / "state.db")
    yield store
    store.close()


def account(
    status: CallStatus,
    usage: Usage | None = None,
    *,
    by: str = "x",
    call: str = "call_1",
    estimated: float | None = None,
    actual: float | None = None,
) -> CallRecorded:
    return CallRecorded(
        call=CallId(call),
        provider="zai",
        base_url="https://example.com",
        model="m",
        status=status,
        started_at_ms=1,
        usage=usage,
        response_id=by,
        cost_estimated_usd=estimated,
        cost_actual_usd=actual,
    )


def row_after(store: Store, accounts: list[CallRecorded], *, apart: bool) -> CallRecorded:
    """Return the row that the accounts leave, committed in one batch or each in its own."""
    life = next(_lives)
    call = CallId(f"call_{life}")
    deliveries = [
        (Incarnation(f"inc_{life}_{at}"), 1, msgspec.structs.replace(record, call=call))
        for at, record in enumerate(accounts)
    ]
    for batch in [[delivery] for delivery in deliveries] if apart else [deliveries]:
        store.apply(batch)
    (row,) = [row.record for row in store.calls(CallsQuery()).rows if row.record.call == call]
    return msgspec.structs.replace(row, call=CallId("call_1"))


def merged(older: CallRecorded, newer: CallRecorded) -> CallRecorded:
    """The rule, said once more: any status over lost, usage over none, a bill over none; the rest completes it."""

    def knows(record: CallRecorded) -> tuple[bool, bool, bool]:
        return record.status is not CallStatus.LOST, record.usage is not None, record.cost_actual_usd is not None

    winner, loser = (newer, older) if knows(newer) > knows(older) else (older, newer)
    if winner.usage is None:
        estimated = loser.cost_estimated_usd if loser.cost_estimated_usd is not None else winner.cost_estimated_usd
        winner = msgspec.structs.replace(winner, usage=loser.usage, cost_estimated_usd=estimated)
    if winner.cost_actual_usd is None:
        winner = msgspec.structs.replace(winner, cost_actual_usd=loser.cost_actual_usd)
    return winner


DONE = account(CallStatus.COMPLETED, TOKENS, by="done")
BARE = account(CallStatus.FAILED, by="bare")
LOST = account(CallStatus.LOST, by="lost")


@pytest.mark.parametrize(
    ("older", "newer", "kept"),
    [
        pytest.param(LOST, DONE, DONE, id="an account replaces lost"),
        pytest.param(LOST, BARE, BARE, id="an account without usage replaces lost"),
        pytest.param(DONE, LOST, DONE, id="lost hides no account"),
        pytest.param(BARE, LOST, BARE, id="lost hides no account without usage"),
        pytest.param(BARE, DONE, DONE, id="usage replaces none"),
        pytest.param(DONE, BARE, DONE, id="none does not replace usage"),
        pytest.param(DONE, account(CallStatus.COMPLETED, Usage(input=9, output=9)), DONE, id="the first usage counts"),
        pytest.param(BARE, account(CallStatus.CANCELLED), BARE, id="the first status counts"),
        pytest.param(
            BARE,
            account(CallStatus.LOST, TOKENS),
            msgspec.structs.replace(BARE, usage=TOKENS),
            id="usage of a lost one completes an account without",
        ),
        pytest.param(
            DONE,
            account(CallStatus.COMPLETED, TOKENS, by="done", actual=0.5),
            account(CallStatus.COMPLETED, TOKENS, by="done", actual=0.5),
            id="a bill that comes later is added",
        ),
        pytest.param(
            DONE,
            account(CallStatus.COMPLETED, by="bill", actual=0.5),
            msgspec.structs.replace(DONE, cost_actual_usd=0.5),
            id="a bill without usage takes no usage away",
        ),
    ],
)
@pytest.mark.parametrize("apart", [False, True], ids=["one batch", "two batches"])
def test_an_account_replaces_an_earlier_one_if_it_knows_more(
    store: Store, older: CallRecorded, newer: CallRecorded, kept: CallRecorded, apart: bool
) -> None:
    assert row_after(store, [older, newer], apart=apart) == kept


def test_a_refused_call_without_tokens_is_over_lost(store: Store) -> None:
    refused = account(CallStatus.REFUSED)

    assert row_after(store, [LOST, refused, LOST], apart=True) == refused


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    accounts=st.lists(
        st.builds(
            account,
            st.sampled_from(CallStatus),
            st.sampled_from([None, TOKENS, Usage(input=0, output=0), Usage(input=5, output=0, reasoning=1)]),
            by=st.sampled_from("abc"),
            estimated=st.sampled_from([None, 0.25, 0.5]),
            actual=st.sampled_from([None, None, 0.0, 1.5]),
        ),
        min_size=1,
        max_size=8,
    ),
    apart=st.booleans(),
)
def test_the_row_is_what_the_rule_makes_of_all_accounts(
    store: Store, accounts: list[CallRecorded], apart: bool
) -> None:
    expected = accounts[0]
    for record in accounts[1:]:
        expected = merged(expected, record)

    assert row_after(store, accounts, apart=apart) == expected


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(told=st.lists(st.sampled_from([LOST, BARE, DONE]), min_size=1, max_size=8), data=st.data())
def test_order_and_repetition_do_not_matter_where_each_account_knows_more_than_the_last(
    store: Store, told: list[CallRecorded], data: st.DataObject
) -> None:
    other_order = data.draw(st.permutations(told))

    row = row_after(store, told, apart=data.draw(st.booleans()))

    assert row == row_after(store, other_order, apart=data.draw(st.booleans()))
    assert row == max(told, key=[LOST, BARE, DONE].index)


def test_rows_keep_the_order_of_the_first_account(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    one, two = CallId("one"), CallId("two")
    sender = Incarnation("i")

    store.apply([(sender, 1, account(CallStatus.LOST, call=one)), (sender, 2, account(CallStatus.FAILED, call=two))])
    store.apply([(sender, 3, account(CallStatus.COMPLETED, TOKENS, call=one))])

    assert [(row.row, row.record.call) for row in store.calls(CallsQuery()).rows] == [(1, one), (2, two)]
    assert [row.row for row in store.calls(CallsQuery(after=1)).rows] == [2]
    assert [row.row for row in store.calls(CallsQuery(limit=1)).rows] == [1]
    assert store.calls(CallsQuery(after=1 << 70, limit=-3)).rows == ()
    store.close()
