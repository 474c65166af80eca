"""Caps: what is spent and reserved never exceeds them by more than estimates were wrong."""

from __future__ import annotations

from datetime import UTC, date, datetime

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from covey.actors.limits.caps import (
    CAPS_KEPT,
    DEFAULT_TOKENS,
    FLEET,
    Caps,
    period_end,
    problem_with_cap,
    stamp_of,
)
from covey.protocol.ids import CallId
from covey.protocol.messages.broker import CapView
from covey.protocol.settings import BudgetPeriod
from covey.storage.caps import CapKept

A, B, C = CallId("a"), CallId("b"), CallId("c")
CAP = ("swarm",)


def problem(caps: Caps, tokens: int | None, cost_usd: float | None = None) -> str | None:
    return caps.problem(CAP, tokens, cost_usd, provider="zai", model="glm-5")


def is_lasting(caps: Caps, tokens: int | None, cost_usd: float | None = None) -> bool:
    return caps.is_lasting(CAP, tokens, cost_usd, provider="zai", model="glm-5")


def capped(max_tokens: int | None = None, max_cost_usd: float | None = None) -> Caps:
    caps = Caps()
    caps.declare("swarm", max_tokens, max_cost_usd)
    return caps


class TestOneCall:
    def test_what_runs_is_reserved_and_what_ended_is_spent(self) -> None:
        caps = capped(100)
        caps.reserve(A, CAP, 60, None)

        assert problem(caps, 41) is not None
        assert caps.settle(A, 10, None) == (CapKept(name="swarm", tokens=10, max_tokens=100),)
        assert problem(caps, 90) is None
        assert problem(caps, 91) is not None

    def test_room_that_is_only_reserved_may_come_back(self) -> None:
        caps = capped(100)
        caps.reserve(A, CAP, 60, None)

        assert not is_lasting(caps, 41)
        assert is_lasting(caps, 101)

    def test_the_reason_says_how_much_is_gone(self) -> None:
        caps = capped(100)
        caps.reserve(A, CAP, 30, None)
        caps.settle(A, 70, None)
        caps.reserve(B, CAP, 20, None)

        assert problem(caps, 40) == (
            "cap swarm is reached: 70 of 100 tokens spent, 20 reserved by calls that run, this call needs about 40"
        )

    def test_unknown_is_what_was_reserved_and_never_nothing(self) -> None:
        caps = capped(100, 1.0)
        caps.reserve(A, CAP, 60, 0.5)

        (kept,) = caps.settle(A, None, None)

        assert (kept.tokens, kept.cost_usd, kept.unknown_calls) == (60, 0.5, 1)

    def test_a_cap_in_tokens_needs_no_cost(self) -> None:
        caps = capped(100)
        caps.reserve(A, CAP, 60, None)

        assert caps.settle(A, 7, None)[0].unknown_calls == 0

    def test_a_provider_that_was_not_asked_costs_nothing(self) -> None:
        caps = capped(100, 1.0)
        caps.reserve(A, CAP, 60, 0.5)
        caps.drop(A)

        assert problem(caps, 100, 1.0) is None
        assert caps.settle(A, 100, 1.0) == ()

    def test_the_same_call_reserves_once_and_settles_once(self) -> None:
        caps = capped(100)
        caps.reserve(A, CAP, 60, None)
        caps.reserve(A, CAP, 60, None)
        first = caps.settle(A, 10, None)

        assert caps.settle(A, 10, None) == ()
        assert caps.kept() == first

    def test_without_an_estimate_it_reserves_the_usual(self) -> None:
        caps = capped(2 * DEFAULT_TOKENS)
        caps.reserve(A, CAP, None, None)

        assert caps.views()[0].reserved_tokens == DEFAULT_TOKENS

    def test_without_an_estimate_it_takes_what_is_left(self) -> None:
        caps = capped(100)

        assert problem(caps, None) is None
        caps.reserve(A, CAP, None, None)
        assert caps.views()[0].reserved_tokens == 100
        assert problem(caps, None) is not None
        assert not is_lasting(caps, None)

    def test_a_cap_that_is_spent_lets_nothing_out_not_even_what_costs_nothing(self) -> None:
        caps = capped(100, 1.0)
        caps.reserve(A, CAP, 10, 0.1)
        caps.settle(A, 100, 1.0)

        assert is_lasting(caps, 0, 0.0)

    def test_a_cap_of_nothing_lets_nothing_out(self) -> None:
        assert problem(capped(0), None) is not None
        assert problem(capped(None, 0.0), 1, 0.0) is not None

    def test_a_name_nobody_declared_lets_nothing_out(self) -> None:
        assert problem(Caps(), 1) == "there is no cap swarm; declare it before calls name it"


