"""What a program reports about a call, read as the provider's doing or as nothing."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest

from covey.protocol.errors import SlotTimeout, UsageError
from covey.protocol.faults import Fault, FaultKind, fault_named, without_key
from covey.protocol.usage import Usage
from covey.supervisor.outcomes import Report, ending_of, fault_of_error

REQUEST = httpx.Request("POST", "http://x/v1/chat/completions")
REQUEST2 = httpx2.Request("POST", "http://x/v1/chat/completions")
TOO_MANY = json.dumps({"error": {"code": "1302", "message": "High concurrency usage of this API"}}).encode()
WALL = json.dumps({"error": {"code": "1308", "message": "Usage limit reached for 5 hour"}}).encode()
CHAT = {"usage": {"prompt_tokens": 7, "completion_tokens": 2}, "model": "m-1", "id": "c1", "choices": [{}]}
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


def raised_from(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


def unread(status: int) -> httpx.Response:
    """A streamed response whose body nobody has read."""
    return httpx.Response(status, stream=httpx.ByteStream(b""), request=REQUEST)


@pytest.mark.parametrize(
    ("report", "kind"),
    [
        pytest.param(httpx.Response(429, content=TOO_MANY), FaultKind.CONCURRENCY, id="response of httpx"),
        pytest.param(httpx2.Response(429, content=WALL), FaultKind.QUOTA, id="response of httpx2"),
        pytest.param((429, TOO_MANY), FaultKind.CONCURRENCY, id="status and bytes"),
        pytest.param((529, "Overloaded"), FaultKind.OVERLOADED, id="status and text"),
        pytest.param((200, json.dumps(OVERLOADED)), FaultKind.OVERLOADED, id="an error inside a success"),
        pytest.param(unread(429), FaultKind.RATE, id="response that was not read"),
        pytest.param(fault_named(FaultKind.TLS, "no"), FaultKind.TLS, id="a fault"),
        pytest.param(
            httpx.HTTPStatusError("no", request=REQUEST, response=httpx.Response(429, content=TOO_MANY)),
            FaultKind.CONCURRENCY,
            id="status error of httpx",
        ),
        pytest.param(
            openai.RateLimitError("no", response=httpx2.Response(429, content=WALL, request=REQUEST2), body=None),
            FaultKind.QUOTA,
            id="status error of openai",
        ),
        pytest.param(
            anthropic.APIStatusError(
                "no", response=httpx2.Response(529, json=OVERLOADED, request=REQUEST2), body=OVERLOADED
            ),
            FaultKind.OVERLOADED,
            id="status error of anthropic",
        ),
        pytest.param(
            anthropic.APIStatusError("no", response=httpx2.Response(200, request=REQUEST2), body=OVERLOADED),
            FaultKind.OVERLOADED,
            id="error event in a stream of anthropic",
        ),
        pytest.param(
            openai.APIError("no", request=REQUEST2, body={"code": "1302", "message": "High concurrency usage"}),
            FaultKind.CONCURRENCY,
            id="error event in a stream of openai",
        ),
        pytest.param(httpx.ConnectError("refused"), FaultKind.UNREACHABLE, id="no connection"),
        pytest.param(httpx2.ReadTimeout("slow"), FaultKind.TIMEOUT, id="silence"),
        pytest.param(
            raised_from(openai.APITimeoutError(request=REQUEST2), httpx2.ReadTimeout("slow")),
            FaultKind.TIMEOUT,
            id="silence, wrapped by an SDK",
        ),
    ],
)
def test_what_the_provider_did_is_named(report: Report, kind: FaultKind) -> None:
    fault = ending_of(report).fault

    assert fault is not None
    assert fault.kind is kind


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(SlotTimeout("sim:1", 1.0, 3), id="no slot in time"),
        pytest.param(
            raised_from(openai.APIConnectionError(request=REQUEST2), SlotTimeout("sim:1", 1.0, 3)),
            id="no slot in time, wrapped by an SDK",
        ),
        pytest.param(httpx.PoolTimeout("full"), id="full connection pool"),
        pytest.param(httpx.LocalProtocolError("ours"), id="our own fault"),
        pytest.param(TimeoutError(), id="the program's own deadline"),
        pytest.param(ValueError("x"), id="a mistake of the program"),
        pytest.param(KeyboardInterrupt(), id="Ctrl-C"),
    ],
)
def test_what_the_provider_had_no_part_in_is_no_fault(error: BaseException) -> None:
    assert fault_of_error(error) is None
    assert not ending_of(error).is_known


@pytest.mark.parametrize(
    "report",
    [
        pytest.param(httpx.Response(200, json=CHAT), id="response"),
        pytest.param((200, json.dumps(CHAT)), id="status and body"),
        pytest.param(CHAT["usage"], id="usage as it came"),
        pytest.param(Usage(input=7, output=2), id="usage in our buckets"),
    ],
)
def test_an_answer_is_known_with_its_tokens(report: Any) -> None:
    ending = ending_of(report)

    assert (ending.is_known, ending.fault, ending.usage) == (True, None, Usage(input=7, output=2))


def test_an_answer_whose_body_was_not_read_is_an_answer_with_unknown_tokens() -> None:
    ending = ending_of(unread(200))

    assert (ending.is_known, ending.fault, ending.usage) == (True, None, None)


def test_a_mapping_that_reports_no_tokens_is_refused() -> None:
    with pytest.raises(UsageError, match="input_tokens"):
        ending_of({"tokens": 3})


def test_retry_after_is_read_from_the_headers() -> None:
    fault = ending_of(httpx.Response(429, headers={"Retry-After": "7"})).fault

    assert fault is not None
    assert fault.retry_after_s == 7.0


def test_a_key_that_the_provider_quotes_is_taken_out() -> None:
    fault: Fault = fault_named(FaultKind.AUTH, "Incorrect API key provided: sk-secret")

    assert without_key(fault, "sk-secret").message == "Incorrect API key provided: [key]"
    assert without_key(fault, None) is fault
