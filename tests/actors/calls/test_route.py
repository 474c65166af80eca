"""The way of a call through its chain: stay, take another key, go on, come back, end."""

from __future__ import annotations

import msgspec
import pytest

from covey.actors.calls.benches import Benches
from covey.actors.calls.failover import FAILOVER_RETRIES, WAIT_WORTH_S
from covey.actors.calls.patience import Patience
from covey.actors.calls.route import Again, End, Instant, Next, Rotate, Route, Step, Target
from covey.protocol.errors import (
    BrokerSilent,
    BudgetLocked,
    BudgetParked,
    CapReached,
    CoveyError,
    NoKey,
    QueueFull,
    RequestRefused,
    SlotRevoked,
    SlotTimeout,
)
from covey.protocol.fault_kinds import Fault, FaultKind
from covey.protocol.faults import fault_named
from covey.protocol.settings import ModelOverride, ProviderSettings

WALL = 1_800_000_000.0
AT = Instant(0.0, WALL, 0.5)
KEY, SECOND = "aaaaaaaaaaaa", "bbbbbbbbbbbb"


def provider(name: str, **facts: object) -> ProviderSettings:
    return ProviderSettings(name=name, **{"base_url": f"https://{name}.example/v1", **facts})  # type: ignore[arg-type]


A, B = Target(provider("a"), "large"), Target(provider("b"), "other")
SIBLING = Target(A.provider, "small")


def at(now: float) -> Instant:
    return Instant(now, WALL + now, 0.5)


def fault(kind: FaultKind, **facts: object) -> Fault:
    return msgspec.structs.replace(fault_named(kind, "no"), **facts)


class Call:
    """A call under way; every provider has the keys it is given, in this order."""

    def __init__(self, *targets: Target, benches: Benches | None = None, keys: tuple[str, ...] = (KEY,)) -> None:
        self.benches = benches or Benches()
        self.route = Route(targets, benches=self.benches)
        self.keys = keys
        self.now = 0.0
        self.told: list[FaultKind] = []
        """What was told of keys."""
        self.renewals = 0
        self.step: Step = self.follow(self.route.begin())

    def follow(self, step: Step) -> Step:
        """Choose keys until the next attempt may begin; the step that led there, or the end."""
        while isinstance(step, (Rotate, Next)):
            if isinstance(step, Rotate):
                self.told += [step.fault.kind] if step.fault else []
                self.renewals += step.renew
            key = next((key for key in self._own_keys() if key not in self.route.avoid), None)
            then = (
                self.route.refused(NoKey("p", "all are avoided"), at(self.now))
                if key is None
                else self.route.chose(key, at(self.now))
            )
            if then is None:
                return step
            step = then
        return step

    def _own_keys(self) -> list[str]:
        return [f"{self.route.target.provider.name}-{key}" for key in self.keys]

    def meets(self, end: Fault | CoveyError, took_s: float = 1.0, *, is_brokered: bool = False) -> Step:
        """The attempt ends like this; what comes then."""
        self.now += took_s
        self.step = self.follow(
            self.route.failed(end, took_s, at(self.now), is_brokered=is_brokered)
            if isinstance(end, Fault)
            else self.route.refused(end, at(self.now))
        )
        if isinstance(self.step, Again):
            self.route.paused(self.step.pause_s)
            self.now += self.step.pause_s
        return self.step

    @property
    def at(self) -> tuple[str, str]:
        return self.route.target.provider.name, self.route.target.model

    @property
    def key(self) -> str:
        assert self.route.backend.credential is not None
        return self.route.backend.credential.partition("-")[2]


def is_at(call: Call, target: Target) -> bool:
    return call.route.target == target


