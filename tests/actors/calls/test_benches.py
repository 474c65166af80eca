"""What a process remembers of backends: who rests until when, who is silent, and how each wants its requests."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.actors.calls.benches import (
    BROKERED_REST_S,
    FIRST_REST_S,
    LONGEST_RESET_S,
    LONGEST_REST_S,
    Benches,
    reset_in_s,
    told_scope,
)
from covey.actors.calls.breaker import Entry
from covey.actors.calls.clocks import DEFAULT_CLOCKS
from covey.actors.calls.vigil import Vigil
from covey.protocol.backend import Backend
from covey.protocol.fault_kinds import Fault, FaultKind, FaultScope
from covey.protocol.faults import fault_named
from covey.protocol.mending import NO_MENDS, Mend, Mends

HERE = Backend("p", "m", "https://a.example/v1", "aaaaaaaaaaaa")
SIBLING = msgspec.structs.replace(HERE, model="n")
OTHER_KEY = msgspec.structs.replace(HERE, credential="bbbbbbbbbbbb")
WALL = 1_800_000_000.0


def fault(kind: FaultKind, **facts: object) -> Fault:
    return msgspec.structs.replace(fault_named(kind, "no"), **facts)


def rested(kind: FaultKind, *, now: float = 0.0, is_brokered: bool = False, **facts: object) -> Benches:
    benches = Benches()
    benches.rest(HERE, fault(kind, **facts), now=now, wall=WALL, is_brokered=is_brokered)
    return benches


def until(benches: Benches, backend: Backend = HERE, now: float = 0.0) -> float | None:
    rest = benches.resting(backend, now)
    return None if rest is None else rest.until


# --- rest ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "sibling_rests", "other_key_rests"),
    [
        pytest.param(FaultKind.QUOTA, True, False, id="an account rests with all its models"),
        pytest.param(FaultKind.AUTH, True, False, id="so does a key"),
        pytest.param(FaultKind.MODEL_BUSY, False, False, id="a model rests alone"),
        pytest.param(FaultKind.TIMEOUT, False, False, id="a silence is the model's: its sibling may speak"),
        pytest.param(FaultKind.SERVER_ERROR, False, False, id="so is an error of a server that answers"),
        pytest.param(FaultKind.UNREACHABLE, True, True, id="an endpoint that is gone is gone for all"),
    ],
)
def test_what_rests_beside_it(kind: FaultKind, sibling_rests: bool, other_key_rests: bool) -> None:
    benches = rested(kind)

    assert benches.resting(HERE, 0.0) is not None
    assert (benches.resting(SIBLING, 0.0) is not None) is sibling_rests
    assert (benches.resting(OTHER_KEY, 0.0) is not None) is other_key_rests


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(FaultKind.BAD_REQUEST, id="the request's own trouble"),
        pytest.param(FaultKind.UNKNOWN, id="trouble nobody knows"),
        pytest.param(FaultKind.OUT_OF_FILES, id="this machine's trouble"),
        pytest.param(FaultKind.NOT_SENT, id="what was not sent"),
        pytest.param(FaultKind.CONCURRENCY, id="too many calls at once"),
    ],
)
def test_nobody_rests_for(kind: FaultKind) -> None:
    assert rested(kind, retry_after_s=50.0).resting(HERE, 0.0) is None


def test_the_providers_own_time_is_kept() -> None:
    assert until(rested(FaultKind.QUOTA, resets_at=WALL + 7200)) == 7200
    assert until(rested(FaultKind.RATE, retry_after_s=90.0)) == 90
    assert until(rested(FaultKind.QUOTA, resets_at=WALL + 7200), now=7200.0) is None


def test_without_one_the_rest_doubles_up_to_an_hour() -> None:
    benches, now, spans = Benches(), 0.0, []
    for _ in range(8):
        benches.rest(HERE, fault(FaultKind.AUTH), now=now, wall=WALL)
        ends = until(benches, now=now)
        assert ends is not None
        spans.append(ends - now)
        now = ends

    assert spans == [FIRST_REST_S, 120, 240, 480, 960, 1920, LONGEST_REST_S, LONGEST_REST_S]


def test_twenty_calls_that_meet_one_trouble_rest_it_once() -> None:
    benches = Benches()
    for _ in range(20):
        benches.rest(HERE, fault(FaultKind.AUTH), now=0.0, wall=WALL)

    assert until(benches) == FIRST_REST_S


def test_newer_word_of_the_provider_replaces_what_was_known() -> None:
    benches = rested(FaultKind.QUOTA, resets_at=WALL + 36_000)
    benches.rest(HERE, fault(FaultKind.QUOTA, retry_after_s=900.0), now=10.0, wall=WALL + 10)

    assert until(benches, now=10.0) == 910


def test_an_answer_ends_every_rest_and_the_next_is_the_first_again() -> None:
    benches = rested(FaultKind.AUTH)
    benches.rest(HERE, fault(FaultKind.AUTH), now=60.0, wall=WALL)
    benches.rest(HERE, fault(FaultKind.MODEL_BUSY), now=60.0, wall=WALL)
    benches.answered(HERE)

    assert until(benches, now=60.0) is None
    benches.rest(HERE, fault(FaultKind.AUTH), now=70.0, wall=WALL)
    assert until(benches, now=70.0) == 70 + FIRST_REST_S


def test_a_change_of_the_configuration_ends_every_rest_and_counts_silences_anew() -> None:
    benches = rested(FaultKind.QUOTA, resets_at=WALL + 7200)
    for _ in range(5):
        attempt(benches, silence())
    assert benches.closed(HERE, 0.0) is not None

    benches.reconfigure(stale_calls=2)

    assert benches.resting(HERE, 0.0) is None
    assert benches.closed(HERE, 0.0) is None
    for _ in range(2):
        attempt(benches, silence())
    assert benches.closed(HERE, 0.0) is not None


def test_where_the_broker_keeps_the_account_it_is_asked_again_soon() -> None:
    assert until(rested(FaultKind.QUOTA, resets_at=WALL + 7200, is_brokered=True)) == BROKERED_REST_S
    assert until(rested(FaultKind.QUOTA, retry_after_s=100.0, is_brokered=True)) == 100


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param({}, None, id="says nothing"),
        pytest.param({"retry_after_s": 0.0}, None, id="at once is no time"),
        pytest.param({"resets_at": WALL - 5}, None, id="a stamp that has passed"),
        pytest.param({"resets_at": WALL + 100, "retry_after_s": 7.0}, 100, id="asked again before the window ends"),
        pytest.param(
            {"resets_at": WALL + 35_400, "retry_after_s": 997.0, "window_s": 18_000.0},
            997,
            id="a stamp in the wrong zone lies beyond its window",
        ),
        pytest.param({"retry_after_s": 1e9}, LONGEST_RESET_S, id="no window is longer than a month"),
    ],
)
def test_the_time_a_fault_names(facts: dict[str, float], expected: float | None) -> None:
    assert reset_in_s(fault(FaultKind.QUOTA, **facts), WALL) == expected


def test_benches_are_bounded() -> None:
    benches = Benches(kept=3)
    for number in range(10):
        one = msgspec.structs.replace(HERE, model=f"m{number}")
        benches.rest(one, fault(FaultKind.MODEL_BUSY), now=0.0, wall=WALL)
        benches.remember(one, Mends(done=frozenset({Mend.THINK})))

    resting = [n for n in range(10) if benches.resting(msgspec.structs.replace(HERE, model=f"m{n}"), 0.0)]
    assert resting == [7, 8, 9]
    mends = [n for n in range(10) if benches.mends_for(msgspec.structs.replace(HERE, model=f"m{n}")) != NO_MENDS]
    assert mends == [7, 8, 9]


@given(st.sampled_from(FaultKind), st.sampled_from(["provider", "model", "base_url", "credential"]))
def test_a_backend_that_is_not_known_never_rests(kind: FaultKind, axis: str) -> None:
    nobody = msgspec.structs.replace(HERE, **{axis: None})
    benches = rested(kind, retry_after_s=100.0)

    rest = benches.resting(nobody, 0.0)

    # Only where the scope needs no such axis.
    assert (
        rest is None
        or axis == "provider"
        or (axis, rest.scope)
        in (
            ("model", FaultScope.ACCOUNT),
            ("model", FaultScope.CREDENTIAL),
            ("model", FaultScope.ENDPOINT),
            ("credential", FaultScope.ENDPOINT),
        )
    )


# --- silence ---------------------------------------------------------------------------------------------------------


def silence() -> Fault:
    vigil = Vigil(DEFAULT_CLOCKS, 0.0)
    vigil.sent(0.0)
    expired = vigil.expired(DEFAULT_CLOCKS.headers_s)
    assert expired is not None
    return expired.fault


def attempt(benches: Benches, end: Fault | None, now: float = 0.0) -> Fault | None:
    entry = benches.enter(HERE, now)
    if isinstance(entry, Fault):
        return entry
    benches.left(entry, end, now)
    return None


def test_silence_by_our_own_clocks_opens_the_circuit_and_says_so() -> None:
    benches = Benches(stale_calls=5)
    for _ in range(5):
        assert attempt(benches, silence()) is None

    refused = attempt(benches, None)

    assert refused is not None
    assert (refused.kind, refused.scope) == (FaultKind.NOT_SENT, FaultScope.LOCAL)
    assert refused.retry_after_s == 60
    assert "m at p was silent too often" in refused.message
    assert benches.closed(HERE, 0.0) == refused
    assert benches.closed(HERE, 60.0) is None


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(fault(FaultKind.OVERLOADED, status=503), id="a refusal shows that somebody is there"),
        pytest.param(fault(FaultKind.TIMEOUT, status=504), id="so does a gateway that ran out of patience"),
    ],
)
def test_the_row_of_silences_is_broken_by(between: Fault) -> None:
    benches = Benches(stale_calls=2)
    for _ in range(6):
        assert attempt(benches, silence()) is None
        assert attempt(benches, between) is None


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(None, id="a cancel"),
        pytest.param(fault(FaultKind.UNREACHABLE), id="no connection"),
        pytest.param(fault(FaultKind.OUT_OF_FILES), id="no files"),
        pytest.param(fault(FaultKind.NOT_SENT), id="nothing sent"),
    ],
)
def test_nothing_is_said_about_silence_by(between: Fault | None) -> None:
    benches = Benches(stale_calls=2)
    for end in (silence(), between, silence()):
        assert attempt(benches, end) is None

    assert attempt(benches, None) is not None


def test_the_first_content_closes_the_circuit_while_the_answer_still_runs() -> None:
    benches = Benches(stale_calls=1)
    attempt(benches, silence())
    probe = benches.enter(HERE, 60.0)
    assert isinstance(probe, Entry)
    assert isinstance(benches.enter(HERE, 60.0), Fault)

    benches.heard(HERE)

    assert isinstance(benches.enter(HERE, 60.0), Entry)


def test_a_whole_answer_closes_it_too() -> None:
    benches = Benches(stale_calls=1)
    attempt(benches, silence())
    benches.answered(HERE)

    assert benches.closed(HERE, 0.0) is None


# --- mends -----------------------------------------------------------------------------------------------------------


def test_what_is_true_of_a_backend_is_remembered_for_it() -> None:
    benches = Benches()
    benches.remember(HERE, Mends(done=frozenset({Mend.THINK, Mend.SHORTER_ANSWER}), max_tokens=900))
    benches.remember(HERE, Mends(done=frozenset({Mend.MERGE_TURNS})))

    assert benches.mends_for(HERE) == Mends(done=frozenset({Mend.THINK, Mend.MERGE_TURNS}))
    assert benches.mends_for(OTHER_KEY) == benches.mends_for(HERE)
    assert benches.mends_for(SIBLING) == NO_MENDS


def test_what_was_true_of_one_request_is_not() -> None:
    benches = Benches()
    benches.remember(HERE, Mends(done=frozenset({Mend.DROP_SIGNED, Mend.SHORTER_ANSWER}), max_tokens=5))

    assert benches.mends_for(HERE) == NO_MENDS


def test_only_an_endpoint_that_gave_no_answer_is_known_to_be_broken() -> None:
    broken = {kind for kind in FaultKind if told_scope(fault_named(kind, "x")) is FaultScope.ENDPOINT}

    assert broken == {FaultKind.UNREACHABLE, FaultKind.TLS, FaultKind.NOT_FOUND, FaultKind.BLOCKED}
