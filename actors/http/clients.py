"""HTTP clients of a process: one pool for all calls that reach their provider the same way.

`Clients` is what a worker has, for as long as it lives. `open_client` is for somebody who asks one thing and goes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

import httpx

from ...protocol.settings import ProviderSettings
from ...protocol.version import VERSION
from .routes import Routes
from .tls import TlsSettings, tls_context, tls_of
from .transport import PoolTransport

CONNECT_S: Final = 10.0
WRITE_S: Final = 60.0
"""For a server that takes nothing of a request; as long as it takes some of it, it may be slow."""

USER_AGENT: Final = f"covey/{VERSION}"
ENCODING: Final = "identity"
"""Compressed, a stream of small events is larger, and has to be waited for."""


class _Way(NamedTuple):
    """What clients share a pool for."""

    tls: TlsSettings
    proxy: str | None


class Clients:
    """Clients by how their provider is reached; owned by one loop. Close it on that loop."""

    def __init__(self, *, environment: Mapping[str, str] | None = None, max_connections: int | None = None) -> None:
        """The `environment` (this process's by default) says where proxies and authorities are that nobody configured.

        `max_connections` bounds each pool; None is no bound, since a slot is one already.
        """
        self._environment = os.environ if environment is None else environment
        self._max = max_connections
        self._transports: dict[_Way, PoolTransport] = {}
        self._clients: dict[tuple[_Way, float], httpx.AsyncClient] = {}

    @property
    def free_count(self) -> int:
        """Connections that are kept for the next call."""
        return sum(transport.pool.free_count for transport in self._transports.values() if transport.pool is not None)

    def for_provider(self, provider: ProviderSettings) -> httpx.AsyncClient:
        """The client for calls to `provider`; the same one for all that are reached the same way. Do not close it.

        Raises `ConnectionSettingRefused` for a certificate or proxy that cannot be used.
        """
        way = self._way(provider)
        connect_s = _connect_s(provider)
        client = self._clients.get((way, connect_s))
        if client is None:
            client = self._clients[way, connect_s] = _client(self._transport(way, provider), connect_s)
        return client

    async def send(self, provider: ProviderSettings, request: httpx.Request) -> httpx.Response:
        """Send without the client between: the answer's head, with a body that streams; close it with `aclose`.

        Sets our name, no compression and the connection's timeouts where the request says nothing else. No redirects,
        no cookies, nothing read at all. Iterating over `response.stream` is the cheapest way to read the body.
        """
        transport = self._transport(self._way(provider), provider)
        headers = request.headers
        if "user-agent" not in headers:
            headers["User-Agent"] = USER_AGENT
        if "accept-encoding" not in headers:
            headers["Accept-Encoding"] = ENCODING
        if "timeout" not in request.extensions:
            request.extensions["timeout"] = {"connect": _connect_s(provider), "write": WRITE_S}
        response = await transport.handle_async_request(request)
        response.request = request
        return response

    async def close(self) -> None:
        """Close all connections; calls under way break."""
        transports = tuple(self._transports.values())
        self._transports.clear()
        self._clients.clear()
        for transport in transports:
            await transport.aclose()

    def _way(self, provider: ProviderSettings) -> _Way:
        return _Way(tls_of(provider, self._environment), provider.proxy)

    def _transport(self, way: _Way, provider: ProviderSettings) -> PoolTransport:
        transport = self._transports.get(way)
        if transport is None:
            transport = self._transports[way] = open_transport(
                tls=way.tls,
                proxy=way.proxy,
                environment=self._environment,
                max_connections=self._max,
                owner=f"providers.{provider.name}.",
            )
        if provider.base_url.startswith("https:"):
            tls_context(way.tls)  # now, because here is where a certificate that cannot be used is an answer
        return transport


def open_transport(
    *,
    tls: TlsSettings,
    proxy: str | None,
    environment: Mapping[str, str] | None = None,
    max_connections: int | None = None,
    owner: str = "",
) -> PoolTransport:
    """A transport with a pool of its own; `owner` goes before `proxy` in the error for one that cannot be used."""
    routes = Routes(proxy, os.environ if environment is None else environment, key=f"{owner}proxy")
    return PoolTransport(tls, routes, max_connections=max_connections)


def open_client(base_url: str, *, connect_s: float = CONNECT_S) -> httpx.AsyncClient:
    """A client with a pool of its own, for calls to `base_url`; the caller closes it.

    Proxies and authorities of the environment apply, but never to a loopback address.
    """
    provider = ProviderSettings(name="", base_url=base_url)
    tls = tls_of(provider, os.environ)
    if base_url.startswith("https:"):
        tls_context(tls)
    return _client(open_transport(tls=tls, proxy=None), connect_s)


def _client(transport: PoolTransport, connect_s: float) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=transport,
        trust_env=False,  # the transport reads it; httpx would look for a netrc with every request
        timeout=httpx.Timeout(None, connect=connect_s, write=WRITE_S),
        headers={"user-agent": USER_AGENT, "accept-encoding": ENCODING},
        follow_redirects=False,
    )


def _connect_s(provider: ProviderSettings) -> float:
    connect_s = provider.timeouts.connect_seconds
    return CONNECT_S if connect_s is None else connect_s
