"""What else decides who is let out: outcomes, per-minute limits, caps, busy models; one situation a test."""

from __future__ import annotations

import pytest

from covey.actors.limits.actions import (
    Action,
    Answered,
    Asked,
    CapDeclared,
    End,
    GivenBack,
    Grant,
    Keep,
    QuotaRead,
    Refuse,
    Ticked,
    Unlocked,
)
from covey.actors.limits.book import Book
from covey.actors.limits.claim import Claim
from covey.actors.limits.terms import Terms
from covey.actors.limits.views import view_of
from covey.protocol.faults import Fault, FaultKind, fault_named
from covey.protocol.ids import BudgetKey, CallId, Incarnation
from covey.protocol.messages.broker import BudgetState, BudgetView, Outcome, Priority, QuotaWindow, Refusal
from covey.protocol.peer import Owner, Peer
from covey.protocol.settings import Price
from covey.protocol.usage import Usage
from covey.storage.leases import LeaseEnded, LeaseGranted, Outstanding

KEY = BudgetKey("zai:1")
HOUR = 3600.0
ME = Peer(role="client", name="me", incarnation=Incarnation("inc_1"), owner=Owner(pid=1, start_ticks=1, boot_id="boot"))


class Desk:
    """A book, its journal, and what became of each call."""

    def __init__(self, journal: Outstanding | None = None, **terms: object) -> None:
        self.book = Book({"zai": Terms(**{"limit": 4, **terms})}, boot="boot")  # type: ignore[arg-type]
        self.journal = journal or Outstanding()
        self.granted: list[str] = []
        self.refused: dict[str, Refuse] = {}
        self.now = 1000.0
        self._carry_out(self.book.restore(self.journal, self.now, self.wall_ms))

    @property
    def wall_ms(self) -> int:
        return 1_700_000_000_000 + round(self.now * 1000)

    @property
    def view(self) -> BudgetView:
        return view_of(self.book.accounts[KEY], self.now, self.wall_ms, is_stopped=lambda _: False)

    def do(self, event: object) -> list[Action]:
        actions = self.book.decide(event, self.now, self.wall_ms)  # type: ignore[arg-type]
        self._carry_out(actions)
        return actions

    def ask(self, *calls: str, **fields: object) -> None:
        for call in calls:
            claim = {
                "call": CallId(call),
                "budget": KEY,
                "provider": "zai",
                "base_url": "https://api.z.ai/v4",
                "model": "glm",
                "holder": ME,
                "tree": "tree",
                "priority": Priority.AGENT,
                "timeout_s": None,
                "hold_s": 10_000.0,
                "asked_at_ms": 0,
                "work": f"work of {call}",
                **fields,
            }
            self.do(Asked(Claim(**claim)))  # type: ignore[arg-type]

    def end(self, call: str, kind: FaultKind | None = None, *, tokens: int | None = None, **fault: object) -> None:
        found: Fault | None = None if kind is None else fault_named(kind, "no", **fault)  # type: ignore[arg-type]
        usage = None if tokens is None else Usage(input=tokens, output=0)
        self.do(GivenBack(CallId(call), outcome=Outcome(fault=found, usage=usage), chance=0.5))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.do(Ticked())

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Grant(lease=lease, is_new=True):
                    self.granted.append(lease.call)
                    self.journal.apply(LeaseGranted(lease=lease, in_flight=action.in_flight))
                case End(lease=lease, spent=spent):
                    self.journal.apply(LeaseEnded(call=lease.call, caps=spent))
                case Keep(record=record):
                    self.journal.apply(record)
                case Refuse(call=call):
                    self.refused[call] = action
                case _:
                    pass


