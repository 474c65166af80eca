"""The fleet's no: typed, with what is known about it, and found inside whatever an SDK makes of it."""

from __future__ import annotations

import anthropic
import httpx2
import openai
import pytest

import covey.errors
from covey.protocol import errors
from covey.protocol.ids import BudgetKey, CallId
from covey.protocol.messages.broker import Refusal, Refused
from covey.supervisor.refusals import answer_of, as_sdk_error, local_refusal, refusal

REQUEST = httpx2.Request("POST", "http://x/v1/messages")


def refused(reason: Refusal) -> Refused:
    return Refused(
        call=CallId("call_1"),
        reason=reason,
        budget=BudgetKey("sim:1"),
        limit=2,
        queued=3,
        waited_s=1.5,
        until_ms=1_700_000_000_500,
        detail="the 5 hour window is used up",
    )


@pytest.mark.parametrize(
    ("reason", "kind", "word"),
    [
        pytest.param(Refusal.TIMEOUT, errors.SlotTimeout, "timeout", id="timeout"),
        pytest.param(Refusal.WITHDRAWN, errors.SlotTimeout, "timeout", id="withdrawn"),
        pytest.param(Refusal.QUEUE_FULL, errors.QueueFull, "queue_full", id="queue full"),
        pytest.param(Refusal.REVOKED, errors.SlotRevoked, "revoked", id="revoked"),
        pytest.param(Refusal.PARKED, errors.BudgetParked, "parked", id="parked"),
        pytest.param(Refusal.LOCKED, errors.BudgetLocked, "locked", id="locked"),
        pytest.param(Refusal.CAP_REACHED, errors.CapReached, "cap_reached", id="cap reached"),
        pytest.param(Refusal.REQUEST_REFUSED, errors.RequestRefused, "request_refused", id="request refused"),
    ],
)
def test_every_refusal_has_an_error_and_a_word_of_its_own(
    reason: Refusal, kind: type[errors.CoveyError], word: str
) -> None:
    error = refusal(refused(reason))

    assert type(error) is kind
    assert isinstance(error, errors.LimitError)
    status, headers, body = answer_of(error)
    assert (status, headers["x-covey-refused"], headers["x-should-retry"]) == (429, word, "false")
    assert b"sim:1" in body


def test_there_is_no_refusal_without_an_error() -> None:
    assert {type(refusal(refused(reason))) for reason in Refusal} == {
        errors.SlotTimeout,
        errors.QueueFull,
        errors.SlotRevoked,
        errors.BudgetParked,
        errors.BudgetLocked,
        errors.CapReached,
        errors.RequestRefused,
    }


def test_a_parked_budget_tells_until_when_why_and_how_many_wait() -> None:
    error = refusal(refused(Refusal.PARKED))

    assert isinstance(error, errors.BudgetParked)
    assert (error.budget, error.until, error.reason, error.queued) == (
        "sim:1",
        1_700_000_000.5,
        "the 5 hour window is used up",
        3,
    )
    assert answer_of(error)[1]["retry-after"] == "0"  # that time has passed


def test_a_refusal_inside_an_sdk_is_an_error_of_the_sdk_as_well() -> None:
    error = as_sdk_error(errors.BudgetParked("sim:1", "used up", until=5.0, queued=3))

    assert isinstance(error, errors.BudgetParked)
    assert isinstance(error, anthropic.AnthropicError)
    assert isinstance(error, openai.OpenAIError)
    assert (type(error).__name__, error.until, error.queued) == ("BudgetParked", 5.0, 3)
    assert str(error) == str(errors.BudgetParked("sim:1", "used up", until=5.0, queued=3))


def test_the_refusal_is_found_behind_what_an_sdk_raised() -> None:
    error = errors.QueueFull("sim:1", 3)
    wrapped = openai.APIConnectionError(request=REQUEST)
    wrapped.__cause__ = error

    assert local_refusal(error) is error
    assert local_refusal(wrapped) is error


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(
            openai.RateLimitError("no", response=httpx2.Response(429, request=REQUEST), body=None), id="provider's 429"
        ),
        pytest.param(openai.APITimeoutError(request=REQUEST), id="silence"),
        pytest.param(ValueError("x"), id="anything"),
    ],
)
def test_the_provider_s_own_no_is_none_of_the_fleet_s(error: BaseException) -> None:
    assert local_refusal(error) is None


def test_every_error_there_is_can_be_imported_by_programs() -> None:
    ours = {
        name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.CoveyError)
    }

    assert set(covey.errors.__all__) == ours
    assert all(getattr(covey.errors, name) is getattr(errors, name) for name in ours)
