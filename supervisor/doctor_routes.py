"""What can be told of where calls go without making one: dialects, fallbacks, certificates."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..protocol.destination import is_zai, place_of
from ..protocol.settings import ZAI_BASE_URL, Dialect, Fallback, ModelSettings, ProviderSettings, Settings
from .doctor_findings import Finding, fail, ok, warn

ROUTES: Final = "routes"

_ENDINGS: Final = {
    "/chat/completions": Dialect.CHAT,
    "/messages": Dialect.ANTHROPIC,
    "/anthropic": Dialect.ANTHROPIC,
    "/anthropic/v1": Dialect.ANTHROPIC,
    "/responses": Dialect.RESPONSES,
}
"""What a URL says of the dialect that is spoken there."""


def check_routes(settings: Settings, configured: frozenset[str]) -> Iterator[Finding]:
    """Look at the dialect of each provider in use, at what it needs of files, and at the chain of fallbacks."""
    in_chain = {fallback.provider for fallback in settings.model.fallbacks} if settings.model else set()
    default = {settings.model.provider} if settings.model else set()
    for name in (name for name in settings.providers if name in configured | in_chain | default):
        provider = settings.providers[name]
        yield from _check_dialect(provider)
        yield from _check_files(provider)
    if settings.model is not None and settings.model.fallbacks:
        yield _check_chain(settings.model)


def _check_dialect(provider: ProviderSettings) -> Iterator[Finding]:
    place = place_of(provider.base_url)
    path = place.path.rstrip("/") if place is not None else ""
    said = next((dialect for ending, dialect in _ENDINGS.items() if path.endswith(ending)), None)
    if said is None and is_zai(provider.base_url) and "/paas/" in path:
        said = Dialect.CHAT
    if said is None or said is provider.dialect:
        return
    to_do = f"`covey config set providers.{provider.name}.dialect {said.value}`"
    if is_zai(provider.base_url):
        to_do += f", or its base_url to {ZAI_BASE_URL} for chat"
    yield fail(ROUTES, f"{provider.name} speaks {provider.dialect.value} at a URL for {said.value}", to_do)


def _check_files(provider: ProviderSettings) -> Iterator[Finding]:
    for field in ("ca_bundle", "client_cert", "client_key"):
        path = getattr(provider, field)
        if path is not None and not os.access(Path(path).expanduser(), os.R_OK):
            to_do = f"correct providers.{provider.name}.{field}, or put the file there"
            yield fail(ROUTES, f"{provider.name}: {field} {path} cannot be read", to_do)


def _check_chain(model: ModelSettings) -> Finding:
    first = Fallback(provider=model.provider, name=model.name)
    chain = " → ".join(f"{one.provider}/{one.name}" for one in (first, *model.fallbacks))
    if first in model.fallbacks:
        return warn(ROUTES, f"the default model is its own fallback: {chain}", "take it out of model.fallbacks")
    return ok(ROUTES, f"calls go to {chain}")