# --- faults that end it here -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        FaultKind.AUTH,
        FaultKind.FORBIDDEN,
        FaultKind.BLOCKED,
        FaultKind.NO_BALANCE,
        FaultKind.PLAN_EXPIRED,
        FaultKind.MODEL_NOT_IN_PLAN,
        FaultKind.LOCKED,
        FaultKind.BAD_REQUEST,
        FaultKind.MALFORMED_HISTORY,
        FaultKind.SCHEMA_REFUSED,
        FaultKind.UNAFFORDABLE,
        FaultKind.CONTENT_POLICY,
        FaultKind.PROVIDER_POLICY,
        FaultKind.MODEL_UNKNOWN,
        FaultKind.NOT_FOUND,
        FaultKind.TLS,
        FaultKind.QUOTA,
    ],
)
def test_what_no_repetition_helps_goes_to_the_next_target_at_once(kind: FaultKind) -> None:
    call = Call(A, B)

    assert call.meets(fault(kind)) == Next(B)
    assert call.route.attempts == 1
    assert call.route.trail == [(A, fault(kind))]


@pytest.mark.parametrize("kind", [FaultKind.AUTH, FaultKind.CONTENT_POLICY, FaultKind.NOT_FOUND, FaultKind.LOCKED])
def test_and_ends_where_there_is_none(kind: FaultKind) -> None:
    assert Call(A).meets(fault(kind)) == End(fault(kind))


@pytest.mark.parametrize(
    ("kind", "reaches_sibling"),
    [
        pytest.param(FaultKind.MODEL_UNKNOWN, True, id="an unknown model says nothing of its sibling"),
        pytest.param(FaultKind.CONTENT_POLICY, True, id="nor does what one model will not say"),
        pytest.param(FaultKind.AUTH, False, id="a refused key is refused for the sibling"),
        pytest.param(FaultKind.NO_BALANCE, False, id="an empty account is empty for the sibling"),
        pytest.param(FaultKind.LOCKED, False, id="a lock closes it too"),
        pytest.param(FaultKind.TLS, False, id="a certificate is the endpoint's"),
        pytest.param(FaultKind.NOT_FOUND, False, id="so is a URL that nothing answers at"),
    ],
)
def test_candidates_that_share_what_failed_are_skipped(kind: FaultKind, reaches_sibling: bool) -> None:
    call = Call(A, SIBLING, B)

    call.meets(fault(kind))

    assert is_at(call, SIBLING if reaches_sibling else B)


def test_a_pool_of_one_model_at_several_urls_is_gone_through() -> None:
    pool = [Target(provider(f"p{number}"), "large") for number in range(3)]
    call = Call(*pool)
    seen = [call.at]
    while isinstance(call.meets(fault(FaultKind.MODEL_UNKNOWN)), Next):
        seen.append(call.at)

    assert seen == [("p0", "large"), ("p1", "large"), ("p2", "large")]


@pytest.mark.parametrize("kind", [FaultKind.PAYLOAD_TOO_LARGE, FaultKind.CONTEXT_OVERFLOW])
def test_a_request_that_is_too_long_is_not_sent_elsewhere(kind: FaultKind) -> None:
    assert Call(A, B).meets(fault(kind)) == End(fault(kind))


def windowed(name: str, tokens: int | None) -> Target:
    models = {} if tokens is None else {"m": ModelOverride(context_window=tokens)}
    return Target(provider(name, models=models), "m")


def test_unless_a_target_is_known_to_take_more() -> None:
    call = Call(windowed("a", 1000), windowed("b", None), windowed("c", 1000), windowed("d", 2000), B)

    assert call.meets(fault(FaultKind.CONTEXT_OVERFLOW)) == Next(windowed("d", 2000))
    assert call.meets(fault(FaultKind.MODEL_UNKNOWN)) == End(fault(FaultKind.MODEL_UNKNOWN))


def test_the_window_the_provider_names_counts_as_known() -> None:
    overflow = fault(FaultKind.CONTEXT_OVERFLOW, limit_tokens=1500)

    assert Call(windowed("a", None), windowed("b", 1500)).meets(overflow) == End(overflow)
    assert isinstance(Call(windowed("a", None), windowed("b", 1501)).meets(overflow), Next)


