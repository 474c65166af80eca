"""The clocks of an attempt: never early, always by the bound, and keep-alives are no content."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.actors.calls.clocks import DEFAULT_CLOCKS, Clocks, clocks_for
from covey.actors.calls.vigil import NEXT, Clock, Phase, Vigil
from covey.protocol.fault_kinds import FaultKind
from covey.protocol.settings import CallSettings, Effort, TimeoutSettings

CLOCKS = Clocks(connect_s=5, headers_s=30, first_byte_s=20, first_content_s=40, content_s=25, silence_s=15, total_s=100)


def vigil_after(*events: tuple[str, float], clocks: Clocks = CLOCKS) -> Vigil:
    """A vigil that began at 0 and met these."""
    vigil = Vigil(clocks, 0.0)
    for name, at in events:
        getattr(vigil, name)(at)
    return vigil


@pytest.mark.parametrize(
    ("events", "clock", "at", "words"),
    [
        pytest.param([], Clock.CONNECT, 5, "no connection within 5 s", id="nobody to connect to"),
        pytest.param([("sent", 2)], Clock.HEAD, 32, "no answer within 30 s of the request", id="no head"),
        pytest.param(
            [("sent", 1), ("head", 10)], Clock.FIRST_BYTE, 30, "said nothing for 20 s after its head", id="no body"
        ),
        pytest.param(
            [("sent", 1), ("head", 2), ("bytes", 9)], Clock.SILENCE, 24, "stood still for 15 s", id="then nothing"
        ),
        pytest.param(
            [("sent", 1), ("head", 2), ("bytes", 20), ("bytes", 30)],
            Clock.FIRST_CONTENT,
            42,
            "only keep-alives for 40 s after its head",
            id="keep-alives for ever before the answer",
        ),
        pytest.param(
            [("sent", 1), ("head", 2), ("content", 10), ("bytes", 20), ("bytes", 30)],
            Clock.CONTENT,
            35,
            "only keep-alives for 25 s in the middle of the answer",
            id="keep-alives for ever in the answer",
        ),
        pytest.param(
            [("sent", 1), ("head", 2), ("content", 10)], Clock.SILENCE, 25, "stood still for 15 s", id="it stops"
        ),
        pytest.param(
            [("sent", 1), ("head", 2), *[("content", at) for at in range(3, 100, 10)]],
            Clock.TOTAL,
            100,
            "was not over in time, 100 s after it began",
            id="reasoning that never ends",
        ),
        pytest.param([("head", 3)], Clock.FIRST_BYTE, 23, "said nothing", id="a transport that does not say sent"),
    ],
)
def test_the_clock_that_runs_out_is_named(events: list[tuple[str, float]], clock: Clock, at: float, words: str) -> None:
    vigil = vigil_after(*events)

    assert vigil.deadline == at
    assert vigil.expired(at - 0.01) is None
    expired = vigil.expired(at)
    assert expired is not None
    assert expired.clock is clock
    assert words in str(expired)


def test_content_that_stands_still_without_keep_alives_says_so() -> None:
    clocks = Clocks(content_s=10, silence_s=50)
    expired = vigil_after(("sent", 1), ("head", 2), ("content", 3), clocks=clocks).expired(13)

    assert str(expired) == "stood still for 10 s in the middle of the answer"


@pytest.mark.parametrize(("event", "kind"), [(None, FaultKind.UNREACHABLE), ("sent", FaultKind.TIMEOUT)])
def test_a_clock_is_a_fault_without_a_status(event: str | None, kind: FaultKind) -> None:
    expired = vigil_after(*([(event, 0.0)] if event else [])).expired(1000)

    assert expired is not None
    assert expired.fault.kind is kind
    assert (expired.fault.status, expired.fault.code) == (None, None)


EVENTS = ("sent", "head", "bytes", "content")
PATHS = {
    Phase.CONNECTING: (),
    Phase.AWAITING_HEAD: ("sent",),
    Phase.AWAITING_BYTE: ("sent", "head"),
    Phase.AWAITING_CONTENT: ("sent", "head", "bytes"),
    Phase.SPEAKING: ("sent", "head", "content"),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("phase", Phase)
def test_an_event_out_of_order_is_refused_and_changes_nothing(phase: Phase, event: str) -> None:
    vigil = vigil_after(*[(name, 1.0) for name in PATHS[phase]])
    assert vigil.phase is phase
    then = {(one, str(name)): after for (one, name), after in NEXT.items()}.get((phase, event))
    before = vigil.deadline

    if then is not None:
        getattr(vigil, event)(2.0)
        assert vigil.phase is then
        return
    with pytest.raises(AssertionError):
        getattr(vigil, event)(2.0)
    assert (vigil.phase, vigil.deadline) == (phase, before)


# --- for any course of an attempt ------------------------------------------------------------------------------------

SECONDS = st.floats(min_value=0.5, max_value=100)
ANY_CLOCKS = st.builds(
    Clocks,
    connect_s=SECONDS,
    headers_s=SECONDS,
    first_byte_s=SECONDS,
    first_content_s=SECONDS,
    content_s=SECONDS,
    silence_s=SECONDS,
    total_s=SECONDS,
)
COURSE = st.lists(st.tuples(st.floats(min_value=0, max_value=30), st.sampled_from(["bytes", "content"])), max_size=30)


@st.composite
def courses(draw: Any) -> tuple[Clocks, list[tuple[str, float]]]:
    at, events = 0.0, []
    for name in ("sent", "head"):
        at += draw(st.floats(min_value=0, max_value=30))
        events.append((name, at))
    for gap, name in draw(COURSE):
        at += gap
        events.append((name, at))
    return draw(ANY_CLOCKS), events[: draw(st.integers(min_value=0, max_value=len(events)))]


@given(courses(), st.floats(min_value=0, max_value=300))
def test_it_expires_at_its_deadline_and_not_before(
    course: tuple[Clocks, list[tuple[str, float]]], later: float
) -> None:
    clocks, events = course
    vigil = vigil_after(*events, clocks=clocks)
    deadline = vigil.deadline

    assert (vigil.expired(later) is not None) == (later >= deadline)
    assert vigil.expired(deadline) is not None


@given(courses())
def test_the_deadline_is_never_beyond_any_bound(course: tuple[Clocks, list[tuple[str, float]]]) -> None:
    clocks, events = course
    vigil = vigil_after(*events, clocks=clocks)
    last = dict(events)
    spoken = max((at for name, at in events if name == "content"), default=None)
    heard = max((at for name, at in events if name in ("bytes", "content")), default=None)

    assert vigil.deadline <= clocks.total_s
    if heard is not None:
        assert vigil.deadline <= heard + clocks.silence_s
    if spoken is not None:
        assert vigil.deadline <= spoken + clocks.content_s
    elif "head" in last:
        assert vigil.deadline <= last["head"] + clocks.first_content_s


@given(courses())
def test_a_deadline_comes_nearer_only_with_a_new_phase(course: tuple[Clocks, list[tuple[str, float]]]) -> None:
    clocks, events = course
    vigil = Vigil(clocks, 0.0)

    for name, at in events:
        phase, deadline = vigil.phase, vigil.deadline
        getattr(vigil, name)(at)
        assert vigil.deadline >= deadline or vigil.phase is not phase


@given(courses(), st.lists(st.floats(min_value=0, max_value=20), max_size=20))
def test_keep_alives_never_postpone_the_deadline_of_content(
    course: tuple[Clocks, list[tuple[str, float]]], gaps: list[float]
) -> None:
    clocks, events = course
    last = dict(events)
    if "head" not in last:
        return
    vigil = vigil_after(*events, clocks=clocks)
    spoken = last.get("content")
    bound = last["head"] + clocks.first_content_s if spoken is None else spoken + clocks.content_s
    at = events[-1][1]

    for gap in gaps:
        at += gap
        vigil.bytes(at)
        assert vigil.deadline <= bound


# --- what they are set to --------------------------------------------------------------------------------------------

SILENT = ("headers_s", "first_byte_s", "first_content_s", "content_s", "silence_s")


def clocks_of(model: str = "some-model", effort: Effort | None = None, **more: Any) -> Clocks:
    return clocks_for(more.pop("timeouts", TimeoutSettings()), more.pop("calls", CallSettings()), model, effort, **more)


def test_a_dead_stream_is_found_in_minutes_and_a_slow_one_is_not_cut() -> None:
    clocks = clocks_of()

    assert clocks == DEFAULT_CLOCKS
    assert all(180 < getattr(clocks, name) <= 360 for name in SILENT)


def test_no_clock_of_a_thinking_family_is_shorter_than_its_floor() -> None:
    assert all(getattr(clocks_of("deepseek/deepseek-r1:free"), name) >= 600 for name in SILENT)


def test_a_configured_family_comes_before_the_table() -> None:
    calls = CallSettings(family_floor_seconds={"mine": 500.0})

    assert clocks_of("mine-7b", calls=calls).silence_s == 500


@pytest.mark.parametrize("effort", [Effort.HIGH, Effort.MAX])
def test_hard_thinking_gets_five_minutes(effort: Effort) -> None:
    assert all(getattr(clocks_of(effort=effort), name) >= 300 for name in SILENT)
    assert clocks_of(effort=Effort.LOW) == DEFAULT_CLOCKS


def test_what_is_configured_holds_as_it_is() -> None:
    timeouts = TimeoutSettings(
        connect_seconds=1,
        headers_seconds=2,
        first_byte_seconds=3,
        first_content_seconds=4,
        content_seconds=5,
        silence_seconds=6,
    )

    clocks = clocks_of("o1", Effort.MAX, timeouts=timeouts, is_streamed=False, is_local=True)

    assert (clocks.connect_s, *(getattr(clocks, name) for name in SILENT)) == (1, 2, 3, 4, 5, 6)


def test_an_answer_in_one_piece_may_take_as_long_as_an_answer_takes() -> None:
    assert clocks_of(is_streamed=False).headers_s == 600
    assert clocks_of(is_streamed=False).silence_s == DEFAULT_CLOCKS.silence_s


def test_a_server_on_this_machine_may_read_a_long_prompt_in_silence() -> None:
    assert clocks_of(is_local=True).headers_s == 900


def test_an_attempt_takes_no_longer_than_its_call_has_left() -> None:
    clocks = clocks_of(calls=CallSettings(total_seconds=50))

    assert clocks.total_s == 50
    assert clocks.within(20).total_s == 20
    assert clocks.within(80).total_s == 50
    assert Vigil(clocks.within(-1), 7.0).expired(7.0) is not None


def test_a_slot_is_held_longer_than_any_call_takes() -> None:
    assert DEFAULT_CLOCKS.hold_s > DEFAULT_CLOCKS.total_s + DEFAULT_CLOCKS.refusal_s
