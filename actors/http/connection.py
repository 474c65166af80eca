"""One connection to a provider: an asyncio protocol that carries one exchange after the other.

Owned by the loop it was made on. It belongs to a `Home` (the pool), which hears after every exchange that it is free
again, or once that it is gone. Nobody waits on it but the one whose exchange it carries, so one future is enough.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, Protocol, cast

import httpx

from .answer import Answer

HIGH_WATER: Final = 256 * 1024
"""Bytes of a body that wait to be taken; beyond it we stop reading, and TCP makes the server wait."""
LOST_S: Final = 1.0


class Home(Protocol):
    """Where connections belong."""

    def free(self, connection: Connection, keep_alive_s: float | None) -> None:
        """`connection` may carry another exchange; the server keeps it for `keep_alive_s`, if it said so."""

    def gone(self, connection: Connection) -> None:
        """`connection` is closed, or about to be."""


class Connection(asyncio.Protocol):
    """Open from `connection_made` on until `abort`, or until the other side closes it."""

    __slots__ = (
        "_answer",
        "_home",
        "_is_full",
        "_is_gone",
        "_is_lost",
        "_is_reading",
        "_is_sending",
        "_loop",
        "_lost",
        "_transport",
        "_waiter",
        "exchanges",
        "expires_at",
        "route",
    )

    def __init__(self, route: object, home: Home, loop: asyncio.AbstractEventLoop) -> None:
        self.route = route
        """What it leads to; free connections are found by it."""
        self.exchanges = 0
        """Requests that were sent over it."""
        self.expires_at = 0.0
        """Loop time after which a free one is not used any more."""
        self._home, self._loop = home, loop
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._lost: asyncio.Future[None] | None = None
        self._is_gone = self._is_lost = False
        self._is_reading = True
        self._is_sending = self._is_full = False

    @property
    def is_open(self) -> bool:
        """Whether a request can go out over it."""
        return not self._is_gone and self._transport is not None and not self._transport.is_closing()

    # --- one exchange ------------------------------------------------------------------------------------------------

    def begin(self, answer: Answer, head_and_body: bytes, *, is_whole: bool) -> None:
        """Send a request, or its beginning; `answer` gets what comes back."""
        assert self._transport is not None, "connected"
        assert self._answer is None, "one exchange at a time"
        self._answer = answer
        self.exchanges += 1
        self._is_sending = not is_whole
        self._transport.write(head_and_body)

    async def send_on(self, piece: bytes, answer: Answer, write_s: float | None) -> bool:
        """Send more of the request and wait while the server does not take it; False once it has answered."""
        if self._answer is not answer or answer.has_head:
            return False
        assert self._transport is not None, "connected"
        self._transport.write(piece)
        await self._until_written(answer, write_s)
        return self._answer is answer

    def sent(self, answer: Answer) -> None:
        """The request is complete."""
        if self._answer is answer:
            self._is_sending = False

    async def until_head(self, answer: Answer, *, read_s: float | None, write_s: float | None) -> None:
        """Return once the head is there; raise what came instead."""
        await self._until_written(answer, write_s)
        while not answer.has_head:
            if answer.error is not None:
                raise answer.error
            await self.changed(read_s)

    async def changed(self, within_s: float | None) -> None:
        """Return after something came for the current exchange, or its end; raise `httpx.ReadTimeout`."""
        if within_s is None:
            waiter = self._waiter = self._loop.create_future()
            await waiter
        elif not await self._woken(within_s):
            raise httpx.ReadTimeout(f"nothing came for {within_s:g} s")

    def take(self, answer: Answer) -> bytes:
        """What there is of the body; makes room for more."""
        if not self._is_reading and self._answer is answer:
            self._read_on()
        return answer.take()

    async def _until_written(self, answer: Answer, write_s: float | None) -> None:
        """Wait while the server does not take the request, as long as it takes some of it every `write_s` seconds."""
        while self._is_full and not answer.has_head and answer.error is None:
            assert self._transport is not None, "it said that it is full"
            before = self._transport.get_write_buffer_size()
            if not await self._woken(write_s) and self._transport.get_write_buffer_size() >= before:
                raise httpx.WriteTimeout(f"the server took nothing for {write_s:g} s; {before} bytes are left")

    async def _woken(self, within_s: float | None) -> bool:
        """Whether something happened within so many seconds."""
        waiter = self._waiter = self._loop.create_future()
        if within_s is None:
            await waiter
            return True
        try:
            async with asyncio.timeout(within_s):
                await waiter
        except TimeoutError:
            return False
        return True

    # --- its end -----------------------------------------------------------------------------------------------------

    def abort(self) -> None:
        """Close it now; what was not sent is not sent. Its exchange, if it has one, is over."""
        self._leave()
        if self._transport is not None:
            self._transport.abort()
        if self._answer is not None:
            self._over(ConnectionAbortedError("closed on this side"))

    async def until_lost(self) -> None:
        """Return once the socket is closed, or `LOST_S` later if the loop does not say so; only after `abort`."""
        if self._is_lost or self._transport is None:
            return
        if self._lost is None:
            self._lost = self._loop.create_future()
        with suppress(TimeoutError):
            async with asyncio.timeout(LOST_S):
                await asyncio.shield(self._lost)

    def _leave(self) -> None:
        if not self._is_gone:
            self._is_gone = True
            self._home.gone(self)

    # --- called by the loop ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._is_gone:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            self.abort()  # nobody asked for anything: whatever it is, it is no answer
            return
        answer.feed(data)
        if answer.is_complete:
            self._finish(answer)
        elif answer.error is not None:
            self.abort()
        elif answer.size > HIGH_WATER and self._is_reading:
            self._is_reading = False
            assert self._transport is not None, "connected"
            self._transport.pause_reading()
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def eof_received(self) -> None:
        self._over(None)
        self.abort()  # left to itself, it would stay until the rest of our request is taken

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._over(exc if isinstance(exc, OSError) else None)
        self._transport = None
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._wake()

    def _finish(self, answer: Answer) -> None:
        """Let go of an exchange that is over, and of the connection where it cannot carry another."""
        self._answer = None
        transport = self._transport
        assert transport is not None, "connected"
        if not self._is_reading:
            self._read_on()
        is_written = not self._is_sending and not transport.get_write_buffer_size()
        if answer.keeps_connection and not answer.has_stray and is_written and self.is_open:
            self._home.free(self, answer.keep_alive_s)
        else:
            self.abort()

    def _over(self, cause: OSError | None) -> None:
        self._leave()
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.end(cause)
        self._wake()

    def _read_on(self) -> None:
        self._is_reading = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