class TestMoney:
    def test_a_model_without_a_price_is_refused_by_name(self) -> None:
        caps = capped(None, 1.0)

        assert problem(caps, 10) == (
            "cap swarm is in money, and model glm-5 of provider zai has no price; set providers.zai.prices.glm-5"
        )
        assert is_lasting(caps, 10)

    def test_a_model_that_costs_nothing_has_a_price(self) -> None:
        assert problem(capped(None, 1.0), 10, 0.0) is None

    def test_tenths_add_up(self) -> None:
        caps = capped(None, 1.0)
        for number in range(10):
            assert problem(caps, 1, 0.1) is None
            caps.reserve(CallId(str(number)), CAP, 1, 0.1)

        assert problem(caps, 1, 0.1) is not None


class TestDeclaring:
    def test_declared_again_what_was_spent_stays_spent(self) -> None:
        caps = capped(100)
        caps.reserve(A, CAP, 50, None)
        caps.settle(A, 50, None)

        assert caps.declare("swarm", 60) == CapKept(name="swarm", tokens=50, max_tokens=60)
        assert problem(caps, 11) is not None
        caps.declare("swarm", 200)
        assert problem(caps, 150) is None

    def test_every_call_spends_from_the_fleets_own(self) -> None:
        caps = capped(1000)
        assert caps.names("swarm") == ("swarm",)
        caps.declare(FLEET, 100, stamp="2025-01-31")

        assert caps.names(None) == (FLEET,)
        assert caps.names("swarm") == ("swarm", FLEET)
        assert caps.problem(caps.names("swarm"), 101, None, provider="p", model="m") is not None

    def test_a_fleet_without_a_budget_counts_nothing(self) -> None:
        caps = Caps()
        caps.declare(FLEET)

        assert caps.names(None) == ()
        assert caps.views() == ()

    def test_a_new_period_begins_at_nothing_and_calls_that_run_count_in_it(self) -> None:
        caps = Caps()
        caps.declare(FLEET, 100, stamp="2025-01-30")
        caps.reserve(A, (FLEET,), 40, None)
        caps.settle(A, 90, None)
        caps.reserve(B, (FLEET,), 10, None)

        assert caps.begin("2025-01-30") is None
        assert caps.begin("2025-01-31") == CapKept(name=FLEET, max_tokens=100, stamp="2025-01-31")
        assert caps.views() == (
            CapView(name=FLEET, tokens=0, reserved_tokens=10, cost_usd=0.0, reserved_cost_usd=0.0, max_tokens=100),
        )
        assert caps.settle(B, 5, None)[0].tokens == 5

    def test_another_limit_in_the_same_period_forgets_nothing(self) -> None:
        caps = Caps([CapKept(name=FLEET, tokens=70, max_tokens=100, stamp="2025-01")])

        assert caps.declare(FLEET, 80, stamp="2025-01").tokens == 70

    def test_an_heir_knows_what_was_spent(self) -> None:
        caps = capped(100)
        caps.reserve(A, CAP, 50, None)
        caps.settle(A, 50, None)
        stored = msgspec.msgpack.encode(caps.kept())

        heir = Caps(msgspec.msgpack.decode(stored, type=tuple[CapKept, ...]))
        heir.reserve(B, CAP, 40, None)

        assert problem(heir, 11) is not None
        assert problem(heir, 10) is None

    def test_names_are_bounded_and_those_in_use_stay(self) -> None:
        caps = capped(100)
        caps.reserve(A, CAP, 50, None)
        for number in range(CAPS_KEPT + 10):
            caps.declare(f"cap-{number}", 1)

        assert len(caps.kept()) <= CAPS_KEPT + 1
        assert problem(caps, 10) is None

    @pytest.mark.parametrize(
        ("name", "tokens", "cost", "part"),
        [
            pytest.param("", None, None, "printable", id="no name"),
            pytest.param("a\nb", None, None, "printable", id="two lines"),
            pytest.param("x" * 201, None, None, "200", id="long"),
            pytest.param(FLEET, 1, None, "fleet.budget", id="the fleet's own"),
            pytest.param("x", -1, None, "max_tokens", id="negative tokens"),
            pytest.param("x", None, -0.1, "max_cost_usd", id="negative money"),
            pytest.param("x", None, float("nan"), "max_cost_usd", id="no number"),
        ],
    )
    def test_a_declaration_that_cannot_be_meant(
        self, name: str, tokens: int | None, cost: float | None, part: str
    ) -> None:
        assert part in (problem_with_cap(name, tokens, cost) or "")

    def test_a_declaration_that_can(self) -> None:
        assert problem_with_cap("swarm-1", 0, None) is None