def test_too_many_at_once_halves_the_limit_and_after_a_pause_one_call_tries() -> None:
    desk = Desk()
    desk.ask("a", "b", "c", "d", "e", "f")

    desk.end("d", FaultKind.CONCURRENCY, code="1302")
    for call in "abc":
        desk.end(call)
    assert desk.granted == list("abcd")
    assert (desk.view.limit, desk.view.state) == (2, BudgetState.PAUSED)
    assert [one.reason for one in desk.view.waiters] == ["pause", "pause"]

    desk.wait(70.0)
    assert desk.granted == list("abcde")
    desk.end("e")
    assert desk.granted == list("abcdef")
    assert desk.view.state is BudgetState.OPEN


def test_a_probe_that_is_being_answered_opens_the_account_before_its_end() -> None:
    desk = Desk(limit=2)
    desk.ask("a", "b", "c", "d")
    desk.end("b", FaultKind.RATE, code="1303")
    desk.end("a")
    desk.wait(70.0)
    assert desk.granted == ["a", "b", "c"]

    desk.do(Answered(CallId("c"), Incarnation("a stranger")))
    assert desk.view.state.value == "paused"
    desk.do(Answered(CallId("c"), ME.incarnation))
    assert desk.view.state.value == "open"
    desk.end("c")
    assert desk.granted == ["a", "b", "c", "d"]


def test_a_used_up_window_parks_the_account_until_it_ends() -> None:
    desk = Desk(limit=1)
    desk.ask("a")
    desk.ask("patient")
    desk.ask("hurried", timeout_s=60.0)

    desk.end("a", FaultKind.QUOTA, code="1308", resets_at=desk.wall_ms / 1000 + HOUR)
    desk.ask("late", timeout_s=60.0)

    assert desk.view.state is BudgetState.PARKED
    assert desk.refused["hurried"].reason is desk.refused["late"].reason is Refusal.PARKED
    assert desk.refused["late"].until_ms == pytest.approx(desk.wall_ms + HOUR * 1000, abs=1)
    desk.wait(HOUR - 1)
    assert desk.granted == ["a"]
    desk.wait(2)
    assert desk.granted == ["a", "patient"]


def test_whoever_can_go_elsewhere_does_not_wait_for_the_end_of_a_park_but_for_other_calls() -> None:
    desk = Desk(limit=1)
    desk.ask("a", "b")
    desk.ask("flexible", park_s=60.0)
    desk.wait(100.0)
    desk.end("a")
    assert "flexible" not in desk.refused

    desk.end("b", FaultKind.QUOTA, code="1308", resets_at=desk.wall_ms / 1000 + HOUR)
    desk.ask("late", park_s=60.0)
    desk.ask("patient", park_s=2 * HOUR)

    assert desk.refused["flexible"].reason is desk.refused["late"].reason is Refusal.PARKED
    assert "patient" not in desk.refused


def test_a_short_park_is_waited_for_by_all() -> None:
    desk = Desk(limit=1)
    desk.ask("a")
    desk.ask("flexible", park_s=60.0)

    desk.end("a", FaultKind.QUOTA, code="1308", resets_at=desk.wall_ms / 1000 + 30)

    assert not desk.refused
    desk.wait(31)
    assert desk.granted == ["a", "flexible"]


def test_a_reading_without_a_full_window_ends_a_park() -> None:
    desk = Desk(limit=1)
    desk.ask("a", "b")
    desk.end("a", FaultKind.QUOTA, code="1308", resets_at=desk.wall_ms / 1000 + HOUR)

    desk.do(QuotaRead(KEY, (QuotaWindow(name="TOKENS_LIMIT 5 h", used_percent=40.0),)))

    assert desk.granted == ["a", "b"]


def test_the_quota_of_an_account_nobody_asked_for_yet_is_remembered() -> None:
    desk = Desk()

    desk.do(QuotaRead(KEY, (QuotaWindow(name="TOKENS_LIMIT 5 h", used_percent=100.0),)))
    desk.do(QuotaRead(BudgetKey("stranger:1"), (QuotaWindow(name="TOKENS_LIMIT 5 h", used_percent=100.0),)))

    assert desk.view.state is BudgetState.PARKED
    assert list(desk.book.accounts) == [KEY]


