"""What a user can configure, as facts: parsed and checked once (`supervisor/config`), trusted everywhere else."""

from __future__ import annotations

from enum import StrEnum

import msgspec

ZAI_BASE_URL = "https://api.z.ai/api/coding/paas/v4"
"""Z.AI's coding plan in the OpenAI shape (docs.z.ai)."""

ZAI_MAX_CONCURRENT = 2
"""Calls in flight a coding-plan key bears: reports range from 1 to 10 and change within weeks; 2 is what held."""


class Dialect(StrEnum):
    """The wire format a provider speaks."""

    CHAT = "chat"


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of `providers`."""

    name: str
    base_url: str
    dialect: Dialect = Dialect.CHAT
    api_key_env: str | None = None
    """Name of the environment variable that holds the key; None for a provider that needs none."""
    max_concurrent: int | None = None
    """Calls in flight over all processes; None means that nobody counts (no budget)."""
    acquire_timeout_seconds: float = 0.0
    """How long a call waits for a slot before it fails locally; 0 waits without end."""


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The default model: a provider's name and the model's name there."""

    provider: str
    name: str


class FleetSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The `fleet` section."""

    workers: int = 2
    """Worker processes; 1 to 64."""
    max_agents: int = 1000
    """Agents alive at once in the whole fleet; more are refused."""
    max_spawn_depth: int = 3
    """How deep delegation may go below the first agent."""
    max_turns: int = 50
    """Model calls one agent may make for one goal."""
    listen: str | None = None
    """Where clients of other hosts come in, `tcp://HOST:PORT`; None lets nobody in."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of `config.yaml`, defaults filled in."""

    providers: dict[str, ProviderSettings] = {}
    model: ModelSettings | None = None
    fleet: FleetSettings = FleetSettings()


def builtin_providers() -> dict[str, ProviderSettings]:
    """Providers that exist without being configured."""
    zai = ProviderSettings(
        name="zai", base_url=ZAI_BASE_URL, api_key_env="ZAI_API_KEY", max_concurrent=ZAI_MAX_CONCURRENT
    )
    return {"zai": zai}
