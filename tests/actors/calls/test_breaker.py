"""The circuit breaker: what opens it, what closes it, and that one call at a time tries a silent backend."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from covey.actors.calls.breaker import FIRST_OPEN_S, LONGEST_OPEN_S, PROBE_S, Breaker, Entry
from covey.protocol.backend import Backend

HERE = Backend("p", "m", "https://a.example/v1", "aaaaaaaaaaaa")
SIBLING = Backend("p", "n", "https://a.example/v1", "aaaaaaaaaaaa")


def entered(breaker: Breaker, now: float = 0.0) -> Entry:
    found = breaker.enter(HERE, now)
    assert isinstance(found, Entry)
    return found


def go_stale(breaker: Breaker, now: float = 0.0) -> None:
    breaker.left(entered(breaker, now), now, is_stale=True)


def opened(breaker: Breaker, now: float = 0.0) -> Breaker:
    for _ in range(5):
        go_stale(breaker, now)
    return breaker


def test_five_silent_calls_in_a_row_open_it_at_once() -> None:
    breaker = Breaker()
    for _ in range(4):
        go_stale(breaker)
    assert breaker.closed_for_s(HERE, 0.0) is None

    go_stale(breaker)

    assert breaker.enter(HERE, 0.0) == FIRST_OPEN_S
    assert breaker.closed_for_s(HERE, 20.0) == FIRST_OPEN_S - 20
    assert isinstance(breaker.enter(SIBLING, 0.0), Entry)


def test_a_call_in_between_that_was_heard_of_ends_the_row() -> None:
    breaker = Breaker()
    for _ in range(4):
        go_stale(breaker)
    breaker.heard(HERE)
    for _ in range(4):
        go_stale(breaker)

    assert isinstance(breaker.enter(HERE, 0.0), Entry)


def test_what_was_not_silent_does_not_count() -> None:
    breaker = Breaker()
    for _ in range(20):
        breaker.left(entered(breaker), 0.0, is_stale=False)

    assert isinstance(breaker.enter(HERE, 0.0), Entry)


def test_after_a_while_one_call_tries_it_and_the_others_wait_for_its_end() -> None:
    breaker = opened(Breaker())
    probe = entered(breaker, FIRST_OPEN_S)

    assert probe.is_probe
    assert breaker.enter(HERE, FIRST_OPEN_S) == PROBE_S


def test_a_probe_that_is_heard_of_lets_everybody_in() -> None:
    breaker = opened(Breaker())
    entered(breaker, FIRST_OPEN_S)

    breaker.heard(HERE)

    assert not entered(breaker, FIRST_OPEN_S).is_probe
    assert not entered(breaker, FIRST_OPEN_S).is_probe


def test_a_probe_that_is_cancelled_makes_room_for_another() -> None:
    breaker = opened(Breaker())
    breaker.left(entered(breaker, FIRST_OPEN_S), FIRST_OPEN_S, is_stale=False)

    assert entered(breaker, FIRST_OPEN_S).is_probe


def test_a_silent_probe_closes_it_for_twice_as_long_up_to_a_bound() -> None:
    breaker, now, waits = opened(Breaker()), 0.0, []
    for _ in range(6):
        wait_s = breaker.closed_for_s(HERE, now)
        assert wait_s is not None
        waits.append(wait_s)
        now += wait_s
        go_stale(breaker, now)

    assert waits == [60, 120, 240, 480, LONGEST_OPEN_S, LONGEST_OPEN_S]


def test_calls_that_were_out_when_it_opened_do_not_prolong_it() -> None:
    breaker = Breaker()
    out = [entered(breaker) for _ in range(20)]
    for entry in out:
        breaker.left(entry, 1.0, is_stale=True)

    assert breaker.closed_for_s(HERE, 1.0) == FIRST_OPEN_S
    late = out[0]
    probe = entered(breaker, 1.0 + FIRST_OPEN_S)
    breaker.left(late, 1.0 + FIRST_OPEN_S, is_stale=True)
    assert breaker.enter(HERE, 1.0 + FIRST_OPEN_S) == PROBE_S
    breaker.left(probe, 2.0 + FIRST_OPEN_S, is_stale=False)
    assert entered(breaker, 2.0 + FIRST_OPEN_S).is_probe


def test_zero_switches_it_off() -> None:
    breaker = Breaker(0)
    for _ in range(50):
        go_stale(breaker)

    assert len(breaker) == 0


@pytest.mark.parametrize("axis", ["model", "base_url", "credential"])
def test_a_backend_that_is_not_known_has_no_circuit(axis: str) -> None:
    import msgspec

    nobody = msgspec.structs.replace(HERE, **{axis: None})
    breaker = Breaker(1)
    entry = breaker.enter(nobody, 0.0)
    assert isinstance(entry, Entry)
    breaker.left(entry, 0.0, is_stale=True)

    assert isinstance(breaker.enter(nobody, 0.0), Entry)


def test_backends_that_are_not_heard_of_for_long_are_forgotten() -> None:
    breaker = Breaker(1, kept=3)
    for number in range(10):
        entry = breaker.enter(Backend("p", f"m{number}", "https://a.example", "k"), 0.0)
        assert isinstance(entry, Entry)
        breaker.left(entry, 0.0, is_stale=True)

    assert len(breaker) == 3
    assert breaker.closed_for_s(Backend("p", "m9", "https://a.example", "k"), 0.0) is not None
    assert breaker.closed_for_s(Backend("p", "m0", "https://a.example", "k"), 0.0) is None


class Circuit(RuleBasedStateMachine):
    """Any calls in any order: while it is open nobody passes, and never two probes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker, self.now = Breaker(3), 0.0
        self.out: list[Entry] = []
        self.probes: list[Entry] = []
        self.row = 0

    @rule(seconds=st.floats(min_value=0, max_value=200))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def a_call_comes(self) -> None:
        promised = self.breaker.closed_for_s(HERE, self.now)
        found = self.breaker.enter(HERE, self.now)
        if isinstance(found, Entry):
            assert promised is None
            self.out.append(found)
            self.probes += [found] if found.is_probe else []
        else:
            assert promised == found > 0
            assert found <= LONGEST_OPEN_S
            assert self.row >= 3

    @precondition(lambda self: self.out)
    @rule(number=st.integers(min_value=0), is_stale=st.booleans())
    def a_call_ends(self, number: int, is_stale: bool) -> None:
        entry = self.out.pop(number % len(self.out))
        self.breaker.left(entry, self.now, is_stale=is_stale)
        self.probes = [probe for probe in self.probes if probe is not entry]
        self.row += is_stale

    @precondition(lambda self: self.out)
    @rule()
    def content_comes(self) -> None:
        self.breaker.heard(HERE)
        self.row, self.probes = 0, []
        assert self.breaker.closed_for_s(HERE, self.now) is None

    @invariant()
    def one_probe_at_a_time(self) -> None:
        assert len(self.probes) <= 1

    @invariant()
    def nobody_is_kept_out_for_ever(self) -> None:
        wait_s = self.breaker.closed_for_s(HERE, self.now)
        if wait_s is not None and not self.probes:
            assert self.breaker.closed_for_s(HERE, self.now + wait_s) is None


Circuit.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestCircuit = Circuit.TestCase
