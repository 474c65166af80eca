"""Through a proxy: what is said to it before the connection leads to the provider.

A proxy that refuses, or speaks something else, is an `httpx.ProxyError` that names it. None of the errors, and nothing
that is logged, has its password.
"""

from __future__ import annotations

import asyncio
import socket
from base64 import b64encode
from typing import Any, cast

import httpx

from .addresses import Resolver, connected
from .answer import Answer
from .proxies import Proxy


def authorization(proxy: Proxy) -> list[tuple[bytes, bytes]]:
    """The header that names us to an HTTP proxy; none if it wants none."""
    if proxy.username is None:
        return []
    credentials = f"{proxy.username}:{proxy.password or ''}".encode()
    return [(b"Proxy-Authorization", b"Basic " + b64encode(credentials))]


class ConnectReply(asyncio.Protocol):
    """Reads the answer to one CONNECT; the transport is then handed on, unless the answer was a no."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._answer = Answer(is_for_head=True)  # nothing behind the head is an HTTP body
        self._reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def ask(self, transport: asyncio.Transport, host: str, port: int) -> None:
        """Have the proxy connect to `host`; raises `httpx.ProxyError` if it does not."""
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        headers = [(b"Host", target.encode()), *authorization(self._proxy)]
        lines = [b"CONNECT %s HTTP/1.1" % target.encode(), *(b"%s: %s" % header for header in headers)]
        transport.write(b"\r\n".join(lines) + b"\r\n\r\n")
        await self._reply
        status = self._answer.status
        if self._answer.error is not None:
            raise httpx.ProxyError(f"proxy {self._proxy}: {self._answer.error}") from self._answer.error
        if not 200 <= status < 300:
            raise refusal(self._proxy, status, target)
        if self._answer.has_stray:
            raise httpx.ProxyError(f"proxy {self._proxy} sent bytes nobody asked for behind its reply")

    def data_received(self, data: bytes) -> None:
        self._answer.feed(data)
        self._settle()

    def eof_received(self) -> None:
        self._answer.end()
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._answer.end(exc if isinstance(exc, OSError) else None)
        self._settle()

    def _settle(self) -> None:
        if (self._answer.is_complete or self._answer.error is not None) and not self._reply.done():
            self._reply.set_result(None)


def refusal(proxy: Proxy, status: int, target: str) -> httpx.ProxyError:
    """The error for what a proxy says instead of yes."""
    why = "it wants other credentials" if status == 407 else f"it does not connect to {target}"
    return httpx.ProxyError(f"proxy {proxy} answered {status}: {why}")


async def through_socks(proxy: Proxy, host: str, port: int, resolver: Resolver) -> socket.socket:
    """A socket that leads through a SOCKS proxy to `host`."""
    from python_socks import ProxyError, ProxyType
    from python_socks.async_.asyncio import Proxy as SocksProxy

    if not proxy.resolves:
        addresses = await resolver.addresses(host, port)
        host = str(addresses[0][4][0])
    client = SocksProxy(
        ProxyType.SOCKS4 if proxy.kind.startswith("socks4") else ProxyType.SOCKS5,
        proxy.host,
        proxy.port,
        proxy.username,
        proxy.password,
        rdns=True,
        forward=cast(Any, _Way(proxy, resolver)),
    )
    try:
        # It wants a deadline of its own; ours, around all of this, is the one that counts.
        return await client.connect(host, port, timeout=3600)
    except ProxyError as error:
        raise httpx.ProxyError(f"proxy {proxy}: {error}") from error


class _Way:
    """How the SOCKS client gets to its proxy: our way, which races addresses and shares look-ups."""

    def __init__(self, proxy: Proxy, resolver: Resolver) -> None:
        self._proxy, self._resolver = proxy, resolver

    async def connect(self, dest_host: str, dest_port: int, timeout: float | None = None) -> socket.socket:
        return await connected(await self._resolver.addresses(dest_host, dest_port))
