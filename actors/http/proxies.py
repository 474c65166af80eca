"""Which proxy a connection goes through: the configured one, else what the environment says for its address.

`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` count in both cases; where both are set, lower case wins. The
environment is never asked about this machine's own addresses. A configured proxy holds for every address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from enum import StrEnum
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from ...protocol.errors import ConnectionSettingRefused

DIRECT: Final = "direct"


class ProxyKind(StrEnum):
    """How a proxy is spoken to; names with a letter behind the number leave resolving to the proxy."""

    HTTP = "http"
    HTTPS = "https"
    SOCKS4 = "socks4"
    SOCKS4A = "socks4a"
    SOCKS5 = "socks5"
    SOCKS5H = "socks5h"


PORTS: Final = {ProxyKind.HTTP: 80, ProxyKind.HTTPS: 443}
SOCKS_PORT: Final = 1080


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """One proxy; `str()` shows it without its password."""

    kind: ProxyKind
    host: str
    port: int
    username: str | None = None
    password: str | None = None

    @property
    def is_socks(self) -> bool:
        return self.kind not in PORTS

    @property
    def resolves(self) -> bool:
        """Whether names are looked up at its end."""
        return self.kind not in (ProxyKind.SOCKS4, ProxyKind.SOCKS5)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.kind}://{host}:{self.port}"

    __repr__ = __str__


def parse_proxy(url: str, *, key: str) -> Proxy:
    """The proxy that `url` names, `http://` if it names no kind; `key` is where it stands, for the error."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        kind = ProxyKind(parts.scheme.lower())
        port = parts.port or PORTS.get(kind, SOCKS_PORT)
    except ValueError:
        valid = ", ".join(ProxyKind)
        raise ConnectionSettingRefused(key, _bare(url), f"not a proxy's URL (known kinds: {valid})") from None
    if not parts.hostname:
        raise ConnectionSettingRefused(key, _bare(url), "a proxy's URL without a host")
    return Proxy(
        kind=kind,
        host=parts.hostname,
        port=port,
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
    )


class Proxies:
    """The environment's proxies, read once."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._by_scheme: dict[str, Proxy] = {}
        for scheme in ("http", "https", "all"):
            url, name = _either(environment, f"{scheme}_proxy")
            if url:
                self._by_scheme[scheme] = parse_proxy(url, key=name)
        exempt, _ = _either(environment, "no_proxy")
        self._exempt = tuple(entry for entry in (part.strip().lower() for part in exempt.split(",")) if entry)

    def proxy_for(self, scheme: str, host: str, port: int) -> Proxy | None:
        """The proxy for an address, None for a direct connection."""
        proxy = self._by_scheme.get(scheme) or self._by_scheme.get("all")
        if proxy is None or is_loopback(host) or any(_covers(entry, host.lower(), port) for entry in self._exempt):
            return None
        return proxy


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine, whatever a resolver would say."""
    if host.rstrip(".").lower() == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def _covers(entry: str, host: str, port: int) -> bool:
    """Whether one entry of NO_PROXY is about this address: `*`, a name and all below it, an address, a network."""
    if entry == "*":
        return True
    name, _, wanted = entry.rpartition(":")
    if wanted.isdigit() and name and (":" not in name or name.startswith("[")):
        if int(wanted) != port:
            return False
        entry = name
    address = _address(host)
    if address is not None:
        try:
            return address in ipaddress.ip_network(entry.strip("[]"), strict=False)
        except ValueError:
            return False
    suffix = entry.removeprefix("*").removeprefix(".").rstrip(".")
    host = host.rstrip(".")
    return bool(suffix) and (host == suffix or host.endswith(f".{suffix}"))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _either(environment: Mapping[str, str], name: str) -> tuple[str, str]:
    """The value of a variable and the spelling that has it."""
    spelled = name if environment.get(name) else name.upper()
    return environment.get(spelled, ""), spelled


def _bare(url: str) -> str:
    """`url` without user and password."""
    scheme, mark, rest = url.rpartition("://")
    return scheme + mark + rest.rpartition("@")[2]
