"""Asking providers for their models: a small GET or two, with the provider's key, to the host that gets its calls.

A provider that does not answer is a value; nothing here raises for what the other side does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from ..actors.ports import Keys
from ..actors.quota_reading import Got, get
from ..protocol.destination import url_of
from ..protocol.dialects.anthropic import VERSION
from ..protocol.errors import NoKey
from ..protocol.model_listing import Listed, Listing, Unlisted, read_listing, read_props, window_of
from ..protocol.settings import Dialect, ProviderSettings
from .model_cache import Learned

ASK_S: Final = 15.0
MOST_BYTES: Final = 8_000_000
"""The largest known list has 1 MB."""

_ENDPOINTS: Final = ("/chat/completions", "/messages", "/responses")

Ask: TypeAlias = Callable[[str], Awaitable[Got | str]]


async def ask_all(providers: Sequence[ProviderSettings], keys: Keys) -> list[Learned | Unlisted]:
    """Ask all of them at once; what each said, in the same order."""
    return await asyncio.gather(*(ask_models(provider, keys) for provider in providers))


async def ask_models(provider: ProviderSettings, keys: Keys) -> Learned | Unlisted:
    """What the provider says of its models now. Without a key it is asked all the same: many lists are public."""
    try:
        secret = ((await keys.choose(provider)).secret or "").strip()
        missing = None
    except NoKey as error:
        secret, missing = "", str(error)
    if not (secret.isascii() and secret.isprintable()):
        return Unlisted(problem="its key holds characters that no key has")

    async def ask(url: str) -> Got | str:
        return await get(url, headers=_headers(provider, secret), deadline_s=ASK_S, most_bytes=MOST_BYTES)

    found = await _listing(provider, ask)
    if isinstance(found, Unlisted):
        problem = found.problem.replace(secret, "[key]") if secret else found.problem
        return Unlisted(problem=problem if missing is None else f"{problem} ({missing})")
    return Learned(base_url=provider.base_url, learned_at_ms=time.time_ns() // 1_000_000, models=found.models)


async def _listing(provider: ProviderSettings, ask: Ask) -> Listing | Unlisted:
    got = await ask(models_url(provider))
    if isinstance(got, str):
        return Unlisted(problem=got)
    if got.status in (401, 403):
        return Unlisted(problem=f"it does not take the key (HTTP {got.status})")
    if got.status != 200:
        return Unlisted(problem=f"it has no list of models there (HTTP {got.status})")
    if len(got.body) >= MOST_BYTES:
        return Unlisted(problem=f"its list has more than {MOST_BYTES} bytes")
    found = read_listing(got.body)
    if isinstance(found, Unlisted):
        return found
    match found.server:
        case "llamacpp":
            return await _served_by_llama(found, provider, ask)
        case "organization_owner":
            return await _served_by_lm_studio(found, provider, ask)
        case _:
            return found


async def _served_by_llama(found: Listing, provider: ProviderSettings, ask: Ask) -> Listing:
    """The list says what the model was trained with; a call has what the server was started with, by slots."""
    got = await ask(f"{_root(provider)}/props")
    size = read_props(got.body) if isinstance(got, Got) and got.status == 200 else None
    if size is None or len(found.models) != 1:
        return found
    (one,) = found.models
    facts = msgspec.structs.replace(one.facts, context_window=window_of(size))
    return msgspec.structs.replace(found, models=(msgspec.structs.replace(one, facts=facts),))


async def _served_by_lm_studio(found: Listing, provider: ProviderSettings, ask: Ask) -> Listing:
    """The list in OpenAI's shape has names alone; the server's own has the windows."""
    got = await ask(f"{_root(provider)}/api/v0/models")
    own = read_listing(got.body) if isinstance(got, Got) and got.status == 200 else None
    if not isinstance(own, Listing):
        return found
    known = {one.name: one for one in own.models}
    models: tuple[Listed, ...] = tuple(known.get(one.name, one) for one in found.models)
    return msgspec.structs.replace(found, models=models)


def models_url(provider: ProviderSettings) -> str:
    """Where the provider lists its models."""
    base = _base(provider)
    if provider.dialect is Dialect.ANTHROPIC:
        return f"{base.removesuffix('/v1')}/v1/models?limit=1000"
    return f"{base}/models"


def _base(provider: ProviderSettings) -> str:
    base = url_of(provider.base_url).partition("?")[0].rstrip("/")
    for endpoint in _ENDPOINTS:
        base = base.removesuffix(endpoint)
    return base


def _root(provider: ProviderSettings) -> str:
    return _base(provider).removesuffix("/v1")


def _headers(provider: ProviderSettings, secret: str) -> dict[str, str]:
    headers = {**provider.extra_headers, "accept": "application/json"}
    if provider.dialect is Dialect.ANTHROPIC:
        headers["anthropic-version"] = VERSION
    if not secret:
        return headers
    if provider.dialect is Dialect.ANTHROPIC:
        headers["x-api-key"] = secret
        # As for calls: Anthropic itself takes this one for a login.
        return headers if secret.startswith("sk-ant-") else {**headers, "authorization": f"Bearer {secret}"}
    return {**headers, "authorization": f"Bearer {secret}"}
