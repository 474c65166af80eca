"""What the requests of all dialects have in common: where they go, and their headers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from ..destination import url_of
from ..mending import Mend, Mends
from .ask import Ask, Traits

OURS: Final = frozenset(
    {
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "host",
        "proxy-authorization",
        "transfer-encoding",
        "user-agent",
        "x-api-key",
    }
)
"""Headers that no configuration replaces: who we are, what key we have, and how the body is to be read."""


def endpoint_at(base_url: str, path: str, *, but_for: str = "") -> str:
    """The URL to post to; one that names the path already is kept, and so is a query.

    `but_for` is what a base may end in that the path begins with.
    """
    base, mark, query = url_of(base_url).partition("?")
    base = base.rstrip("/")
    if not base.endswith(path):
        base = base.removesuffix(but_for) + path
    return f"{base}{mark}{query}"


def json_headers() -> dict[str, str]:
    """The headers of every request."""
    return {"content-type": "application/json", "accept": "text/event-stream, application/json"}


def bearer_headers(api_key: str | None) -> dict[str, str]:
    """The same with the key; none for authorisation without one."""
    key = (api_key or "").strip()
    return {**json_headers(), "authorization": f"Bearer {key}"} if key else json_headers()


def all_headers(headers: dict[str, str], ask: Ask, traits: Traits) -> dict[str, str]:
    """A dialect's headers and what the target is told beside them; configured ones win, but for `OURS`."""
    told = {traits.affinity_header: ask.affinity} if traits.affinity_header and ask.affinity else {}
    return {**headers, **_but_ours(told.items()), **_but_ours(traits.extra_headers)}


def with_fields(body: bytes, fields: dict[str, str]) -> bytes:
    """A JSON object with fields at its end whose names only the target's traits know."""
    if not fields:
        return body
    return body[:-1] + b"," + msgspec.json.encode(fields)[1:]


def cache_fields(ask: Ask, traits: Traits, mends: Mends) -> dict[str, str]:
    """The field that tells the target which conversation this is, if it has one."""
    if traits.affinity_field is None or ask.affinity is None or Mend.NO_CACHE_MARKS in mends.done:
        return {}
    return {traits.affinity_field: ask.affinity}


def _but_ours(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    lower = ((name.lower(), value) for name, value in headers)
    return {name: value for name, value in lower if name not in OURS}
