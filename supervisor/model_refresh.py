"""Reading providers' lists of models: a small GET or two for each, with its key, to the host that gets its calls.

A provider that does not answer is a value; nothing here raises for what the other side does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from ..actors.http.clients import Clients
from ..actors.ports import Key, Keys
from ..actors.quota_reading import Got
from ..protocol.errors import NoKey
from ..protocol.model_listing import Listed, Listing, Unlisted, read_listing, read_props, window_of
from ..protocol.settings import ProviderSettings
from .model_cache import Learned
from .models_request import ask_models_at, models_url, server_root, without

MOST_BYTES: Final = 8_000_000
"""The largest known list has 1 MB."""

_NO_KEY: Final = Key(secret=None, fingerprint=None, label="none")

Ask: TypeAlias = Callable[[str], Awaitable[Got | str]]


@dataclass(frozen=True, slots=True)
class Refused:
    """It wants another key, or one at all."""

    status: int


async def ask_all(providers: Sequence[ProviderSettings], keys: Keys) -> list[Learned | Unlisted]:
    """Ask all of them at once; what each said, in the same order."""
    clients = Clients()
    try:
        return await asyncio.gather(*(ask_models(provider, keys, clients) for provider in providers))
    finally:
        await clients.close()


async def ask_models(provider: ProviderSettings, keys: Keys, clients: Clients) -> Learned | Unlisted:
    """What the provider says of its models now. Without a key it is asked all the same: many lists are public."""
    key, missing = _NO_KEY, None
    try:
        key = await keys.choose(provider)
    except NoKey as error:
        missing = str(error)
    found = await _asked(provider, key, clients)
    if isinstance(found, Refused) and (renewed := await keys.renew(provider, key)) is not None:
        found = await _asked(provider, renewed, clients)
    if isinstance(found, Listing):
        return Learned(base_url=provider.base_url, learned_at_ms=time.time_ns() // 1_000_000, models=found.models)
    if isinstance(found, Refused):
        wants = "does not take the key" if key.secret else "wants a key"
        found = Unlisted(problem=f"it {wants} (HTTP {found.status})")
    return found if missing is None else Unlisted(problem=f"{found.problem} ({missing})")


async def _asked(provider: ProviderSettings, key: Key, clients: Clients) -> Listing | Unlisted | Refused:
    secret = (key.secret or "").strip()

    async def ask(url: str) -> Got | str:
        return await ask_models_at(clients, provider, url, secret, most_bytes=MOST_BYTES)

    found = await _listing(provider, ask)
    return Unlisted(problem=without(found.problem, secret)) if isinstance(found, Unlisted) else found


async def _listing(provider: ProviderSettings, ask: Ask) -> Listing | Unlisted | Refused:
    got = await ask(models_url(provider))
    if isinstance(got, str):
        return Unlisted(problem=got)
    if got.status in (401, 403):
        return Refused(got.status)
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
    got = await ask(f"{server_root(provider)}/props")
    size = read_props(got.body) if isinstance(got, Got) and got.status == 200 else None
    if size is None or len(found.models) != 1:
        return found
    (one,) = found.models
    facts = msgspec.structs.replace(one.facts, context_window=window_of(size))
    return msgspec.structs.replace(found, models=(msgspec.structs.replace(one, facts=facts),))


async def _served_by_lm_studio(found: Listing, provider: ProviderSettings, ask: Ask) -> Listing:
    """The list in OpenAI's shape has names alone; the server's own has the windows."""
    got = await ask(f"{server_root(provider)}/api/v0/models")
    own = read_listing(got.body) if isinstance(got, Got) and got.status == 200 else None
    if not isinstance(own, Listing):
        return found
    known = {one.name: one for one in own.models}
    models: tuple[Listed, ...] = tuple(known.get(one.name, one) for one in found.models)
    return msgspec.structs.replace(found, models=models)
