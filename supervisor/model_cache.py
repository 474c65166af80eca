"""What providers said of their models, kept in the home between runs: `models/<provider>.json`, one file for each.

The cache is a hint and never a reason to fail: a file that cannot be read, or was written for another base URL, is left
as it is and counts for nothing, with a warning.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import msgspec

from ..protocol.model_facts import override_of
from ..protocol.model_listing import Listed
from ..protocol.settings import ModelOverride, ProviderSettings, Settings
from ..storage.logs import log_event
from .home import Home, make_private, replace_file

log = logging.getLogger(__name__)

MOST_BYTES: Final = 16_000_000


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """What one provider said, and when (Unix milliseconds)."""

    base_url: str
    learned_at_ms: int
    models: tuple[Listed, ...]


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the cache that counts for nothing, and why."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}; it is ignored until `covey models --refresh` writes it anew"


def cache_file(home: Home, provider: str) -> Path:
    """Where the provider's models are kept."""
    return home.path / "models" / f"{provider}.json"


def read_learned(home: Home, provider: ProviderSettings) -> Learned | Unreadable | None:
    """What was learned of the provider's models; None if nobody asked it yet, or only at another URL. Never raises."""
    path = cache_file(home, provider.name)
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            return Unreadable(path=str(path), problem=f"larger than {MOST_BYTES} bytes")
        found = msgspec.json.decode(content, type=Learned)
    except FileNotFoundError:
        return None
    except OSError as error:
        return Unreadable(path=str(path), problem=f"cannot be read: {error.strerror}")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return Unreadable(path=str(path), problem=f"is damaged: {error}")
    return found if found.base_url == provider.base_url else None


def keep_learned(home: Home, provider: str, learned: Learned) -> None:
    """Keep it, in one step; raises `HomeError` and the old file is as it was."""
    path = cache_file(home, provider)
    home.create()
    make_private(path.parent)
    replace_file(path, msgspec.json.encode(learned) + b"\n", mode=0o600)


def with_learned(settings: Settings, home: Home) -> Settings:
    """`settings` with what providers said of their models below what the configuration says of them.

    Prices are not taken over: what calls cost is counted by configured prices alone.
    """
    providers = {name: _with_learned(provider, home) for name, provider in settings.providers.items()}
    return msgspec.structs.replace(settings, providers=providers)


def _with_learned(provider: ProviderSettings, home: Home) -> ProviderSettings:
    match read_learned(home, provider):
        case None:
            return provider
        case Unreadable(path=path, problem=problem):
            log_event(log, "model_cache_unread", level=logging.WARNING, path=path, problem=problem)
            return provider
        case Learned(models=models):
            told = {one.name: one.facts for one in models if one.facts != ModelOverride()}
            merged = {name: _below(facts, override_of(provider.models, name)) for name, facts in told.items()}
            kept = {name: own for name, own in provider.models.items() if override_of(merged, name) is None}
            return msgspec.structs.replace(provider, models={**kept, **merged})


def _below(told: ModelOverride, own: ModelOverride | None) -> ModelOverride:
    """`own` where it says something, else what was told."""
    if own is None:
        return told
    said = {field: value for field in own.__struct_fields__ if (value := getattr(own, field)) is not None}
    return msgspec.structs.replace(told, **said)