class TestPeriods:
    @pytest.mark.parametrize(
        ("period", "stamp", "end"),
        [
            pytest.param(BudgetPeriod.DAY, "2024-02-29", datetime(2024, 3, 1, tzinfo=UTC), id="day"),
            pytest.param(BudgetPeriod.MONTH, "2024-02", datetime(2024, 3, 1, tzinfo=UTC), id="month"),
            pytest.param(BudgetPeriod.LIFE, "abc", None, id="life"),
        ],
    )
    def test_a_period_has_a_name_and_an_end(self, period: BudgetPeriod, stamp: str, end: datetime | None) -> None:
        now = datetime(2024, 2, 29, 13, 30, tzinfo=UTC)

        assert stamp_of(period, now.date(), life="abc") == stamp
        assert period_end(period, now) == end

    def test_a_year_ends_with_its_last_month(self) -> None:
        now = datetime(2024, 12, 31, 23, 59, tzinfo=UTC)

        assert period_end(BudgetPeriod.MONTH, now) == datetime(2025, 1, 1, tzinfo=UTC)
        assert stamp_of(BudgetPeriod.MONTH, date(2025, 1, 1), life="") == "2025-01"


class Spending(RuleBasedStateMachine):
    """Calls that only start when nothing speaks against it, against a ledger of everything that happened."""

    def __init__(self) -> None:
        super().__init__()
        self.caps = Caps()
        self.limits = {"swarm": (100, 1.0), "other": (50, None), FLEET: (150, 2.0)}
        for name, (tokens, cost) in self.limits.items():
            self.caps.declare(name, tokens, cost)
        self.running: dict[CallId, tuple[tuple[str, ...], int, float]] = {}
        self.spent: dict[str, list[tuple[int, float]]] = {name: [] for name in self.limits}
        self.excess_tokens = 0
        self.excess_usd = 0.0
        self.count = 0

    @rule(cap=st.sampled_from([None, "swarm", "other"]), tokens=st.integers(0, 60), cents=st.integers(0, 60))
    def start(self, cap: str | None, tokens: int, cents: int) -> None:
        names, cost = self.caps.names(cap), cents / 100
        if self.caps.problem(names, tokens, cost, provider="p", model="m") is not None:
            return
        assert not self.caps.is_lasting(names, tokens, cost, provider="p", model="m")
        self.count += 1
        call = CallId(str(self.count))
        self.caps.reserve(call, names, tokens, cost)
        self.running[call] = names, tokens, cost

    @precondition(lambda self: self.running)
    @rule(data=st.data(), tokens=st.none() | st.integers(0, 90), cents=st.none() | st.integers(0, 90))
    def end(self, data: st.DataObject, tokens: int | None, cents: int | None) -> None:
        call = data.draw(st.sampled_from(sorted(self.running)))
        names, estimated, estimated_usd = self.running.pop(call)
        cost = None if cents is None else cents / 100
        kept = self.caps.settle(call, tokens, cost)
        used, used_usd = estimated if tokens is None else tokens, estimated_usd if cost is None else cost
        self.excess_tokens += max(used - estimated, 0)
        self.excess_usd += max(used_usd - estimated_usd, 0.0)
        for name in names:
            self.spent[name].append((used, used_usd))
        assert [one.name for one in kept] == list(names)
        assert self.caps.settle(call, 1000, 1000.0) == ()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def not_asked(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(sorted(self.running)))
        before = self.caps.kept()
        del self.running[call]
        self.caps.drop(call)
        assert self.caps.kept() == before

    @invariant()
    def sums_are_what_happened(self) -> None:
        for view in self.caps.views():
            assert view.tokens == sum(tokens for tokens, _ in self.spent[view.name])
            assert view.cost_usd == pytest.approx(sum(cost for _, cost in self.spent[view.name]))
            held = [(tokens, cost) for names, tokens, cost in self.running.values() if view.name in names]
            assert view.reserved_tokens == sum(tokens for tokens, _ in held)
            assert view.reserved_cost_usd == pytest.approx(sum(cost for _, cost in held), abs=1e-9)

    @invariant()
    def no_cap_is_exceeded_by_more_than_estimates_were_wrong(self) -> None:
        for view in self.caps.views():
            max_tokens, max_usd = self.limits[view.name]
            assert view.tokens + view.reserved_tokens <= max_tokens + self.excess_tokens
            if max_usd is not None:
                assert view.cost_usd + view.reserved_cost_usd <= max_usd + self.excess_usd + 1e-6


TestSpending = Spending.TestCase
TestSpending.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
