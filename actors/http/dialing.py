"""From a route to a connection that can carry requests."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Final

import httpx

from .addresses import Resolver, connected
from .connection import Connection, Home
from .proxies import Proxy, ProxyKind
from .routes import Route
from .tls import TlsSettings, tls_context
from .tunnels import ConnectReply, through_socks

CLOSING_TURNS: Final = 2
"""Turns of the loop until a socket that it had just taken over is closed: it says that it has it, then that it is gone.
(libuv's loop does not say the second where we were cancelled in between, so nothing can be waited for.)"""


class Dialer:
    """Makes connections; owned by one loop."""

    def __init__(self, tls: TlsSettings, resolver: Resolver) -> None:
        self._tls, self._resolver = tls, resolver

    async def dial(self, route: Route, home: Home, within_s: float | None) -> Connection:
        """A new connection. Leaves no socket where it raises `httpx.ConnectTimeout`, `ConnectError`, `ProxyError`."""
        loop = asyncio.get_running_loop()
        connection = Connection(route, home, loop)
        try:
            async with asyncio.timeout(within_s):
                await self._connect(route, connection, loop)
        except BaseException as error:
            connection.abort()  # TLS that stands when we are cancelled would take its time to say goodbye
            for _ in range(CLOSING_TURNS):
                await asyncio.sleep(0)
            match error:
                case TimeoutError() if within_s is not None and not error.errno:
                    raise httpx.ConnectTimeout(f"no connection to {route} within {within_s:g} s") from error
                case OSError() | ValueError():  # ssl.SSLError is an OSError; names are refused with ValueErrors
                    raise httpx.ConnectError(f"no connection to {route}: {error}") from error
            raise
        return connection

    async def _connect(self, route: Route, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        context = tls_context(self._tls) if route.is_tls else None
        proxy = route.proxy
        if proxy is None:
            sock = await self._socket(route.host, route.port)
        elif proxy.is_socks:
            sock = await through_socks(proxy, route.host, route.port, self._resolver)
        elif context is not None:
            await self._tunnel(route, proxy, context, connection, loop)
            return
        else:
            sock = await self._socket(proxy.host, proxy.port)
            if proxy.kind is ProxyKind.HTTPS:
                await _adopt(loop, connection, sock, tls_context(self._tls), proxy.host)
                return
        await _adopt(loop, connection, sock, context, route.host)

    async def _tunnel(
        self,
        route: Route,
        proxy: Proxy,
        context: ssl.SSLContext,
        connection: Connection,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Have an HTTP proxy connect us, then speak TLS with the server itself."""
        reply = ConnectReply(proxy)
        is_tls = proxy.kind is ProxyKind.HTTPS
        sock = await self._socket(proxy.host, proxy.port)
        outer = await _adopt(loop, reply, sock, context if is_tls else None, proxy.host)
        try:
            await reply.ask(outer, route.host, route.port)
            inner = await loop.start_tls(outer, connection, context, server_hostname=route.host)
        except BaseException:
            outer.abort()
            raise
        if inner is None:
            raise ConnectionResetError("closed while TLS began")
        connection.connection_made(inner)

    async def _socket(self, host: str, port: int) -> socket.socket:
        return await connected(await self._resolver.addresses(host, port))


async def _adopt(
    loop: asyncio.AbstractEventLoop,
    protocol: asyncio.Protocol,
    sock: socket.socket,
    context: ssl.SSLContext | None,
    host: str,
) -> asyncio.Transport:
    """Put `protocol` on a connected socket, with TLS if there is a context."""
    name = host if context is not None else None
    transport, _ = await loop.create_connection(lambda: protocol, sock=sock, ssl=context, server_hostname=name)
    return transport
