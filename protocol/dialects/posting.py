"""What the requests of all dialects have in common: where they go, and their headers."""

from __future__ import annotations

from ..destination import url_of


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