def test_a_locked_account_refuses_everybody_until_a_person_unlocks_it() -> None:
    desk = Desk(limit=1)
    desk.ask("a", "b")

    desk.end("a", FaultKind.LOCKED, code="1313")
    desk.wait(30 * HOUR)
    desk.ask("c")
    assert {call: one.reason for call, one in desk.refused.items()} == {"b": Refusal.LOCKED, "c": Refusal.LOCKED}

    desk.do(Unlocked(KEY))
    desk.ask("d")
    assert desk.granted == ["a", "d"]


def test_a_request_that_was_refused_as_overload_lets_another_try_first() -> None:
    desk = Desk(limit=1)
    desk.ask("a", work="poison")
    desk.ask("a again", work="poison", attempt=2)
    desk.ask("b")

    desk.end("a", FaultKind.OVERLOADED, code="1305")
    desk.wait(200.0)

    assert desk.granted == ["a", "b"]
    assert desk.view.queued == 1
    desk.end("b")
    assert desk.granted == ["a", "b", "a again"]


def test_a_busy_model_waits_while_others_of_the_account_go_on() -> None:
    desk = Desk()
    desk.ask("a")
    desk.end("a", FaultKind.MODEL_BUSY, code="1312")

    desk.ask("b")
    desk.ask("c", model="other")

    assert desk.granted == ["a", "c"]
    assert [one.reason for one in desk.view.waiters] == ["its model, which is busy"]
    at = desk.book.next_deadline()
    assert at is not None
    desk.wait(at - desk.now)
    assert desk.granted == ["a", "c", "b"]


def test_a_limit_per_minute_counts_starts_and_holds_the_next_one_until_it_fits() -> None:
    desk = Desk(requests_per_minute=2)
    desk.ask("a", "b", "c")
    desk.end("a")

    assert desk.granted == ["a", "b"]
    assert [(one.unit, one.used, one.limit) for one in desk.view.rates] == [("requests", 2, 2)]
    assert desk.book.next_deadline() == desk.now + 60.0
    desk.wait(60.0)
    assert desk.granted == ["a", "b", "c"]


def test_what_a_call_did_use_corrects_what_was_expected() -> None:
    desk = Desk(tokens_per_minute=100)
    desk.ask("a", "b", estimated_tokens=90)
    assert desk.granted == ["a"]

    desk.end("a", tokens=10)

    assert desk.granted == ["a", "b"]


def test_reserved_room_under_a_cap_is_waited_for_and_used_up_room_is_a_refusal() -> None:
    desk = Desk()
    desk.do(CapDeclared("swarm", 100, None))
    desk.ask("a", "b", cap="swarm", estimated_tokens=60)
    desk.ask("other")

    assert desk.granted == ["a", "other"]
    assert [one.reason for one in desk.view.waiters] == ["room under its cap"]
    desk.end("a", tokens=20)
    assert desk.granted == ["a", "other", "b"]
    desk.ask("c", cap="swarm", estimated_tokens=60)
    desk.end("b", tokens=70)
    assert desk.refused["c"].reason is Refusal.CAP_REACHED
    assert "90 of 100 tokens" in (desk.refused["c"].detail or "")


def test_a_call_that_never_reached_the_provider_spends_nothing_and_one_nobody_knows_of_what_it_reserved() -> None:
    desk = Desk()
    desk.do(CapDeclared("swarm", 1000, None))
    desk.ask("a", "b", cap="swarm", estimated_tokens=60)

    desk.do(GivenBack(CallId("a")))
    desk.do(GivenBack(CallId("b"), was_cut=True))

    (cap,) = desk.book.caps()
    assert (cap.tokens, cap.reserved_tokens, cap.unknown_calls) == (60, 0, 1)


