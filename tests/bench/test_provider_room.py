"""Room for calls, against a model that is too simple to be wrong."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from covey.bench.provider_room import Room


class Rooming(RuleBasedStateMachine):
    """Calls of two accounts and two models come, end with or without a lag, and end again; time goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.room = Room()
        self.now = 0.0
        self.calls: list[tuple[str, str, float | None]] = []

    @rule(account=st.sampled_from("ab"), model=st.sampled_from("xy"))
    def enter(self, account: str, model: str) -> None:
        self.room.enter(len(self.calls), account, model)
        self.calls.append((account, model, None))

    @precondition(lambda self: self.calls)
    @rule(which=st.integers(0, 30), lag=st.sampled_from([0.0, 0.3, 5.0]))
    def leave(self, which: int, lag: float) -> None:
        call = which % len(self.calls)
        account, model, ends = self.calls[call]
        self.room.leave(call, at=self.now + lag)
        self.calls[call] = (account, model, self.now + lag if ends is None else min(ends, self.now + lag))

    @rule(step=st.sampled_from([0.1, 1.0, 6.0]))
    def wait(self, step: float) -> None:
        self.now += step

    @invariant()
    def counts_agree(self) -> None:
        there = [(account, model) for account, model, ends in self.calls if ends is None or ends > self.now]
        for account in "ab":
            of_account = sum(1 for call in there if call[0] == account)
            for model in "xy":
                found = self.room.taken(account, model, now=self.now)
                assert found == (of_account, there.count((account, model)))


TestRooming = Rooming.TestCase