# --- faults that pass ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [FaultKind.SERVER_ERROR, FaultKind.OVERLOADED, FaultKind.MODEL_BUSY, FaultKind.UPSTREAM_LIMITED]
)
def test_a_trouble_that_passes_is_tried_twice_more_before_going_on(kind: FaultKind) -> None:
    call = Call(A, B)

    steps = [call.meets(fault(kind)) for _ in range(FAILOVER_RETRIES + 1)]

    assert [type(step) for step in steps] == [Again, Again, Next]


def test_one_silence_is_enough_where_another_could_answer() -> None:
    assert Call(A, B).meets(fault(FaultKind.TIMEOUT), 300.0) == Next(B)


def test_a_silence_is_tried_once_more_where_nobody_else_could() -> None:
    call = Call(A)

    assert isinstance(call.meets(fault(FaultKind.TIMEOUT), 600.0), Again)
    assert isinstance(call.meets(fault(FaultKind.TIMEOUT), 600.0), End)


@pytest.mark.parametrize("is_brokered", [True, False])
def test_too_many_calls_at_once_never_leave_nor_rotate(is_brokered: bool) -> None:
    call = Call(A, B, keys=(KEY, SECOND))

    for _ in range(20):
        assert isinstance(call.meets(fault(FaultKind.CONCURRENCY), 0.1, is_brokered=is_brokered), Again)
    assert call.key == KEY
    assert call.told == []


@pytest.mark.parametrize(
    ("wait_s", "goes"),
    [
        pytest.param(WAIT_WORTH_S, False, id="a minute is waited: the prompt is cached here"),
        pytest.param(WAIT_WORTH_S + 1, True, id="more is not"),
    ],
)
@pytest.mark.parametrize("kind", [FaultKind.RATE, FaultKind.QUOTA, FaultKind.SERVER_ERROR])
def test_a_time_the_provider_asks_for(kind: FaultKind, wait_s: float, goes: bool) -> None:
    step = Call(A, B).meets(fault(kind, retry_after_s=wait_s))

    assert (step == Next(B)) is goes
    if not goes:
        assert isinstance(step, Again)
        assert step.pause_s >= wait_s


def test_hours_are_not_waited_though_the_broker_would() -> None:
    until = fault(FaultKind.QUOTA, resets_at=WALL + 7200)

    assert Call(A, B).meets(until, is_brokered=True) == Next(B)
    assert Call(A).meets(until, is_brokered=True) == Again(0.0)
    assert Call(A).meets(until) == End(until)


def test_the_brokers_word_comes_before_our_own_schedule() -> None:
    assert Call(A).meets(fault(FaultKind.RATE, retry_after_s=20.0), is_brokered=True) == Again(0.0)


def test_a_machine_without_files_does_not_try_another_target() -> None:
    assert isinstance(Call(A, B).meets(fault(FaultKind.OUT_OF_FILES)), Again)


def test_a_retry_that_would_only_meet_the_same_account_is_no_failover() -> None:
    # With the sibling alone behind it, two minutes at the primary are all there is.
    assert isinstance(Call(A, SIBLING).meets(fault(FaultKind.RATE, retry_after_s=120.0)), Again)


def test_nor_is_one_that_would_meet_the_same_endpoint() -> None:
    call = Call(A, SIBLING)

    assert [type(call.meets(fault(FaultKind.UNREACHABLE))) for _ in range(5)] == [Again] * 5


# --- keys ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [FaultKind.QUOTA, FaultKind.NO_BALANCE, FaultKind.PLAN_EXPIRED, FaultKind.UNAFFORDABLE]
)
def test_another_key_goes_before_another_target(kind: FaultKind) -> None:
    call = Call(A, B, keys=(KEY, SECOND))

    assert call.meets(fault(kind)) == Rotate(fault(kind))
    assert (call.at, call.key, call.told) == (("a", "large"), SECOND, [kind])
    assert call.meets(fault(kind)) == Next(B)
    assert call.told == [kind, kind]


def test_a_refused_key_is_renewed_once_before_it_is_given_up() -> None:
    call = Call(A, B, keys=(KEY, SECOND))

    assert call.meets(fault(FaultKind.AUTH)) == Rotate(fault(FaultKind.AUTH), renew=True)
    assert call.meets(fault(FaultKind.AUTH)) == Next(B)
    assert call.renewals == 1


