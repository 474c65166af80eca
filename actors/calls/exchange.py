"""One attempt at a provider, with its slot held: request, stream, and the one end that goes into its account.

When `run` returns or raises, the attempt is retired: its connection is closed or given back, and nothing of it is
heard any more, whatever the provider still sends. One that is cancelled before its request went out leaves no record:
the provider never heard of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import lru_cache
from typing import Final

import httpx

from ...protocol.dialects.ask import Rendered
from ...protocol.dialects.base import Answer, StreamEvent
from ...protocol.dialects.registry import wire_dialect
from ...protocol.errors import ConnectionSettingRefused
from ...protocol.faults import Fault, FaultKind, classify, fault_named, retry_after_of, without_key
from ...protocol.messages.ledger import CallStatus
from ...protocol.model_facts import model_facts
from ..http.clients import Clients
from .account import Account
from .call_request import BYTES_PER_TOKEN
from .clocks import Clocks
from .connection_faults import connection_fault
from .route import Target
from .vigil import Vigil
from .watch import RanOut, Watch

REFUSAL_BYTES: Final = 65_536

OnEvent = Callable[[StreamEvent], None]


class Exchange:
    """One request and its answer; owned by the task that runs it, and used once."""

    def __init__(
        self,
        account: Account,
        target: Target,
        rendered: Rendered,
        *,
        secret: str | None,
        clients: Clients,
        clocks: Clocks,
        on_output: Callable[[], None] = lambda: None,
        on_event: OnEvent | None = None,
    ) -> None:
        self._account, self._target, self._rendered = account, target, rendered
        self._secret, self._clients, self._clocks = secret, clients, clocks
        self._on_output, self._on_event = on_output, on_event
        self._now = asyncio.get_running_loop().time
        self._vigil = Vigil(clocks, self._now())
        self._watch: Watch | None = None
        self._reader = wire_dialect(target.provider.dialect).reader(rendered.names, model=target.model)
        self.has_output = False
        """Whether the answer had begun to say something."""
        self.partial = ""
        """What had come of an answer that did not come whole."""

    async def run(self) -> Answer | Fault:
        """The complete answer, or what came instead."""
        response: httpx.Response | None = None
        try:
            sent = await self._send()
            if isinstance(sent, Fault):
                return self._end(CallStatus.FAILED, sent)
            response = sent
            self._vigil.head(self._now())
            return await (self._read(response) if response.is_success else self._refused(response))
        except BaseException as error:  # a cancel, or a bug: the account is closed before anything is waited for
            self._cut(CallStatus.CANCELLED if isinstance(error, asyncio.CancelledError) else CallStatus.FAILED)
            raise
        finally:
            # Where there is no response the transport has closed the connection already.
            if response is not None:
                await response.aclose()

    async def _send(self) -> httpx.Response | Fault:
        """Send the request and wait for the answer's head."""
        try:
            with Watch(self._vigil) as self._watch:
                return await self._clients.send(self._target.provider, self._message())
        except RanOut as late:
            return late.clock.fault
        except ConnectionSettingRefused as refused:
            return fault_named(FaultKind.TLS, str(refused))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return connection_fault(error, in_body=False)

    def _message(self) -> httpx.Request:
        rendered = self._rendered
        headers = {**rendered.headers, "x-client-request-id": self._account.call}
        return httpx.Request(
            "POST",
            _url(rendered.url),
            headers=httpx.Headers(headers, encoding="utf-8"),  # said, or httpx tries them out
            content=rendered.body,
            extensions={"on_sent": self._on_sent},
        )

    def _on_sent(self) -> None:
        self._account.is_sent = True
        self._vigil.sent(self._now())
        assert self._watch is not None, "it is sent under watch"
        self._watch.look()

    # --- an answer ---------------------------------------------------------------------------------------------------

    async def _read(self, response: httpx.Response) -> Answer | Fault:
        pieces = _pieces(response)
        broken = await self._feed(pieces)
        answer = self._reader.close()
        if answer.complete:
            self._account.close(CallStatus.COMPLETED, answer)
            await self._drain(pieces)
            return answer
        self.partial = answer.text
        if answer.fault is None:
            fault = broken or fault_named(FaultKind.TRUNCATED, "the stream ended before the answer did")
            return self._end(CallStatus.TRUNCATED, fault, answer)
        # An error inside a success; one that comes before any output is a refusal like any other.
        is_refusal = not self.has_output and answer.fault.kind is not FaultKind.INVALID_RESPONSE
        return self._end(CallStatus.REFUSED if is_refusal else CallStatus.FAILED, answer.fault, answer)

    async def _feed(self, pieces: AsyncIterator[bytes]) -> Fault | None:
        """Read until the answer is over or the stream ends; what cut it off, if something did."""
        # Once for every piece of every stream: what is not needed in here is not done in here.
        reader, vigil, now, on_event = self._reader, self._vigil, self._now, self._on_event
        phase = vigil.phase
        try:
            with Watch(vigil) as watch:
                async for piece in pieces:
                    events = reader.feed(piece)
                    if events:
                        vigil.content(now())
                        if on_event is not None:
                            for event in events:
                                on_event(event)
                    else:
                        vigil.bytes(now())
                    if vigil.phase is not phase:
                        phase = vigil.phase
                        watch.look()
                        self._come_further(bool(events))
                    if reader.is_over:
                        return None
        except RanOut as late:
            return late.clock.fault
        except httpx.HTTPError as error:
            return connection_fault(error, in_body=True)
        return None

    def _come_further(self, has_content: bool) -> None:
        self._account.first_byte()
        if has_content and not self.has_output:
            self.has_output = True
            self._on_output()

    async def _drain(self, pieces: AsyncIterator[bytes]) -> None:
        """Take the few bytes behind the answer, so that the connection stays usable; not worth waiting long for."""
        with suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(self._clocks.drain_s):
                async for _ in pieces:
                    pass

    # --- none --------------------------------------------------------------------------------------------------------

    async def _refused(self, response: httpx.Response) -> Fault:
        """Name an error answer. It is recorded with what is known of it if its body does not come in time, or if we are
        cancelled meanwhile."""
        body = bytearray()
        try:
            with suppress(TimeoutError, httpx.HTTPError):
                async with asyncio.timeout(self._clocks.refusal_s):
                    async for piece in _pieces(response):
                        body += piece
                        if len(body) > REFUSAL_BYTES:
                            break
        finally:
            fault = self._end(CallStatus.REFUSED, self._named(response, bytes(body)))
        return fault

    def _named(self, response: httpx.Response, body: bytes) -> Fault:
        target = self._target
        return classify(
            status=response.status_code,
            body=body,
            retry_after=retry_after_of(response.headers),
            now=time.time(),
            sent_tokens=len(self._rendered.body) // BYTES_PER_TOKEN,
            window_tokens=model_facts(target.provider, target.model).context_window,
        )

    # --- the end -----------------------------------------------------------------------------------------------------

    def _end(self, status: CallStatus, fault: Fault, answer: Answer | None = None) -> Fault:
        """Close the account without an answer; the fault comes back without the key, in case the provider quoted it."""
        fault = without_key(fault, self._secret)
        self._account.close(status, answer, fault)
        return fault

    def _cut(self, status: CallStatus) -> None:
        """Close the account of an attempt that is left in the middle, if there is anything to account for."""
        if self._account.is_sent and self._account.status is None:
            answer = self._reader.close()
            self.partial = answer.text
            self._account.close(status, answer)


def _pieces(response: httpx.Response) -> AsyncIterator[bytes]:
    """The body as it comes. We ask for no compression; who compresses all the same is read by httpx."""
    if any(name.lower() == b"content-encoding" for name, _ in response.headers.raw):
        return response.aiter_bytes()
    assert isinstance(response.stream, httpx.AsyncByteStream), "it came over an async transport"
    return aiter(response.stream)


@lru_cache(maxsize=256)
def _url(text: str) -> httpx.URL:
    return httpx.URL(text)
