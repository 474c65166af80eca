"""One attempt at a provider, with its slot held: request, stream, and exactly one record of what it cost.

The record is handed over in the same turn of the loop in which the end is known, before anything is waited for; so
nothing that happens later (the close of the connection, a cancel, the death of the process) can lose it. An attempt
that is cancelled before its request went out leaves no record: the provider never heard of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final

import httpx

from ...protocol.dialects.base import Answer
from ...protocol.dialects.registry import wire_dialect
from ...protocol.faults import Fault, FaultKind, classify, fault_named, without_key
from ...protocol.ids import CallId
from ...protocol.messages.ledger import CallRecorded, CallStatus
from ...protocol.prices import cost_usd, price_of
from ...protocol.usage import Usage
from .call_request import CallRequest, Clocks, Record
from .connection_faults import connection_fault

REFUSAL_BYTES: Final = 65_536
STALE_CONNECTIONS: Final = 2
"""A client keeps two connections at most; the third attempt makes its own."""


class Exchange:
    """One request and its answer; owned by the task that runs it, and used once."""

    def __init__(
        self,
        call: CallId,
        request: CallRequest,
        *,
        client: httpx.AsyncClient,
        record: Record,
        clocks: Clocks,
        waited_s: float | None,
        on_output: Callable[[], None] = lambda: None,
    ) -> None:
        self._call, self._request = call, request
        self._client, self._record_to, self._clocks = client, record, clocks
        self._waited_s, self._on_output = waited_s, on_output
        self._dialect = wire_dialect(request.provider.dialect)
        self._reader = self._dialect.reader()
        self._started_at_ms = int(time.time() * 1000)
        self._started = time.monotonic()
        self._first_byte: float | None = None
        self._is_sent = False
        self._is_fresh = False
        self._has_output = False
        self._is_recorded = False
        self._usage: Usage | None = None
        self._status: CallStatus | None = None

    @property
    def usage(self) -> Usage | None:
        """What the provider reported; None before the end, and where it did not say."""
        return self._usage

    @property
    def was_refused(self) -> bool:
        """Whether the provider said no before it did anything."""
        return self._status is CallStatus.REFUSED

    @property
    def took_s(self) -> float:
        """Seconds since the slot was there."""
        return time.monotonic() - self._started

    async def run(self) -> Answer | Fault:
        """The complete answer, or what came instead. The connection is done with when it returns or raises."""
        try:
            async with asyncio.timeout(self._clocks.headers_s):
                response = await self._send()
        except asyncio.CancelledError:
            if self._is_sent:
                self._record(CallStatus.CANCELLED)
            raise
        except TimeoutError:
            return self._failed(fault_named(FaultKind.TIMEOUT, f"no answer within {self._clocks.headers_s:g} s"))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return self._failed(connection_fault(error, in_body=False))
        try:
            return await (self._read(response) if response.is_success else self._refused(response))
        except asyncio.CancelledError:
            if not self._is_recorded:
                self._record(CallStatus.CANCELLED, self._reader.close())
            raise
        finally:
            await response.aclose()

    async def _send(self) -> httpx.Response:
        """Send the request; once more if a kept connection turns out to be closed.

        Some servers (llama.cpp) promise to keep a connection and close it a millisecond later. A request that meets
        that close was read by nobody, so it is no failed call and no second one.
        """
        for _ in range(STALE_CONNECTIONS):
            self._is_fresh = False
            try:
                return await self._client.send(self._message(), stream=True)
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                if self._is_fresh:
                    raise
        return await self._client.send(self._message(), stream=True)

    def _message(self) -> httpx.Request:
        request = self._request
        return self._client.build_request(
            "POST",
            self._dialect.endpoint(request.provider.base_url),
            headers={**self._dialect.headers(request.api_key), "x-client-request-id": self._call},
            content=self._dialect.request_body(
                model=request.model,
                messages=request.messages,
                tools=request.tools,
                max_tokens=request.max_answer_tokens,
            ),
            extensions={"trace": self._trace},
        )

    async def _trace(self, event: str, _: object) -> None:
        if event.endswith("connect_tcp.started"):
            self._is_fresh = True
        elif event.endswith("send_request_headers.started"):
            self._is_sent = True

    # --- an answer ---------------------------------------------------------------------------------------------------

    async def _read(self, response: httpx.Response) -> Answer | Fault:
        pieces = response.aiter_bytes()
        broken = await self._feed(pieces)
        answer = self._reader.close()
        if answer.complete:
            self._record(CallStatus.COMPLETED, answer)
            await self._drain(pieces)
            return answer
        if answer.fault is not None:
            return self._broken_off(answer, answer.fault)
        fault = broken or fault_named(FaultKind.TRUNCATED, "the stream ended before the answer did")
        return self._end(CallStatus.TRUNCATED, fault, answer)

    async def _feed(self, pieces: AsyncIterator[bytes]) -> Fault | None:
        """Read until the answer is over or the stream ends; what cut it off, if something did."""
        clocks, now = self._clocks, asyncio.get_running_loop().time
        last_moment = now() + clocks.total_s - self.took_s
        content_due = now() + clocks.content_s
        try:
            async with asyncio.timeout_at(min(last_moment, now() + clocks.chunk_s)) as clock:
                async for piece in pieces:
                    self._first_byte = self._first_byte or time.monotonic()
                    if self._reader.feed(piece):
                        if not self._has_output:
                            self._has_output = True
                            self._on_output()
                        content_due = now() + clocks.content_s
                    if self._reader.is_over:
                        return None
                    clock.reschedule(min(last_moment, content_due, now() + clocks.chunk_s))
        except TimeoutError:
            late = "was not over in time" if now() >= last_moment else "stood still"
            return fault_named(FaultKind.TIMEOUT, f"the answer {late}, {self.took_s:.0f} s after the request")
        except httpx.HTTPError as error:
            return connection_fault(error, in_body=True)
        return None

    async def _drain(self, pieces: AsyncIterator[bytes]) -> None:
        """Take the few bytes behind the answer, so that the connection stays usable; not worth waiting long for."""
        with suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(self._clocks.drain_s):
                async for _ in pieces:
                    pass

    def _broken_off(self, answer: Answer, fault: Fault) -> Fault:
        """An error inside a success; one that comes before any output is a refusal like any other."""
        is_refusal = not self._has_output and fault.kind is not FaultKind.INVALID_RESPONSE
        return self._end(CallStatus.REFUSED if is_refusal else CallStatus.FAILED, fault, answer)

    # --- none --------------------------------------------------------------------------------------------------------

    async def _refused(self, response: httpx.Response) -> Fault:
        """Name an error answer. It is recorded with what is known of it if its body does not come in time."""
        body = bytearray()
        with suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(self._clocks.refusal_s):
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > REFUSAL_BYTES:
                        break
        fault = classify(
            status=response.status_code,
            body=bytes(body),
            retry_after=response.headers.get("retry-after"),
            now=time.time(),
        )
        return self._end(CallStatus.REFUSED, fault)

    def _failed(self, fault: Fault) -> Fault:
        return self._end(CallStatus.FAILED, fault)

    # --- the account -------------------------------------------------------------------------------------------------

    def _end(self, status: CallStatus, fault: Fault, answer: Answer | None = None) -> Fault:
        """Record the end without an answer; the fault comes back without the key, in case the provider quoted it."""
        fault = without_key(fault, self._request.api_key)
        self._record(status, answer, fault)
        return fault

    def _record(self, status: CallStatus, answer: Answer | None = None, fault: Fault | None = None) -> None:
        assert not self._is_recorded, "one attempt has one record"
        self._is_recorded = True
        self._usage, self._status = answer.usage if answer else None, status
        request = self._request
        self._record_to(
            CallRecorded(
                call=self._call,
                provider=request.provider.name,
                base_url=request.provider.base_url,
                model=request.model,
                status=status,
                started_at_ms=self._started_at_ms,
                usage=self._usage,
                cost_estimated_usd=cost_usd(
                    self._usage, price_of(request.provider.prices, request.model), at=self._started_at_ms / 1000
                ),
                session=request.session,
                agent=request.agent,
                task=request.task,
                model_answered=answer.model if answer else None,
                response_id=answer.response_id if answer else None,
                waited_ms=_ms(self._waited_s),
                first_byte_ms=_ms(self._first_byte - self._started if self._first_byte else None),
                duration_ms=_ms(self.took_s),
                fault=fault.summary if fault else None,
                fault_code=fault.code if fault else None,
                parent=request.parent_session,
                parent_agent=request.parent,
            )
        )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