def test_a_renewed_key_of_the_same_account_may_be_used_for_later_targets_too() -> None:
    call = Call(A, SIBLING)

    assert call.route.failed(fault(FaultKind.AUTH), 1.0, AT) == Rotate(fault(FaultKind.AUTH), renew=True)
    call.route.renewed()

    assert call.route.avoid == frozenset()
    assert call.meets(fault(FaultKind.MODEL_UNKNOWN)) == Next(SIBLING)


def test_a_renewed_key_that_is_refused_too_is_rotated_away() -> None:
    call = Call(A, B)
    step = call.route.failed(fault(FaultKind.AUTH), 1.0, AT)
    assert step == Rotate(fault(FaultKind.AUTH), renew=True)
    assert call.route.chose("renewed", AT) is None

    assert call.route.failed(fault(FaultKind.AUTH), 1.0, AT) == Rotate(fault(FaultKind.AUTH), renew=False)
    assert call.route.avoid == {f"a-{KEY}", "renewed"}


def test_a_provider_without_keys_rotates_nothing() -> None:
    route = Route((A,), benches=Benches())
    assert route.chose(None, AT) is None

    assert route.failed(fault(FaultKind.AUTH), 1.0, AT) == End(fault(FaultKind.AUTH))


def test_the_first_refusal_of_a_rate_keeps_the_key_and_the_second_does_not() -> None:
    call = Call(A, keys=(KEY, SECOND))

    assert isinstance(call.meets(fault(FaultKind.RATE)), Again)
    assert call.meets(fault(FaultKind.RATE)) == Rotate(fault(FaultKind.RATE))
    assert call.key == SECOND


def test_one_key_that_is_refused_for_its_rate_is_kept_for_the_pause() -> None:
    call = Call(A)

    assert [type(call.meets(fault(FaultKind.RATE))) for _ in range(6)] == [Again] * 6
    assert call.told == [FaultKind.RATE]


def test_a_key_that_may_not_use_one_model_may_use_the_next() -> None:
    call = Call(A, SIBLING, keys=(KEY, SECOND))

    call.meets(fault(FaultKind.MODEL_NOT_IN_PLAN))
    call.meets(fault(FaultKind.MODEL_NOT_IN_PLAN))

    assert (call.at, call.key) == (("a", "small"), KEY)


def test_without_any_key_the_next_target_is_asked() -> None:
    call = Call(A, B)

    assert call.meets(NoKey("a", "none is configured")) == Next(B)
    assert call.benches.resting(A.backend(f"a-{KEY}"), 0.0) is None


def test_keys_that_rest_for_seconds_are_waited_for_where_nobody_else_is() -> None:
    soon, late = NoKey("a", "all rest", until=WALL + 30), NoKey("a", "all rest", until=WALL + 7200)

    assert Call(A).meets(soon, 0.0) == Again(30.0)
    assert Call(A).meets(late, 0.0) == End(late)
    assert Call(A, B).meets(soon, 0.0) == Next(B)


# --- the fleet's own no ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(BudgetParked("a:1", "used up", until=WALL + 7200, queued=0), id="parked"),
        pytest.param(BudgetParked("a:1", "overloaded", until=None, queued=0), id="parked for nobody knows how long"),
        pytest.param(BudgetLocked("a:1", "fair use", queued=0), id="locked"),
        pytest.param(RequestRefused("a:1", "1305 again"), id="the request refused again and again"),
        pytest.param(SlotTimeout("a:1", 5.0, 3), id="no slot in time"),
        pytest.param(QueueFull("a:1", 1000), id="queue full"),
    ],
)
def test_a_local_no_is_a_reason_to_go_on_and_speaks_against_no_backend(error: CoveyError) -> None:
    call = Call(A, B)

    assert call.meets(error, 0.0) == Next(B)
    assert call.benches.resting(A.backend(f"a-{KEY}"), 0.0) is None
    assert call.route.attempts == 0
    assert Call(A).meets(error, 0.0) in (End(error), Next(A))


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(SlotRevoked("a:1"), id="the agent was stopped"),
        pytest.param(CapReached("a:1", "tokens"), id="what was allowed is spent"),
        pytest.param(BrokerSilent("a:1", 5.0), id="the one broker does not answer"),
    ],
)
def test_a_local_no_that_holds_everywhere_ends_the_call(error: CoveyError) -> None:
    assert Call(A, B).meets(error, 0.0) == End(error)


