"""Whatever a provider answers, in whatever order: what a budget's regime promises holds after every step."""

from __future__ import annotations

import random

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from covey.actors.limits.regime import Regime
from covey.protocol.faults import FaultKind, fault_named
from covey.protocol.ids import BudgetKey, CallId
from covey.protocol.messages.broker import BudgetState, Outcome, QuotaWindow
from covey.storage.standings import Standing

K = FaultKind
CODES = {K.CONCURRENCY: "1302", K.RATE: "1303", K.OVERLOADED: "1305", K.QUOTA: "1308", K.LOCKED: "1313"}
FAULTS = st.sampled_from([*CODES, K.NO_BALANCE, K.TIMEOUT, K.MODEL_BUSY, K.SERVER_ERROR])
SECONDS = st.floats(0, 20_000)


class RegimeModel(RuleBasedStateMachine):
    """One budget, its calls and two clocks. `parked_until` is what the latest evidence allows at the earliest."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = 4
        self.regime = Regime(BudgetKey("zai:1"), provider="zai", limit=self.limit)
        self.now = 1000.0
        self.wall_ms = 1_800_000_000_000
        self.out: dict[CallId, float] = {}
        self.probes: set[CallId] = set()
        self.count = 0
        self.is_locked = False
        self.not_before = 0.0
        self.cut_at = 0.0
        self.chance = random.Random(1).random

    @property
    def may_go(self) -> bool:
        return self.regime.admits(in_flight=len(self.out), now=self.now)

    @rule(seconds=st.floats(0.001, 400))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.wall_ms += round(seconds * 1000)

    @rule(step_ms=st.integers(-10_000_000, 10_000_000))
    def set_the_wall_clock(self, step_ms: int) -> None:
        before = self.may_go, self.regime.next_at(self.now), self.regime.state
        self.wall_ms = max(1_700_000_000_000, self.wall_ms + step_ms)
        assert (self.may_go, self.regime.next_at(self.now), self.regime.state) == before

    @rule()
    def wait_for_the_next_change(self) -> None:
        at = self.regime.next_at(self.now)
        if at is not None:
            assert at > self.now
            self.wall_ms += round((at - self.now) * 1000)
            self.now = at

    @precondition(lambda self: self.may_go)
    @rule(work=st.sampled_from([None, "a", "b", "c"]))
    def let_one_out(self, work: str | None) -> None:
        assert self.now >= self.not_before
        self.count += 1
        call = CallId(f"call_{self.count}")
        if self.regime.is_closed(self.now):
            self.probes.add(call)
        self.out[call] = self.now
        self.regime.granted(call, work=work, in_flight=len(self.out), now=self.now)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def one_passes(self, data: st.DataObject) -> None:
        self._end(data, Outcome())

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def one_is_lost(self, data: st.DataObject) -> None:
        before = self.regime.state, self.regime.effective_limit(self.now)
        self._end(data, None)
        assert (self.regime.state, self.regime.effective_limit(self.now)) == before

    @precondition(lambda self: self.out)
    @rule(data=st.data(), kind=FAULTS, resets_s=st.none() | SECONDS, wish_s=st.none() | SECONDS)
    def one_fails(self, data: st.DataObject, kind: FaultKind, resets_s: float | None, wish_s: float | None) -> None:
        fault = fault_named(
            kind,
            "no",
            code=CODES.get(kind),
            retry_after_s=wish_s,
            resets_at=None if resets_s is None else self.wall_ms / 1000 + resets_s,
            window_s=18_000.0 if kind is K.QUOTA else None,
        )
        before = self.regime.effective_limit(self.now)
        was_crowded = kind in (K.CONCURRENCY, K.RATE)
        granted_at = self._end(data, Outcome(fault=fault))
        after = self.regime.effective_limit(self.now)
        assert after == before or (was_crowded and granted_at > self.cut_at and after < before)
        if was_crowded and granted_at > self.cut_at:
            self.cut_at = self.now
        if kind is K.QUOTA and self.regime.state is BudgetState.PARKED:
            self.not_before = self.now + 5.0
        self.is_locked = self.is_locked or self.regime.is_locked

    @rule(used=st.sampled_from([None, 0.0, 99.0, 100.0]), left_s=st.none() | st.floats(-100, 20_000))
    def the_quota_is_read(self, used: float | None, left_s: float | None) -> None:
        resets_at_ms = None if left_s is None else self.wall_ms + round(left_s * 1000)
        self.regime.quota_seen(
            (QuotaWindow(name="TOKENS_LIMIT 5 h", used_percent=used, resets_at_ms=resets_at_ms),),
            now=self.now,
            wall_ms=self.wall_ms,
        )
        if used is not None and used < 100:
            assert self.regime.state is not BudgetState.PARKED
            self.not_before = 0.0

    @precondition(lambda self: self.is_locked)
    @rule()
    def a_person_unlocks(self) -> None:
        self.regime.unlock(self.now)
        self.probes.clear()
        self.is_locked, self.not_before, self.cut_at = False, 0.0, self.now
        assert self.regime.state is BudgetState.OPEN

    @rule(limit=st.integers(1, 6))
    def the_limit_is_configured(self, limit: int) -> None:
        self.limit = limit
        self.regime.configure(limit=limit)

    @rule()
    def the_broker_is_killed(self) -> None:
        standing = self.regime.news("a") or self.regime._said
        if standing is None:
            return
        kept = msgspec.msgpack.decode(msgspec.msgpack.encode(standing), type=Standing)
        before = self.regime.state, self.regime.view(now=self.now, wall_ms=self.wall_ms).probing
        self.regime = Regime(BudgetKey("zai:1"), provider="zai", limit=self.limit)
        self.regime.restore(kept, boot="a", outstanding=set(self.out), now=self.now, wall_ms=self.wall_ms)
        assert (self.regime.state, self.regime.view(now=self.now, wall_ms=self.wall_ms).probing) == before
        # A successor knows of the latest decrease only while what followed from it lasts.
        self.cut_at = self.now if kept.hold is not None else 0.0

    @invariant()
    def the_limit_is_between_one_and_what_is_configured(self) -> None:
        assert 1 <= self.regime.effective_limit(self.now) <= self.limit
        assert 1 <= self.regime.view(now=self.now, wall_ms=self.wall_ms).limit <= self.limit

    @invariant()
    def at_most_one_probe_is_out(self) -> None:
        assert len(self.probes & set(self.out)) <= 1 or not self.regime.is_closed(self.now)

    @invariant()
    def a_closed_account_lets_nobody_beside_its_probe(self) -> None:
        if self.regime.is_closed(self.now) and self.regime.view(now=self.now, wall_ms=self.wall_ms).probing:
            assert not self.may_go

    @invariant()
    def a_lock_opens_by_nothing_but_a_person(self) -> None:
        assert self.regime.is_locked == self.is_locked
        if self.is_locked:
            assert not self.may_go
            assert self.regime.next_at(self.now) is None
            assert self.regime.turns_all_away(self.now)

    @invariant()
    def who_waits_is_told_when_to_look_again(self) -> None:
        is_stuck = not self.out and not self.may_go and not self.is_locked
        assert not is_stuck or self.regime.next_at(self.now) is not None

    def teardown(self) -> None:
        """From anywhere, enough clean calls bring everything back."""
        if self.is_locked:
            self.regime.unlock(self.now)
        for call in list(self.out):
            self._report(call, None)
        for _ in range(8000):
            if self.regime.effective_limit(self.now) == self.limit and not self.regime.is_closed(self.now):
                return
            while self.may_go:
                self.count += 1
                call = CallId(f"call_{self.count}")
                self.out[call] = self.now
                self.regime.granted(call, work=None, in_flight=len(self.out), now=self.now)
            self.now += 0.5
            for call in list(self.out):
                self._report(call, Outcome())
            self.now = max(self.now, self.regime.next_at(self.now) or 0.0)
        raise AssertionError("clean calls did not bring the limit back")

    def _end(self, data: st.DataObject, outcome: Outcome | None) -> float:
        call = data.draw(st.sampled_from(sorted(self.out)))
        granted_at = self.out[call]
        self._report(call, outcome)
        return granted_at

    def _report(self, call: CallId, outcome: Outcome | None) -> None:
        self.regime.ended(
            call,
            granted_at=self.out.pop(call),
            outcome=outcome,
            now=self.now,
            wall_ms=self.wall_ms,
            chance=self.chance(),
        )
        self.probes.discard(call)
        if outcome is not None and outcome.fault is None and self.regime.state is BudgetState.OPEN:
            self.not_before = 0.0


TestRegimeModel = RegimeModel.TestCase
TestRegimeModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
