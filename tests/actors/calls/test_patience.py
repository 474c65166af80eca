"""How long a failed call is tried again, and what ends that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.actors.calls.patience import DOUBTFUL, Patience, Strain, is_stale, patience_for, pause_s
from covey.protocol.fault_kinds import FaultAction, FaultKind
from covey.protocol.faults import fault_named
from covey.protocol.settings import CallSettings

BUSY = fault_named(FaultKind.CONCURRENCY, "busy")
GONE = fault_named(FaultKind.UNREACHABLE, "connection refused")
SILENT = fault_named(FaultKind.TIMEOUT, "said nothing")
CUT = fault_named(FaultKind.TRUNCATED, "cut")


def test_pauses_double_up_to_a_bound_with_full_jitter() -> None:
    bounds = [pause_s(BUSY, Strain(attempts=n), Patience(), chance=1.0) for n in range(1, 9)]

    assert bounds == [1, 2, 4, 8, 16, 30, 30, 30]
    assert pause_s(BUSY, Strain(attempts=5), Patience(), chance=0.0) == 0


def test_the_time_a_provider_asks_for_is_waited_in_full() -> None:
    asked = fault_named(FaultKind.RATE, "slow down", retry_after_s=20.0)

    assert pause_s(asked, Strain(attempts=1), Patience(), chance=0.5) == 20.5


@pytest.mark.parametrize("retry_after_s", [601.0, 86_400.0])
def test_a_time_beyond_our_patience_ends_the_call_at_once(retry_after_s: float) -> None:
    asked = fault_named(FaultKind.RATE, "slow down", retry_after_s=retry_after_s)

    assert pause_s(asked, Strain(attempts=1), Patience(), chance=0.0) is None


def test_patience_ends_with_its_time() -> None:
    assert pause_s(BUSY, Strain(attempts=9, spent_s=590), Patience(), chance=0.3) is not None
    assert pause_s(BUSY, Strain(attempts=9, spent_s=590), Patience(), chance=0.5) is None


def test_and_with_the_time_of_the_whole_call() -> None:
    assert pause_s(BUSY, Strain(attempts=1, before_s=1799), Patience(), chance=0.5) is not None
    assert pause_s(BUSY, Strain(attempts=1, before_s=1799), Patience(), chance=1.0) is None


def test_a_provider_that_never_answered_is_given_up_sooner_than_one_that_did() -> None:
    never = Strain(spent_s=59.0).after(GONE, 2.0)
    once = Strain(spent_s=57.0).after(BUSY, 2.0).after(GONE, 2.0)

    assert pause_s(GONE, never, Patience(), chance=0.0) is None
    assert pause_s(GONE, once, Patience(), chance=0.0) == 0.0


@pytest.mark.parametrize("kind", [FaultKind.NOT_SENT, FaultKind.OUT_OF_FILES])
def test_what_never_left_this_machine_does_not_show_that_anybody_is_there(kind: FaultKind) -> None:
    assert not Strain().after(fault_named(kind, "no"), 0.0).has_answered


def test_attempts_that_may_have_been_billed_are_few_whatever_comes_between() -> None:
    strain = Strain()
    for end in (CUT, BUSY, CUT):
        strain = strain.after(end, 1.0)
        assert pause_s(end, strain, Patience(), chance=0.0) is not None
    strain = strain.after(CUT, 1.0)

    assert pause_s(CUT, strain, Patience(), chance=0.0) is None
    elsewhere = strain.elsewhere(Strain()).after(CUT, 1.0)
    assert pause_s(CUT, elsewhere, Patience(), chance=0.0) is None


def test_a_silence_that_took_all_the_time_for_retries_is_tried_once_more() -> None:
    once = Strain().after(SILENT, 600.0)

    assert pause_s(SILENT, once, Patience(), chance=1.0) == 1.0
    assert pause_s(SILENT, once.after(SILENT, 600.0), Patience(), chance=1.0) is None
    assert pause_s(SILENT, Strain().after(SILENT, 1800.0), Patience(), chance=0.0) is None


def test_only_our_own_clocks_know_of_silence() -> None:
    assert is_stale(SILENT)
    assert not is_stale(fault_named(FaultKind.TIMEOUT, "gateway", status=504))
    assert not is_stale(fault_named(FaultKind.TIMEOUT, "in the stream", code="timeout_error"))


def test_where_the_broker_times_the_account_nobody_else_does() -> None:
    asked = fault_named(FaultKind.RATE, "slow down", retry_after_s=5000.0)

    assert pause_s(asked, Strain(attempts=1), Patience(), chance=1.0, is_brokered=True) == 0.0
    assert pause_s(asked, Strain(spent_s=601.0), Patience(), chance=1.0, is_brokered=True) is None


def test_another_target_begins_afresh_and_the_calls_time_goes_on() -> None:
    here = Strain(attempts=4, doubtful=1, spent_s=100.0, before_s=50.0, has_answered=True)
    there = here.elsewhere(Strain())

    assert there == Strain(doubtful=1, before_s=150.0)
    back = there.after(BUSY, 10.0).elsewhere(here)
    assert (back.attempts, back.spent_s, back.total_s) == (4, 100.0, 160.0)


def test_the_configuration_says_how_long() -> None:
    patience = patience_for(CallSettings(total_seconds=90.0, retry_seconds=30.0))

    assert (patience.total_s, patience.retry_s) == (90.0, 30.0)
    assert patience_for(CallSettings()) == Patience()


@given(
    st.sampled_from(FaultKind),
    st.sampled_from([None, 0.0, 7.0, 700.0]),
    st.builds(
        Strain,
        attempts=st.integers(1, 40),
        doubtful=st.integers(0, 4),
        spent_s=st.floats(0, 700),
        before_s=st.floats(0, 1900),
        has_answered=st.booleans(),
    ),
    st.floats(0, 1),
)
def test_a_pause_is_never_shorter_than_asked_nor_longer_than_there_is_time(
    kind: FaultKind, retry_after_s: float | None, strain: Strain, chance: float
) -> None:
    patience = Patience()
    fault = fault_named(kind, "no", retry_after_s=retry_after_s)
    pause = pause_s(fault, strain, patience, chance=chance)

    if pause is None:
        return
    assert fault.action in (FaultAction.RETRY, FaultAction.WAIT)
    assert pause >= (retry_after_s or 0.0)
    assert strain.total_s + pause < patience.total_s
    assert strain.doubtful < patience.doubtful_attempts or kind not in DOUBTFUL