def test_a_lock_closes_the_siblings_of_the_account_too() -> None:
    call = Call(A, SIBLING, B)
    call.meets(BudgetLocked("a:1", "fair use", queued=0), 0.0)

    assert is_at(call, B)


def test_a_parked_account_is_worth_a_minute_where_another_could_answer_and_any_time_where_not() -> None:
    call = Call(A, B)
    assert call.route.park_wait_s(0.0) == WAIT_WORTH_S
    assert Call(A).route.park_wait_s(0.0) is None

    call.meets(BudgetParked("a:1", "used up", until=WALL + 7200, queued=0), 0.0)
    call.meets(fault(FaultKind.AUTH))

    assert is_at(call, A)
    assert call.route.park_wait_s(0.0) is None


def test_a_parked_account_is_parked_for_the_siblings_too_so_the_primary_is_waited_for() -> None:
    parked = BudgetParked("a:1", "used up", until=WALL + 7200, queued=0)
    assert Call(A, SIBLING).route.park_wait_s(0.0) is None

    call = Call(A, SIBLING, B)
    assert call.route.park_wait_s(0.0) == WAIT_WORTH_S
    assert call.meets(parked, 0.0) == Next(B)
    assert call.meets(fault(FaultKind.AUTH)) == Next(A)


# --- rest and return -------------------------------------------------------------------------------------------------


def resting_benches(kind: FaultKind, now: float = 0.0, **facts: object) -> Benches:
    benches = Benches()
    benches.rest(A.backend(f"a-{KEY}"), fault(kind, **facts), now=now, wall=WALL + now)
    return benches


def test_the_next_call_begins_where_the_last_one_went() -> None:
    first = Call(A, B)
    first.meets(fault(FaultKind.MODEL_UNKNOWN))
    first.route.answered()

    assert is_at(Call(A, B, benches=first.benches), B)


def test_the_primary_is_tried_again_after_its_rest() -> None:
    benches = resting_benches(FaultKind.MODEL_BUSY, now=-60.0)

    assert is_at(Call(A, B, benches=benches), A)


def test_a_key_that_rests_is_passed_over_for_another_of_the_same_target() -> None:
    call = Call(A, B, benches=resting_benches(FaultKind.QUOTA), keys=(KEY, SECOND))

    assert (call.at, call.key, call.told) == (("a", "large"), SECOND, [])


@pytest.mark.parametrize("kind", [FaultKind.QUOTA, FaultKind.AUTH, FaultKind.MODEL_BUSY, FaultKind.UNREACHABLE])
def test_the_only_target_is_tried_though_it_rests(kind: FaultKind) -> None:
    call = Call(A, benches=resting_benches(kind, retry_after_s=7200.0))

    assert is_at(call, A)
    assert not isinstance(call.step, End)


def test_when_all_rest_the_first_to_be_back_is_tried_for_real() -> None:
    benches = resting_benches(FaultKind.QUOTA, retry_after_s=7200.0)
    benches.rest(B.backend(f"b-{KEY}"), fault(FaultKind.MODEL_BUSY), now=0.0, wall=WALL)
    call = Call(A, B, benches=benches)

    assert is_at(call, B)
    call.meets(fault(FaultKind.AUTH))
    assert is_at(call, A)
    assert isinstance(call.meets(fault(FaultKind.AUTH)), End)


