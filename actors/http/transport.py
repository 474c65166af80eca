"""The transport under httpx: requests go out over our own pool, answers come back as they arrive.

Why not httpx's own: it looks through its whole pool at every request and every end of one, and reads each piece of a
body through three layers. `covey bench calls` has the numbers.

A transport belongs to the loop that first used it. It is refused on any other, in any other thread, and in a process
that was forked off; nothing of it is closed there.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from types import MappingProxyType
from typing import Final, NoReturn

import httpx

from .addresses import Resolver
from .answer import Answer
from .connection import Connection
from .dialing import Dialer
from .pool import Pool
from .request_head import request_head
from .routes import Route, Routes
from .tls import TlsSettings
from .tunnels import refusal

KEPT_TRIES: Final = 2
"""Kept connections that may turn out to be closed before a request gets one of its own."""
MET_S: Final = 1.0
"""A close that was on its way when the request went out is here after a round trip. One that comes later may be the end
of a server that had read the request and worked on it; sent again from here, it would be a second call with one record.
"""

NO_TIMEOUTS: Final[Mapping[str, float | None]] = MappingProxyType({})


class PoolTransport(httpx.AsyncBaseTransport):
    """Sends requests over connections that are kept and shared; errors are httpx's, with the system's as their cause.

    Understands of a request's extensions: `timeout` (httpx's four, None is none) and `on_sent`, which is called once,
    when the first byte is about to go to a socket. A request that meets the close of its kept connection is sent again:
    nobody read it.
    """

    def __init__(
        self, tls: TlsSettings, routes: Routes, *, resolver: Resolver | None = None, max_connections: int | None = None
    ) -> None:
        self._routes, self._max = routes, max_connections
        self._dialer = Dialer(tls, resolver or Resolver())
        self._pool: Pool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._is_closed = False

    @property
    def pool(self) -> Pool | None:
        """What is open; None before the first request."""
        return self._pool

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The answer's head; its body comes as it is read. `aclose` of the answer keeps or closes the connection."""
        pool = self._own_pool()
        route = self._routes.route_for(request.url)
        timeouts = request.extensions.get("timeout", NO_TIMEOUTS)
        head = request_head(request, route)
        body = request.content if isinstance(request.stream, httpx.ByteStream) else None
        on_sent: Callable[[], None] | None = request.extensions.get("on_sent")
        now, tries = asyncio.get_running_loop().time, KEPT_TRIES
        while True:
            connection = await self._connection(pool, route, timeouts, may_be_kept=tries > 0)
            was_kept, began = connection.exchanges > 0, now()
            answer = Answer(is_for_head=request.method == "HEAD")
            try:
                if on_sent is not None:
                    on_sent()
                    on_sent = None
                if body is not None:
                    connection.begin(answer, head + body, is_whole=True)
                else:
                    await _send_pieces(connection, answer, head, request, timeouts.get("write"))
                await connection.until_head(answer, read_s=timeouts.get("read"), write_s=timeouts.get("write"))
                return _response(connection, answer, route, timeouts.get("read"))
            except (httpx.NetworkError, httpx.RemoteProtocolError):
                await _let_go(connection, answer)
                met_it = was_kept and not answer.has_begun and now() - began < MET_S
                if not met_it or body is None or self._is_closed:
                    raise
                tries -= 1
            except BaseException:
                await _let_go(connection, answer)
                raise

    async def aclose(self) -> None:
        """Close all connections, and return when their sockets are closed; in a forked process, nothing."""
        self._is_closed = True
        if self._pool is None or os.getpid() != self._pid:
            return
        if asyncio.get_running_loop() is not self._loop:
            self._refuse_stranger()
        await self._pool.close()

    def _own_pool(self) -> Pool:
        if self._is_closed:
            raise RuntimeError("this transport is closed")
        if self._pool is None:
            self._loop, self._pid = asyncio.get_running_loop(), os.getpid()
            self._pool = Pool(self._loop, max_connections=self._max)
        elif os.getpid() != self._pid or asyncio.get_running_loop() is not self._loop:
            self._refuse_stranger()
        return self._pool

    def _refuse_stranger(self) -> NoReturn:
        if os.getpid() != self._pid:
            raise RuntimeError(f"this transport belongs to process {self._pid}, before the fork; make a new one")
        raise RuntimeError("this transport belongs to another event loop; each loop needs its own")

    async def _connection(
        self, pool: Pool, route: Route, timeouts: Mapping[str, float | None], *, may_be_kept: bool
    ) -> Connection:
        while True:
            connection = pool.take(route) if may_be_kept else None
            if connection is None:
                connection = await pool.place(route, timeouts.get("pool"))
            if connection is None:
                return await self._new(pool, route, timeouts.get("connect"))
            if connection.is_open:
                return connection

    async def _new(self, pool: Pool, route: Route, connect_s: float | None) -> Connection:
        """Make a connection in the place we were given."""
        try:
            connection = await self._dialer.dial(route, pool, connect_s)
        except BaseException:
            pool.not_made()
            raise
        pool.made(connection)
        if self._is_closed:
            connection.abort()
            raise RuntimeError("this transport is closed")
        if not connection.is_open:
            raise httpx.ConnectError(f"{route} closed the connection as soon as it was there")
        return connection


class Body(httpx.AsyncByteStream):
    """An answer's body, as it comes: what arrived together is given together."""

    def __init__(self, connection: Connection, answer: Answer, read_s: float | None) -> None:
        self._connection, self._answer, self._read_s = connection, answer, read_s

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        """The next bytes. A wait that is cancelled or takes too long closes the connection."""
        answer = self._answer
        while True:
            if answer.pieces:
                return self._connection.take(answer)
            if answer.is_complete:
                raise StopAsyncIteration
            if answer.error is not None:
                raise answer.error
            try:
                await self._connection.changed(self._read_s)
            except BaseException:
                if not answer.is_complete:
                    self._connection.abort()
                raise

    async def aclose(self) -> None:
        """Give the connection back; it is closed, and its socket gone on return, where the body was not over."""
        await _let_go(self._connection, self._answer)


async def _let_go(connection: Connection, answer: Answer) -> None:
    """Close the connection of an answer that is not over, and return when its socket is closed.

    With the last byte of its answer a connection is free: it may carry somebody else's exchange by now.
    """
    if not answer.is_complete:
        connection.abort()
        await connection.until_lost()


async def _send_pieces(
    connection: Connection, answer: Answer, head: bytes, request: httpx.Request, write_s: float | None
) -> None:
    """Send a request whose body is made as it goes; stop where the server answers before it has all."""
    assert isinstance(request.stream, httpx.AsyncByteStream), "an async client's request"
    is_chunked = request.headers.get("transfer-encoding", "").lower() == "chunked"
    connection.begin(answer, head, is_whole=False)
    async for piece in request.stream:
        framed = b"%x\r\n%s\r\n" % (len(piece), piece) if is_chunked else piece
        if piece and not await connection.send_on(framed, answer, write_s):
            return
    if is_chunked and not await connection.send_on(b"0\r\n\r\n", answer, write_s):
        return
    connection.sent(answer)


def _response(connection: Connection, answer: Answer, route: Route, read_s: float | None) -> httpx.Response:
    if answer.status == 407 and route.proxy is not None:
        raise refusal(route.proxy, 407, route.host)
    return httpx.Response(
        answer.status,
        headers=answer.headers,
        stream=Body(connection, answer, read_s),
        extensions={"http_version": b"HTTP/1.1", "reason_phrase": answer.reason},
    )
