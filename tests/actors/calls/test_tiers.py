"""Every tier of trying again is reached under the shipped configuration, and no course of faults leaves its bounds."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.actors.calls.benches import Benches, told_scope
from covey.actors.calls.breaker import Entry
from covey.actors.calls.clocks import clocks_for
from covey.actors.calls.failover import FAILOVER_RETRIES, WAIT_WORTH_S
from covey.actors.calls.patience import patience_for
from covey.actors.calls.route import MAX_ROTATIONS, Again, End, Instant, Next, Rotate, Route, Step, Target
from covey.actors.calls.vigil import Clock, Vigil
from covey.protocol.backend import Backend, is_same
from covey.protocol.errors import BudgetParked, CoveyError, NoKey
from covey.protocol.fault_kinds import Fault, FaultAction, FaultKind
from covey.protocol.faults import fault_named
from covey.protocol.settings import CallSettings, ProviderSettings

CALLS = CallSettings()
WALL = 1_800_000_000.0
FULL, NONE = 1.0, 0.0


def target(name: str, model: str = "m") -> Target:
    return Target(ProviderSettings(name=name, base_url=f"https://{name}.example/v1"), model)


def shipped(*targets: Target, benches: Benches | None = None) -> Route:
    """The route of a call as it is made without a line of configuration, its first key chosen."""
    route = Route(
        targets,
        benches=benches or Benches(stale_calls=CALLS.breaker_stale_calls),
        patience=patience_for(CALLS),
    )
    assert route.begin() == Next(targets[0])
    assert route.chose(f"key-{targets[0].provider.name}", Instant(0.0, WALL, NONE)) is None
    return route


def fault(kind: FaultKind, **facts: object) -> Fault:
    return msgspec.structs.replace(fault_named(kind, "no"), **facts)


def walk(route: Route, end: Fault, *, took_s: float, chance: float, is_brokered: bool = False) -> list[float]:
    """Meet the same fault until something else than another attempt comes; the pauses before it."""
    pauses: list[float] = []
    now = 0.0
    while True:
        now += took_s
        step = route.failed(end, took_s, Instant(now, WALL + now, chance), is_brokered=is_brokered)
        if not isinstance(step, Again):
            return pauses
        pauses.append(step.pause_s)
        route.paused(step.pause_s)
        now += step.pause_s


# --- the tiers, one by one -------------------------------------------------------------------------------------------


def test_immediate_retry_where_the_broker_keeps_the_time() -> None:
    step = shipped(target("a")).failed(fault(FaultKind.OVERLOADED), 0.2, Instant(0.0, WALL, FULL), is_brokered=True)

    assert step == Again(0.0)


def test_every_step_of_the_backoff_up_to_the_longest() -> None:
    pauses = walk(shipped(target("a")), fault(FaultKind.SERVER_ERROR), took_s=0.1, chance=FULL)

    assert pauses[:6] == [1, 2, 4, 8, 16, 30]
    assert set(pauses[5:]) == {30}


def test_the_bound_of_retries_in_time() -> None:
    pauses = walk(shipped(target("a")), fault(FaultKind.SERVER_ERROR), took_s=0.1, chance=FULL)

    assert CALLS.retry_seconds - 31 < sum(pauses) <= CALLS.retry_seconds


def test_the_bound_of_attempts_that_may_have_cost_something() -> None:
    assert len(walk(shipped(target("a")), fault(FaultKind.TRUNCATED), took_s=5.0, chance=NONE)) == 2


def test_the_bound_for_an_address_where_nobody_ever_was() -> None:
    pauses = walk(shipped(target("a")), fault(FaultKind.UNREACHABLE), took_s=0.1, chance=FULL)

    assert 25 < sum(pauses) <= 60


def test_the_time_a_provider_asks_for() -> None:
    step = shipped(target("a")).failed(fault(FaultKind.RATE, retry_after_s=500.0), 1.0, Instant(0.0, WALL, NONE))

    assert isinstance(step, Rotate)
    assert shipped(target("a")).failed(
        fault(FaultKind.SERVER_ERROR, retry_after_s=500.0), 1.0, Instant(0.0, WALL, NONE)
    ) == Again(500.0)


def test_fail_over_after_retries() -> None:
    route = shipped(target("a"), target("b"))

    assert len(walk(route, fault(FaultKind.SERVER_ERROR), took_s=1.0, chance=FULL)) == FAILOVER_RETRIES
    assert route.target == target("b")


def test_the_end_of_the_chain() -> None:
    route = shipped(target("a"), target("b"))
    route.failed(fault(FaultKind.MODEL_UNKNOWN), 1.0, Instant(1.0, WALL, NONE))
    assert route.chose("key-b", Instant(1.0, WALL, NONE)) is None

    assert isinstance(route.failed(fault(FaultKind.MODEL_UNKNOWN), 1.0, Instant(2.0, WALL, NONE)), End)


@pytest.mark.parametrize("model", ["some-model", "o3", "deepseek-r1"])
def test_the_silence_of_any_model_is_tried_once_more(model: str) -> None:
    clocks = clocks_for(target("a").provider.timeouts, CALLS, model)
    vigil = Vigil(clocks, 0.0)
    vigil.sent(0.0)
    expired = vigil.expired(vigil.deadline)
    assert expired is not None
    assert expired.clock is Clock.HEAD

    assert isinstance(
        shipped(target("a", model)).failed(expired.fault, vigil.deadline, Instant(vigil.deadline, WALL, FULL)), Again
    )


def test_the_bound_of_the_whole_call() -> None:
    route = shipped(target("a"))
    silent = fault(FaultKind.TIMEOUT)
    assert isinstance(route.failed(silent, 600.0, Instant(600.0, WALL, NONE)), Again)
    clocks = clocks_for(target("a").provider.timeouts, CALLS, "m").within(route.left_s)
    vigil = Vigil(clocks, 600.0)
    vigil.head(601.0)
    now = 601.0
    while vigil.expired(now) is None:
        vigil.content(now)
        now = min(now + 10.0, vigil.deadline)

    expired = vigil.expired(now)
    assert expired is not None
    assert (expired.clock, now) == (Clock.TOTAL, CALLS.total_seconds)
    assert isinstance(route.failed(expired.fault, 1200.0, Instant(now, WALL, NONE)), End)


def test_the_open_breaker_and_the_probe_behind_it() -> None:
    benches = Benches(stale_calls=CALLS.breaker_stale_calls)
    backend = target("a").backend("key-a")
    for _ in range(CALLS.breaker_stale_calls):
        entry = benches.enter(backend, 0.0)
        assert isinstance(entry, Entry)
        benches.left(entry, fault(FaultKind.TIMEOUT), 0.0)
    refused = benches.enter(backend, 0.0)
    assert isinstance(refused, Fault)

    alone = shipped(target("a"), benches=benches).failed(refused, 0.0, Instant(0.0, WALL, NONE))
    with_another = shipped(target("a"), target("b"), benches=benches).failed(refused, 0.0, Instant(0.0, WALL, NONE))

    assert with_another == Next(target("b"))
    assert isinstance(alone, Again)
    probe = benches.enter(backend, alone.pause_s)
    assert isinstance(probe, Entry)
    assert probe.is_probe


def test_every_action_that_means_another_attempt_gets_one() -> None:
    for kind in FaultKind:
        one = fault(kind)
        if one.action is FaultAction.RETRY or (one.action is FaultAction.WAIT and kind is not FaultKind.QUOTA):
            assert isinstance(shipped(target("a")).failed(one, 1.0, Instant(1.0, WALL, NONE)), Again), kind


# --- any course of a call --------------------------------------------------------------------------------------------

FAULTS = st.builds(
    lambda kind, retry_after_s, resets_in_s: fault(
        kind,
        retry_after_s=retry_after_s,
        resets_at=None if resets_in_s is None else WALL + resets_in_s,
        status=None if kind in (FaultKind.UNREACHABLE, FaultKind.TIMEOUT) else 500,
    ),
    st.sampled_from(FaultKind),
    st.sampled_from([None, None, 0.0, 5.0, 90.0, 5000.0]),
    st.sampled_from([None, None, 30.0, 7200.0]),
)
ERRORS = st.sampled_from(
    [
        BudgetParked("a:1", "used up", until=WALL + 7200, queued=0),
        BudgetParked("a:1", "used up", until=None, queued=0),
        NoKey("a", "none"),
        NoKey("a", "all rest", until=WALL + 20),
    ]
)
TARGETS = st.lists(st.builds(target, st.sampled_from("abc"), st.sampled_from(["m", "n"])), min_size=1, max_size=5).map(
    tuple
)
ENDS = st.lists(
    st.tuples(st.one_of(FAULTS, FAULTS, ERRORS), st.sampled_from([0.5, 30.0, 400.0]), st.booleans()), min_size=1
)


class Journey:
    """A call that meets `ends` in turn, again and again; every provider has `keys` keys."""

    def __init__(
        self,
        targets: tuple[Target, ...],
        ends: list[tuple[Fault | CoveyError, float, bool]],
        keys: int,
        benches: Benches | None = None,
    ) -> None:
        self.route = Route(targets, benches=benches or Benches(), patience=patience_for(CALLS))
        self.ends, self.keys, self.now, self.met = ends, keys, 0.0, 0
        self.attempts: list[Backend] = []
        self.arrivals: Counter[int] = Counter()
        self.given_up: list[tuple[Backend, Fault]] = []

    def run(self) -> End:
        step: Step | None = self.route.begin()
        has_key = False
        for _ in range(5_000):
            if isinstance(step, End):
                return step
            if isinstance(step, Again):
                self.sleep(step.pause_s)
            elif isinstance(step, Next):
                self.arrivals[self.index] += 1
                self.sleep(step.pause_s)
                has_key = False
            elif isinstance(step, Rotate):
                has_key = False
            if not has_key:
                step = self.choose()
                has_key = step is None or isinstance(step, Again)
                if step is not None:
                    continue
            step = self.attempt()
        raise AssertionError("it does not end")

    @property
    def index(self) -> int:
        return self.route._index

    @property
    def at(self) -> Instant:
        return Instant(self.now, WALL + self.now, 0.5)

    def sleep(self, pause_s: float) -> None:
        assert 0 <= pause_s <= self.route.left_s
        self.now += pause_s
        self.route.paused(pause_s)

    def choose(self) -> Step | None:
        own = [f"{self.route.target.provider.name}{number}" for number in range(self.keys)]
        key = next((key for key in own if key not in self.route.avoid), None)
        if key is None:
            return self.route.refused(NoKey("p", "all are avoided"), self.at)
        return self.route.chose(key, self.at)

    def attempt(self) -> Step:
        end, took_s, is_brokered = self.ends[self.met % len(self.ends)]
        self.met += 1
        here = self.route.backend
        if isinstance(end, CoveyError):
            return self.route.refused(end, self.at)
        self.attempts.append(here)
        for dead, why in self.given_up:
            assert not is_same(here, dead, told_scope(why)), f"{here} was proven dead by {why}"
        took_s = min(took_s, self.route.left_s)
        self.now += took_s
        step = self.route.failed(end, took_s, self.at, is_brokered=is_brokered)
        self.check(step, end, here, is_brokered)
        return step

    def check(self, step: Step, end: Fault, here: Backend, is_brokered: bool) -> None:
        if isinstance(step, Again) and not (is_brokered and end.action is FaultAction.WAIT):
            assert step.pause_s >= (end.retry_after_s or 0.0)
        if isinstance(step, Next) and end.action in (FaultAction.STOP, FaultAction.FAIL_OVER):
            self.given_up.append((here, end))


@settings(max_examples=150, deadline=None)
@given(TARGETS, ENDS, st.integers(min_value=1, max_value=3))
def test_any_course_of_faults_ends_within_its_bounds(
    targets: tuple[Target, ...], ends: list[tuple[Fault | CoveyError, float, bool]], keys: int
) -> None:
    journey = Journey(targets, ends, keys)

    journey.run()

    patience = patience_for(CALLS)
    assert journey.route.strain.total_s <= patience.total_s
    assert all(times <= 2 for times in journey.arrivals.values()), "a target is come back to once"
    assert len(journey.route.trail) <= 2 * len(targets)
    assert len(set(journey.attempts)) <= len(set(targets_of(targets))) * (MAX_ROTATIONS + 1)


def targets_of(targets: tuple[Target, ...]) -> list[tuple[str, str]]:
    return [(one.provider.name, one.model) for one in targets]


PASSING = st.lists(
    st.builds(
        lambda kind, retry_after_s: fault(kind, retry_after_s=retry_after_s, status=500),
        st.sampled_from(
            [
                FaultKind.SERVER_ERROR,
                FaultKind.OVERLOADED,
                FaultKind.MODEL_BUSY,
                FaultKind.RATE,
                FaultKind.CONCURRENCY,
                FaultKind.QUOTA,
                FaultKind.AUTH,
                FaultKind.MODEL_UNKNOWN,
                FaultKind.NOT_SENT,
            ]
        ),
        st.sampled_from([None, 3.0, 100.0]),
    ),
    max_size=8,
)


class World:
    """Providers that meet each call with so many faults and then answer."""

    def __init__(self, scripts: list[list[Fault]]) -> None:
        self.targets = tuple(target(f"p{number}") for number in range(len(scripts)))
        self.left = {one.provider.name: list(script) for one, script in zip(self.targets, scripts, strict=True)}

    def is_answered(self, targets: tuple[Target, ...], is_brokered: bool) -> bool:
        left = {name: list(script) for name, script in self.left.items()}
        route = Route(targets, benches=Benches(), patience=patience_for(CALLS))
        step: Step | None = route.begin()
        now = 0.0
        while not isinstance(step, End):
            pause = step.pause_s if isinstance(step, (Again, Next)) else 0.0
            now += pause
            route.paused(pause)
            at = Instant(now, WALL + now, 0.5)
            if isinstance(step, (Next, Rotate)):
                key = route.target.provider.name
                step = route.refused(NoKey(key, "no other"), at) if key in route.avoid else route.chose(key, at)
                if step is not None:
                    continue
            script = left[route.target.provider.name]
            if not script:
                return True
            now += 1.0
            step = route.failed(script.pop(0), 1.0, Instant(now, WALL + now, 0.5), is_brokered=is_brokered)
        return False


@settings(max_examples=150, deadline=None)
@given(st.lists(PASSING, min_size=1, max_size=4), st.booleans())
def test_fallbacks_end_no_call_that_the_primary_alone_would_have_answered(
    scripts: list[list[Fault]], is_brokered: bool
) -> None:
    world = World(scripts)

    if world.is_answered(world.targets[:1], is_brokered):
        assert world.is_answered(world.targets, is_brokered)


def test_a_wait_that_is_worth_it_fits_into_the_shipped_patience() -> None:
    assert WAIT_WORTH_S < CALLS.retry_seconds < CALLS.total_seconds