def test_a_call_whose_fallback_fails_comes_back_with_what_was_left_of_its_patience() -> None:
    call = Call(A, B)
    for _ in range(FAILOVER_RETRIES + 1):
        call.meets(fault(FaultKind.SERVER_ERROR))
    assert is_at(call, B)

    back = call.meets(fault(FaultKind.AUTH))

    assert isinstance(back, Next)
    assert back.target == A
    assert 0 < back.pause_s <= 4
    assert call.route.strain.attempts == FAILOVER_RETRIES + 1
    assert isinstance(call.meets(fault(FaultKind.SERVER_ERROR)), Again)


def test_it_comes_back_no_sooner_than_it_was_asked_to() -> None:
    call = Call(A, B)
    call.meets(fault(FaultKind.RATE, retry_after_s=120.0))

    back = call.meets(fault(FaultKind.AUTH), 5.0)

    assert isinstance(back, Next)
    assert back.target == A
    assert back.pause_s >= 115


def test_a_backend_left_alone_for_its_silence_is_gone_round() -> None:
    not_sent = fault(FaultKind.NOT_SENT, retry_after_s=50.0)
    call = Call(A, B)

    assert call.meets(not_sent, 0.0) == Next(B)
    assert call.route.attempts == 0
    assert call.benches.resting(A.backend(f"a-{KEY}"), 0.0) is None
    waits = Call(A).meets(not_sent, 0.0)
    assert isinstance(waits, Again)
    assert waits.pause_s >= 50


def test_an_alias_is_not_tried_with_a_key_that_was_refused_already() -> None:
    alias = Target(provider("alias", base_url=A.provider.base_url), "other")
    route = Route((A, alias), benches=Benches())
    assert route.chose(KEY, AT) is None
    assert isinstance(route.failed(fault(FaultKind.AUTH), 1.0, AT), Rotate)
    assert route.refused(NoKey("a", "no other"), AT) == Next(alias)

    assert route.chose(KEY, AT) == End(fault(FaultKind.AUTH))


def test_a_key_that_was_rotated_away_is_not_tried_under_another_name() -> None:
    alias = Target(provider("alias", base_url=A.provider.base_url), "other")
    route = Route((A, alias), benches=Benches())
    assert route.chose(KEY, AT) is None
    assert isinstance(route.failed(fault(FaultKind.AUTH), 1.0, AT), Rotate)
    assert route.chose(SECOND, AT) is None
    unknown = fault(FaultKind.MODEL_UNKNOWN)
    assert route.failed(unknown, 1.0, AT) == Next(alias)

    assert route.chose(KEY, AT) == End(unknown)


def test_nobody_waits_to_come_back_to_a_target_whose_key_was_refused_meanwhile() -> None:
    refused = fault(FaultKind.AUTH)
    call = Call(A, SIBLING)
    assert call.meets(fault(FaultKind.MODEL_BUSY, retry_after_s=120.0)) == Next(SIBLING)

    assert isinstance(call.route.failed(refused, 1.0, at(2.0)), Rotate)
    assert call.route.refused(NoKey("a", "no other"), at(2.0)) == End(refused)


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_an_attempt_gets_what_the_whole_call_has_left() -> None:
    call = Call(A, B)
    assert call.route.left_s == 1800
    call.meets(fault(FaultKind.TIMEOUT), 300.0)

    assert is_at(call, B)
    assert call.route.left_s == 1500
    call.route.mended(100.0)
    assert call.route.left_s == 1400


def test_no_target_is_begun_without_time_left() -> None:
    call = Call(A, B)

    assert isinstance(call.meets(fault(FaultKind.AUTH), 1800.0), End)


def test_a_next_target_has_retries_of_its_own() -> None:
    call = Call(A, B)
    call.meets(fault(FaultKind.TIMEOUT), 600.0)
    assert is_at(call, B)

    assert isinstance(call.meets(fault(FaultKind.SERVER_ERROR)), Again)


def test_patience_of_the_configuration_is_kept() -> None:
    route = Route((A,), benches=Benches(), patience=Patience(retry_s=5.0))
    assert route.chose(KEY, AT) is None

    assert isinstance(route.failed(fault(FaultKind.SERVER_ERROR), 6.0, AT), End)
