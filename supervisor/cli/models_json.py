"""Models as docs/models.md describes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..model_lines import ModelLine
    from .models_words import Shown


def as_json(shown: Sequence[Shown], *, home: str) -> dict[str, Any]:
    """The whole report."""
    return {"home": home, "providers": [_provider(one) for one in shown]}


def _provider(one: Shown) -> dict[str, Any]:
    return {
        "provider": one.provider,
        "base_url": one.base_url,
        "learned_at_ms": one.learned_at_ms,
        "problem": one.problem,
        "models": [_model(line) for line in one.models],
    }


def _model(line: ModelLine) -> dict[str, Any]:
    facts, price = line.facts, line.facts.price
    return {
        "model": line.name,
        "listed": line.is_listed,
        "configured": line.is_configured,
        "context_window_tokens": facts.context_window,
        "max_output_tokens": facts.max_output_tokens,
        "has_tools": facts.has_tools,
        "has_images": facts.has_images,
        "has_reasoning": facts.has_reasoning,
        "source": facts.source,
        "as_of": facts.as_of,
        "input_usd_per_million": price.input if price is not None else None,
        "output_usd_per_million": price.output if price is not None else None,
        "cache_read_usd_per_million": price.cache_read if price is not None else None,
        "cache_write_usd_per_million": price.cache_write if price is not None else None,
        "price_source": facts.price_source,
    }