def test_a_cap_in_money_refuses_a_model_without_a_price_and_counts_one_with_a_price() -> None:
    desk = Desk(prices={"glm": Price(input=2.0, output=8.0)})
    desk.do(CapDeclared("swarm", None, 1.0))

    desk.ask("a", cap="swarm", estimated_tokens=1000, estimated_cost_usd=0.008)
    desk.ask("b", cap="swarm", estimated_tokens=1000, model="unpriced")
    desk.do(GivenBack(CallId("a"), outcome=Outcome(usage=Usage(input=100_000, output=1_000))))

    assert "no price" in (desk.refused["b"].detail or "")
    assert desk.book.caps()[0].cost_usd == pytest.approx(0.208)


def test_a_price_is_found_whatever_the_capitals_of_the_model() -> None:
    desk = Desk(prices={"glm": Price(input=2.0, output=8.0)})
    desk.do(CapDeclared("swarm", None, 1.0))

    desk.ask("a", cap="swarm", model="GLM", estimated_tokens=10, estimated_cost_usd=0.1)
    desk.do(GivenBack(CallId("a"), outcome=Outcome(usage=Usage(input=100_000, output=0))))

    assert desk.book.caps()[0].cost_usd == pytest.approx(0.2)


def test_a_destination_without_a_limit_is_counted_where_a_cap_holds() -> None:
    desk = Desk()
    desk.do(CapDeclared("swarm", 100, None))

    desk.ask("a", provider="free", budget=BudgetKey("free:none"), cap="swarm", estimated_tokens=10)

    assert desk.granted == ["a"]


def test_a_released_slot_belongs_to_nobody_for_the_configured_lag() -> None:
    desk = Desk(limit=1, release_lag_ms=200.0)
    desk.ask("a", "b")
    desk.end("a")

    assert desk.granted == ["a"]
    desk.wait(0.2)
    assert desk.granted == ["a", "b"]


def test_only_its_holder_gives_a_slot_back() -> None:
    desk = Desk(limit=1)
    desk.ask("a", "b")

    desk.do(GivenBack(CallId("a"), asker=Incarnation("a stranger")))
    assert desk.granted == ["a"]

    desk.do(GivenBack(CallId("a"), asker=ME.incarnation))
    assert desk.granted == ["a", "b"]


def test_a_successor_knows_locks_parks_limits_and_what_was_spent() -> None:
    desk = Desk()
    desk.do(CapDeclared("swarm", 100, None))
    desk.ask("a", "b", cap="swarm", estimated_tokens=30)
    desk.end("a", FaultKind.CONCURRENCY, code="1302", tokens=7)

    heir = Desk(desk.journal)

    assert heir.view.state is BudgetState.PAUSED
    assert heir.view.limit == desk.view.limit < 4
    (cap,) = heir.book.caps()
    assert (cap.tokens, cap.reserved_tokens, cap.max_tokens) == (7, 30, 100)
    heir.end("b", tokens=9)
    heir.wait(100.0)
    heir.ask("c")
    heir.end("c", FaultKind.LOCKED, code="1313")
    assert Desk(heir.journal).view.state is BudgetState.LOCKED


def test_the_quota_is_asked_for_once_an_interval_and_only_while_calls_run() -> None:
    desk = Desk(quota_poll_s=300.0)
    wanted = []
    for call in ("a", "b"):
        claim = Asked(_claim(call))
        wanted += [one.wants_quota for one in desk.do(claim) if isinstance(one, Grant)]
    desk.now += 301.0
    wanted += [one.wants_quota for one in desk.do(Asked(_claim("c"))) if isinstance(one, Grant)]

    assert wanted == [True, False, True]


def _claim(call: str) -> Claim:
    return Claim(
        call=CallId(call),
        budget=KEY,
        provider="zai",
        base_url="https://api.z.ai/v4",
        model="glm",
        holder=ME,
        tree="tree",
        priority=Priority.AGENT,
        timeout_s=None,
        hold_s=100.0,
        asked_at_ms=0,
    )
