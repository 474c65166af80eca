"""Where a request goes: the server, and the proxy on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import httpx
import msgspec

from .proxies import DIRECT, Proxies, Proxy, parse_proxy

PORTS: Final = {"http": 80, "https": 443}


class Route(msgspec.Struct, frozen=True):
    """A way connections can be shared on; equal routes share them."""

    host: str
    port: int
    is_tls: bool
    proxy: Proxy | None = None

    @property
    def is_absolute(self) -> bool:
        """Whether an HTTP proxy reads the requests itself, instead of only passing bytes on."""
        return not self.is_tls and self.proxy is not None and not self.proxy.is_socks

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" + (f" through proxy {self.proxy}" if self.proxy else "")


class Routes:
    """Finds the route of a URL, and remembers it."""

    def __init__(self, proxy: str | None, environment: Mapping[str, str], *, key: str = "proxy") -> None:
        self._fixed = parse_proxy(proxy, key=key) if proxy is not None and proxy != DIRECT else None
        self._proxies = Proxies(environment) if proxy is None else None
        self._known: dict[tuple[str, str, int | None], Route] = {}

    def route_for(self, url: httpx.URL) -> Route:
        """The way to `url`; raises `httpx.UnsupportedProtocol`."""
        key = (url.scheme, url.host, url.port)
        route = self._known.get(key)
        if route is None:
            route = self._known[key] = self._route(*key, url)
        return route

    def _route(self, scheme: str, host: str, port: int | None, url: httpx.URL) -> Route:
        if scheme not in PORTS or not host:
            raise httpx.UnsupportedProtocol(f"{url} is no http(s) URL with a host")
        port = port or PORTS[scheme]
        proxy = self._proxies.proxy_for(scheme, host, port) if self._proxies is not None else self._fixed
        return Route(url.raw_host.decode("ascii"), port, scheme == "https", proxy)
