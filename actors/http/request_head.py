"""The head of a request as bytes."""

from __future__ import annotations

import httpx

from .routes import Route
from .tunnels import authorization


def request_head(request: httpx.Request, route: Route) -> bytes:
    """Request line and headers; the whole URL in the line where an HTTP proxy has to read it.

    Raises `httpx.LocalProtocolError` where a header has a line break in it, such as a key read with its newline.
    """
    target = request.url.raw_path
    headers = request.headers.raw
    if route.is_absolute:
        target = str(request.url.copy_with(fragment=None, username=None, password=None)).encode("ascii")
        assert route.proxy is not None, "only for proxies"
        headers = [*headers, *authorization(route.proxy)]
    lines = [b"%s %s HTTP/1.1" % (request.method.encode("ascii"), target)]
    lines += [b"%s: %s" % header for header in headers]
    head = b"\r\n".join(lines)
    breaks = len(lines) - 1
    if head.count(b"\n") != breaks or head.count(b"\r") != breaks or b"\0" in head:
        names = ", ".join(name.decode("latin-1") for name, value in headers if not value.isascii() or _is_bad(value))
        raise httpx.LocalProtocolError(f"a line break or NUL in a header of the request ({names or 'its first line'})")
    return head + b"\r\n\r\n"


def _is_bad(value: bytes) -> bool:
    return any(mark in value for mark in (b"\r", b"\n", b"\0"))
