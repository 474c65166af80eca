"""The models of a provider with everything that is known of them: the configuration, its own word, the table. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from ..protocol.model_facts import CONFIGURED, ModelFacts, laid_over, names_at, override_of, table_facts
from ..protocol.model_listing import Listed
from ..protocol.prices import price_of
from ..protocol.settings import ModelOverride, ProviderSettings, Settings
from .model_cache import Learned


class ModelLine(msgspec.Struct, frozen=True, kw_only=True):
    """One model at one provider."""

    name: str
    facts: ModelFacts
    is_listed: bool | None
    """Whether the provider listed it when it was asked; None if it never was."""
    is_configured: bool
    """Whether config.yaml names it."""


def model_lines(settings: Settings, provider: ProviderSettings, learned: Learned | None, *, at: str) -> list[ModelLine]:
    """All of them by name; `at` is where the provider lists its models."""
    configured = configured_names(settings, provider)
    told = {one.name.lower(): one for one in (learned.models if learned is not None else ())}
    names = [*configured, *(one.name for one in told.values()), *names_at(provider.base_url)]
    spelled = {name.lower(): name for name in reversed(names)}
    known = {name.lower() for name in configured}
    return [
        ModelLine(
            name=name,
            facts=_facts(provider, name, told.get(lower), learned, at),
            is_listed=lower in told if learned is not None else None,
            is_configured=lower in known,
        )
        for lower, name in sorted(spelled.items())
    ]


def configured_names(settings: Settings, provider: ProviderSettings) -> list[str]:
    """The models that config.yaml names for this provider, each once."""
    model = settings.model
    chosen = (
        [] if model is None else [(model.provider, model.name), *((one.provider, one.name) for one in model.fallbacks)]
    )
    sections = (provider.models, provider.prices, provider.credits, provider.model_limits)
    names = [*(name for owner, name in chosen if owner == provider.name), *(name for part in sections for name in part)]
    return list(dict.fromkeys(names))


def _facts(provider: ProviderSettings, model: str, told: Listed | None, learned: Learned | None, at: str) -> ModelFacts:
    facts = table_facts(provider.base_url, model)
    if told is not None and learned is not None:
        facts = _as_told(facts, told, at, as_of=_day(learned.learned_at_ms))
    own = override_of(provider.models, model)
    if own is not None and own != ModelOverride():
        facts = laid_over(facts, own, source=CONFIGURED)
    price = price_of(provider.prices, model)
    return facts if price is None else msgspec.structs.replace(facts, price=price, price_source=CONFIGURED)


def _as_told(facts: ModelFacts, told: Listed, at: str, *, as_of: str | None) -> ModelFacts:
    if told.facts != ModelOverride():
        facts = laid_over(facts, told.facts, source=at, as_of=as_of)
    if told.price is not None:
        facts = msgspec.structs.replace(facts, price=told.price, price_source=at)
    return facts


def _day(unix_ms: int) -> str | None:
    try:
        return datetime.fromtimestamp(unix_ms / 1000, UTC).date().isoformat()
    except (OverflowError, ValueError, OSError):
        return None
