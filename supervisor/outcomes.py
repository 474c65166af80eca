"""How a call ended, from whatever a program has in hand: a response, an exception, a status with a body, a fault.

Only what a provider did counts. A wait for a slot that was too long, a full connection pool, an error of the program
itself say nothing about the provider, and are no faults.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import httpx
import msgspec

from ..actors.calls.connection_faults import connection_fault
from ..protocol.errors import CoveyError
from ..protocol.faults import Fault, FaultKind, classify, fault_named, retry_after_of
from ..protocol.usage import Usage
from .answer_reader import AnswerReader
from .reports import usage_from

REFUSAL_BYTES: Final = 65_536
"""Of the body of an error answer; what says why stands in front."""

HTTP_LIBRARIES: Final = ("httpx", "httpx2")


@runtime_checkable
class ResponseLike(Protocol):
    """A response of httpx, httpx2, requests and alike; its `content` may raise, so it is asked for apart."""

    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


Report = Fault | Usage | Mapping[str, Any] | ResponseLike | BaseException | tuple[int, bytes | str]


@dataclass(frozen=True, slots=True)
class Ending:
    """What a report says: nothing (all None and not answered), a fault, or that the provider answered."""

    is_known: bool
    fault: Fault | None = None
    usage: Usage | None = None
    model: str | None = None
    response_id: str | None = None


def ending_of(report: Report) -> Ending:
    """Read a report; raises `UsageError` for a mapping that is no usage report."""
    match report:
        case Fault():
            return Ending(is_known=True, fault=report)
        case BaseException():
            fault = fault_of_error(report)
            return Ending(is_known=fault is not None, fault=fault)
        case Usage() | Mapping():
            return Ending(is_known=True, usage=usage_from(report))
        case (status, body):
            return _answered(status, body if isinstance(body, bytes) else body.encode(), {})
        case _:
            return _answered(report.status_code, _content(report), report.headers)


def fault_of_error(error: BaseException) -> Fault | None:
    """What the provider did that raised `error`, or caused it; None where it had no part, or that is not known."""
    chain = list(_causes(error))
    if any(isinstance(cause, CoveyError) for cause in chain):
        return None
    for cause in chain:
        fault = _fault_told(cause) or _fault_of_connection(cause)
        if fault is not None:
            return fault
    return None


def fault_of_answer(status: int, body: bytes, headers: Mapping[str, str]) -> Fault:
    """Name an error answer."""
    return classify(status=status, body=body[:REFUSAL_BYTES], retry_after=retry_after_of(headers), now=time.time())


def _answered(status: int, body: bytes, headers: Mapping[str, str]) -> Ending:
    if status >= 400:
        return Ending(is_known=True, fault=fault_of_answer(status, body, headers))
    reader = AnswerReader(content_type=headers.get("content-type", ""), content_encoding="")
    reader.feed(body)
    reader.close()
    return Ending(
        is_known=True, fault=reader.fault, usage=reader.usage, model=reader.model, response_id=reader.response_id
    )


def _content(response: ResponseLike) -> bytes:
    try:
        return bytes(getattr(response, "content", b""))
    except RuntimeError:  # a stream that was not read; httpx and httpx2 have an error of their own each
        return b""


def _fault_told(error: BaseException) -> Fault | None:
    """By the answer an SDK's error carries, or by the error event out of a stream."""
    response, body = getattr(error, "response", None), getattr(error, "body", None)
    if isinstance(response, ResponseLike) and response.status_code >= 400:
        return fault_of_answer(response.status_code, _content(response) or _as_json(body), response.headers)
    if isinstance(body, Mapping) and hasattr(error, "request"):
        return classify(status=None, body=_as_json(body))
    return None


def _as_json(body: object) -> bytes:
    try:
        return msgspec.json.encode(body) if body is not None else b""
    except (TypeError, ValueError):
        return b""


def _fault_of_connection(error: BaseException) -> Fault | None:
    names = [one.__name__ for one in type(error).__mro__ if one.__module__.partition(".")[0] in HTTP_LIBRARIES]
    if "TransportError" not in names or "PoolTimeout" in names or "LocalProtocolError" in names:
        return None
    if "ReadTimeout" in names or "WriteTimeout" in names:
        return fault_named(FaultKind.TIMEOUT, f"{type(error).__name__}: {error}".removesuffix(": "))
    return connection_fault(_in_httpx(error, names), in_body=False)


def _in_httpx(error: BaseException, names: list[str]) -> Exception:
    """The error as one of httpx, with its causes: httpx2 has the same classes under the same names."""
    if isinstance(error, httpx.HTTPError):
        return error
    twin: Exception = next(getattr(httpx, name) for name in names if hasattr(httpx, name))(str(error))
    twin.__cause__ = error.__cause__ or error.__context__
    return twin


def _causes(error: BaseException) -> Iterator[BaseException]:
    """`error` and what it was raised from; at most ten."""
    current: BaseException | None = error
    for _ in range(10):
        if current is None:
            return
        yield current
        current = current.__cause__
