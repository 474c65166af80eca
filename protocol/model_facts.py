"""What is known of a model: windows, caps, abilities, prices. Pure."""

from __future__ import annotations

import msgspec

from .prices import price_of
from .settings import ModelOverride, Price, ProviderSettings


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model at one provider; None is what nobody knows."""

    context_window: int | None = None
    """Tokens, in and out."""
    max_output_tokens: int | None = None
    has_tools: bool | None = None
    has_images: bool | None = None
    has_reasoning: bool | None = None
    price: Price | None = None
    source: str | None = None
    """Where the table has it from; `config.yaml` if anything was overridden."""
    as_of: str | None = None
    """The day it was read there."""


def model_facts(provider: ProviderSettings, model: str) -> ModelFacts:
    """What is known of `model` there: the configuration before the shipped table."""
    own = provider.models.get(model) or ModelOverride()
    return ModelFacts(
        context_window=own.context_window,
        max_output_tokens=own.max_output_tokens,
        price=price_of(provider.prices, model),
    )
