"""HTTP clients of a worker: one for each agent, one TLS context for all of them.

One client per agent, because httpx looks through its whole pool at every request and response: 200 agents on a shared
one cost seven times the CPU of 200 clients. A client without a context of its own costs 0.02 ms and 3 kB; the context
costs 22 ms, so it is made once, and only when the first https endpoint is called.
"""

from __future__ import annotations

import ipaddress
import ssl
from functools import cache
from typing import Final
from urllib.parse import urlsplit

import httpx

from ..protocol.version import VERSION

CONNECT_S: Final = 10.0
KEEPALIVE_S: Final = 4.0
"""Below the 5 s after which common servers close an idle connection: reusing one at that moment fails."""

USER_AGENT: Final = f"covey/{VERSION}"


def open_client(base_url: str, *, connect_s: float = CONNECT_S) -> httpx.AsyncClient:
    """A client for the calls of one agent to `base_url`; the caller closes it.

    Proxies and CA bundles of the environment apply, but never to a loopback address. Only connecting has a deadline
    here: the call has its own clocks for the rest. The pool has no bound, because the slot is the bound.
    """
    parts = urlsplit(base_url)
    return httpx.AsyncClient(
        verify=_tls_context() if parts.scheme == "https" else _no_tls_context(),
        trust_env=not is_loopback(parts.hostname or ""),
        timeout=httpx.Timeout(None, connect=connect_s),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=2, keepalive_expiry=KEEPALIVE_S),
        headers={"user-agent": USER_AGENT},
        follow_redirects=False,
    )


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine, whatever a resolver would say."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@cache
def _tls_context() -> ssl.SSLContext:
    return httpx.create_ssl_context()


@cache
def _no_tls_context() -> ssl.SSLContext:
    # It trusts nobody: were it ever used for https after all, the handshake would fail instead of going unchecked.
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
