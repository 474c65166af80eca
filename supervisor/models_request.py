"""Asking a provider what models it has: one small GET that costs no tokens, made as its calls are.

The same headers, proxy and certificates: what this tells of a key is true of calls. No text that comes from here holds
the key.
"""

from __future__ import annotations

from typing import Final

from ..actors.http.clients import Clients
from ..actors.quota_reading import MOST_BYTES, Got, get
from ..protocol.destination import url_of
from ..protocol.dialects.posting import OURS
from ..protocol.dialects.registry import wire_dialect
from ..protocol.settings import Dialect, ProviderSettings

ASK_S: Final = 15.0

_ENDPOINTS: Final = ("/chat/completions", "/messages", "/responses")


async def ask_models_at(
    clients: Clients,
    provider: ProviderSettings,
    url: str,
    secret: str,
    *,
    deadline_s: float = ASK_S,
    most_bytes: int = MOST_BYTES,
) -> Got | str:
    """The answer at `url`, which is the provider's, or in words why there is none. Without a key for an empty one."""
    secret = secret.strip()
    if not can_be_sent(secret):
        return "the key holds characters that no key has"
    headers = _headers(provider, secret)
    got = await get(clients, provider, url, headers=headers, deadline_s=deadline_s, most_bytes=most_bytes)
    return without(got, secret) if isinstance(got, str) else got


def can_be_sent(secret: str) -> bool:
    """Whether a header can hold it. No key fails at this; typographic quotes around one do."""
    return secret.isascii() and secret.isprintable()


def models_url(provider: ProviderSettings) -> str:
    """Where the provider lists its models; a query of its base URL stays."""
    base, query = _base(provider)
    if provider.dialect is Dialect.ANTHROPIC:
        base, query = f"{base.removesuffix('/v1')}/v1", f"{query}&limit=1000" if query else "limit=1000"
    return f"{base}/models?{query}" if query else f"{base}/models"


def server_root(provider: ProviderSettings) -> str:
    """Where a server has its own doors, beside those that others have too."""
    return _base(provider)[0].removesuffix("/v1")


def without(text: str, secret: str) -> str:
    """What somebody said, without the key."""
    return text.replace(secret, "[key]") if secret else text


def _base(provider: ProviderSettings) -> tuple[str, str]:
    base, _, query = url_of(provider.base_url).partition("?")
    base = base.rstrip("/")
    for endpoint in _ENDPOINTS:
        base = base.removesuffix(endpoint)
    return base, query


def _headers(provider: ProviderSettings, secret: str) -> dict[str, str]:
    told = {**wire_dialect(provider.dialect).headers(secret or None), "accept": "application/json"}
    del told["content-type"]  # there is none
    extra = ((name.lower(), value) for name, value in provider.extra_headers.items())
    return {**told, **{name: value for name, value in extra if name not in OURS}}
