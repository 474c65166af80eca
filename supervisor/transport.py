"""The fleet under any SDK that takes an HTTP client: transports that hold a slot around each call.

    OpenAI(http_client=httpx.Client(transport=FleetTransport(fleet), timeout=600))

A slot is taken before the request goes out, and held until the last byte of the answer, or its close. Tokens and errors
are read from what passes, and the bytes stay as they are. What goes to a destination without a budget passes without a
word to the broker; its tokens are counted too. Works with httpx and httpx2, whichever the SDK uses.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from ..protocol.errors import CoveyError
from ..protocol.messages.broker import Priority
from .client import AsyncFleet
from .fleet import Fleet
from .handles import Slot
from .interrupts import Interrupt
from .refusals import as_sdk_error
from .transport_hold import AsyncHeldBody, HeldBody, Watch, apeek, peek
from .transport_wire import (
    Request,
    base_url_of,
    body_kind,
    is_call,
    is_from_sdk,
    key_of,
    library_of,
    model_of,
    prepare,
    refusing_response,
)

if TYPE_CHECKING:
    # Either library's client takes it for a transport of its own, and neither has to be there.
    Base = Any
else:
    Base = object

OnRefusal = Literal["raise", "response"]

FIRST_ERROR: Final = 400


class _Calls:
    """What both transports know about the calls to come."""

    def __init__(
        self,
        fleet: Fleet | AsyncFleet,
        *,
        session: str | None,
        priority: Priority,
        timeout: float | None,
        interrupt: Interrupt | None,
        refusal: OnRefusal,
    ) -> None:
        self._fleet = fleet
        self._session, self._priority, self._timeout = session, priority, timeout
        self._interrupt, self._refusal = interrupt, refusal

    def slot(self, request: Request) -> Slot:
        """A slot for this request, not taken yet."""
        return self._fleet.slot(
            base_url_of(request),
            model=model_of(request),
            api_key=key_of(request.headers),
            session=self._session,
            timeout=self._timeout,
            priority=self._priority,
            interrupt=self._interrupt,
        )

    def refused(self, request: Request, error: Exception) -> Any:
        """The answer that stands for the fleet's no; raises it where that was wished, and whatever is no refusal."""
        if self._refusal == "response" and isinstance(error, CoveyError):
            return refusing_response(request, error)
        raise as_sdk_error(error) if is_from_sdk(request) else error


class FleetTransport(Base):  # type: ignore[misc]
    """A transport for `httpx.Client` and `httpx2.Client` that asks the fleet first. May be used from any thread."""

    def __init__(
        self,
        fleet: Fleet,
        inner: Any = None,
        *,
        session: str | None = None,
        priority: Priority = Priority.AGENT,
        timeout: float | None = None,
        interrupt: Interrupt | None = None,
        refusal: OnRefusal = "raise",
    ) -> None:
        """`inner` sends the requests (None: the library's `HTTPTransport`); the rest is as for `Fleet.slot`.

        A refusal of the fleet is raised as it is, or with `refusal="response"` answered as a 429 that no SDK repeats;
        `covey.local_refusal` tells it from the provider's.
        """
        self._calls = _Calls(
            fleet, session=session, priority=priority, timeout=timeout, interrupt=interrupt, refusal=refusal
        )
        self._inner = _Inner(inner, "HTTPTransport")

    def handle_request(self, request: Any) -> Any:
        """Send it under a slot; see `httpx.BaseTransport`."""
        inner = self._inner.of(request)
        if not is_call(request):
            return inner.handle_request(request)
        slot = self._calls.slot(request)
        try:
            slot.__enter__()
        except (CoveyError, InterruptedError) as error:
            return self._calls.refused(request, error)
        watch = Watch(slot)
        try:
            prepare(request, slot.call)
            response = inner.handle_request(request)
            rest, peeked = iter(response.stream), None
            if response.status_code >= FIRST_ERROR:
                peeked = peek(rest)
                watch.refused(response, peeked.content)
            else:
                watch.answered(response)
        except BaseException as error:
            watch.end(error)
            raise
        if peeked is not None and peeked.is_all:
            watch.end(None)
        kind = body_kind(HeldBody, library_of(request), is_async=False)
        response.stream = kind(response.stream, rest, watch, peeked)
        return response

    def close(self) -> None:
        """Close the inner transport; the fleet stays."""
        self._inner.forget().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AsyncFleetTransport(Base):  # type: ignore[misc]
    """The same for the libraries' `AsyncClient`, on an `AsyncFleet` of the same loop or on a `Fleet`."""

    def __init__(
        self,
        fleet: AsyncFleet | Fleet,
        inner: Any = None,
        *,
        session: str | None = None,
        priority: Priority = Priority.AGENT,
        timeout: float | None = None,
        interrupt: Interrupt | None = None,
        refusal: OnRefusal = "raise",
    ) -> None:
        """See `FleetTransport`; `inner` is an async transport."""
        self._calls = _Calls(
            fleet, session=session, priority=priority, timeout=timeout, interrupt=interrupt, refusal=refusal
        )
        self._inner = _Inner(inner, "AsyncHTTPTransport")

    async def handle_async_request(self, request: Any) -> Any:
        """Send it under a slot; see `httpx.AsyncBaseTransport`."""
        inner = self._inner.of(request)
        if not is_call(request):
            return await inner.handle_async_request(request)
        slot = self._calls.slot(request)
        try:
            await slot.__aenter__()
        except (CoveyError, InterruptedError) as error:
            return self._calls.refused(request, error)
        watch = Watch(slot)
        try:
            prepare(request, slot.call)
            response = await inner.handle_async_request(request)
            rest, peeked = aiter(response.stream), None
            if response.status_code >= FIRST_ERROR:
                peeked = await apeek(rest)
                watch.refused(response, peeked.content)
            else:
                watch.answered(response)
        except BaseException as error:
            watch.end(error)
            raise
        if peeked is not None and peeked.is_all:
            watch.end(None)
        kind = body_kind(AsyncHeldBody, library_of(request), is_async=True)
        response.stream = kind(response.stream, rest, watch, peeked)
        return response

    async def aclose(self) -> None:
        """Close the inner transport; the fleet stays."""
        await self._inner.forget().aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


class _Nothing:
    """Stands for an inner transport that no request needed."""

    def close(self) -> None:
        """Nothing is open."""

    async def aclose(self) -> None:
        """Nothing is open."""


class _Inner:
    """What sends the requests: the program's own transport, or one of the library's, made when it is first needed.

    A connection cannot be shared with a forked child, so a child gets one of its own.
    """

    def __init__(self, given: Any, kind: str) -> None:
        self._given, self._kind = given, kind
        self._made: dict[int, Any] = {}

    def of(self, request: Request) -> Any:
        """The transport for this request."""
        if self._given is not None:
            return self._given
        made = self._made.get(os.getpid())
        if made is None:
            # Two threads that come first at once make one each; the one that is not kept has opened nothing.
            made = self._made.setdefault(os.getpid(), getattr(library_of(request), self._kind)())
        return made

    def forget(self) -> Any:
        """What is to be closed."""
        return self._given or self._made.pop(os.getpid(), None) or _Nothing()
