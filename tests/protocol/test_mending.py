"""What is mended in a refused request: the right thing, once, and never without end."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.protocol.fault_kinds import OUTCOME
from covey.protocol.faults import Fault, FaultAction, FaultKind, classify, fault_named
from covey.protocol.mending import LASTING, LEAST_ANSWER, NO_MENDS, Mend, Mends, mended

K = FaultKind


def fault(kind: FaultKind, limit_tokens: int | None = None) -> Fault:
    return fault_named(kind, "as told", limit_tokens=limit_tokens)


@pytest.mark.parametrize(
    ("kind", "mend"),
    [
        (K.REASONING_MANDATORY, Mend.THINK),
        (K.REASONING_REFUSED, Mend.SAY_NO_EFFORT),
        (K.SIGNATURE_REFUSED, Mend.DROP_SIGNED),
        (K.SCHEMA_REFUSED, Mend.PLAIN_SCHEMAS),
        (K.NAME_REFUSED, Mend.ALIAS_TOOLS),
        (K.ROLES_REFUSED, Mend.MERGE_TURNS),
        (K.MALFORMED_HISTORY, Mend.MERGE_TURNS),
        (K.CACHE_REFUSED, Mend.NO_CACHE_MARKS),
    ],
)
def test_a_refusal_is_answered_by_one_change(kind: FaultKind, mend: Mend) -> None:
    assert mended(fault(kind), NO_MENDS, max_tokens=None) == Mends(done=frozenset({mend}))


@pytest.mark.parametrize("kind", [kind for kind in K if kind not in (K.REASONING_MANDATORY,)])
def test_the_same_refusal_again_is_final(kind: FaultKind) -> None:
    once = mended(fault(kind, 8192), NO_MENDS, max_tokens=None)

    assert once is None or mended(fault(kind, 4096), once, max_tokens=once.max_tokens) is None


def test_mandatory_thinking_that_is_refused_again_is_not_spoken_of_and_then_final() -> None:
    first = mended(fault(K.REASONING_MANDATORY), NO_MENDS, max_tokens=None)
    assert first is not None
    second = mended(fault(K.REASONING_MANDATORY), first, max_tokens=None)

    assert second == Mends(done=frozenset({Mend.THINK, Mend.SAY_NO_EFFORT}))
    assert mended(fault(K.REASONING_MANDATORY), second, max_tokens=None) is None


@pytest.mark.parametrize("kind", [kind for kind in K if OUTCOME[kind][1] is not FaultAction.FIX])
def test_what_is_not_to_be_mended_is_not(kind: FaultKind) -> None:
    assert mended(fault(kind, 8192), NO_MENDS, max_tokens=100_000) is None


def test_every_kind_that_is_to_be_mended_can_be() -> None:
    to_mend = [kind for kind in K if OUTCOME[kind][1] is FaultAction.FIX]

    assert [kind for kind in to_mend if mended(fault(kind, 8192), NO_MENDS, max_tokens=None) is None] == []


@pytest.mark.parametrize(
    ("limit", "sent", "bound"),
    [
        pytest.param(7117, None, 7053, id="none sent counts as more"),
        pytest.param(7117, 65_536, 7053, id="more was sent"),
        pytest.param(7117, 7053, None, id="as much was sent"),
        pytest.param(7117, 4096, None, id="less was sent"),
        pytest.param(600, None, 536, id="a little more than the least"),
        pytest.param(576, None, 512, id="the least with its margin"),
        pytest.param(575, None, 512, id="the least without it"),
        pytest.param(512, None, 512, id="the least itself"),
        pytest.param(511, None, None, id="less than the least"),
        pytest.param(0, None, None, id="nothing"),
        pytest.param(None, 65_536, None, id="a budget that is not named"),
    ],
)
def test_an_answer_is_cut_to_what_there_is_money_for(limit: int | None, sent: int | None, bound: int | None) -> None:
    mends = mended(fault(K.UNAFFORDABLE, limit), NO_MENDS, max_tokens=sent)

    assert (mends and mends.max_tokens) == bound


@pytest.mark.parametrize(
    ("limit", "sent", "bound"),
    [
        pytest.param(16_384, 100_000, 16_384, id="more was sent"),
        pytest.param(16_384, None, 16_384, id="none was sent"),
        pytest.param(16_384, 16_384, None, id="as much was sent"),
        pytest.param(None, 100_000, None, id="no bound is named"),
    ],
)
def test_an_answer_is_cut_to_what_the_model_gives(limit: int | None, sent: int | None, bound: int | None) -> None:
    mends = mended(fault(K.OUTPUT_TOO_LONG, limit), NO_MENDS, max_tokens=sent)

    assert (mends and mends.max_tokens) == bound


def test_a_second_402_is_final() -> None:
    text = "You requested up to 65536 tokens, but can only afford {}."
    first, second = (
        classify(status=402, body=json.dumps({"error": {"message": text.format(n)}}).encode()) for n in (7117, 6000)
    )

    once = mended(first, NO_MENDS, max_tokens=None)

    assert once == Mends(done=frozenset({Mend.SHORTER_ANSWER}), max_tokens=7053)
    assert mended(second, once, max_tokens=once.max_tokens) is None


def test_a_later_mend_keeps_the_bound_of_an_earlier_one() -> None:
    once = mended(fault(K.OUTPUT_TOO_LONG, 16_384), NO_MENDS, max_tokens=None)
    assert once is not None

    twice = mended(fault(K.CACHE_REFUSED), once, max_tokens=once.max_tokens)

    assert twice == Mends(done=frozenset({Mend.SHORTER_ANSWER, Mend.NO_CACHE_MARKS}), max_tokens=16_384)


def test_what_is_true_of_one_request_only_does_not_last() -> None:
    assert frozenset(Mend) - LASTING == {Mend.SHORTER_ANSWER, Mend.DROP_SIGNED}


FAULTS = st.builds(fault, st.sampled_from(K), st.none() | st.integers(0, 200_000))


@given(st.lists(FAULTS, max_size=60), st.none() | st.integers(1, 200_000))
def test_whatever_is_refused_no_mend_is_made_twice_and_the_answer_never_grows(
    faults: list[Fault], sent: int | None
) -> None:
    mends, made = NO_MENDS, 0
    for one in faults:
        bound = sent if mends.max_tokens is None else mends.max_tokens
        after = mended(one, mends, max_tokens=bound)
        if after is None:
            continue
        made += 1
        assert len(after.done) == len(mends.done) + 1
        assert after.done > mends.done
        if after.max_tokens != mends.max_tokens:
            assert after.max_tokens is not None
            assert bound is None or after.max_tokens < bound
            assert one.kind is not K.UNAFFORDABLE or after.max_tokens >= LEAST_ANSWER
        mends = after

    assert made <= len(Mend)
