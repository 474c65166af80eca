"""What calls cost, in US dollars. Pure. A price nobody configured, or usage nobody reported, is None and never 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .settings import Price
from .usage import Usage

_PER_MILLION: Final = 1_000_000


def price_of(prices: Mapping[str, Price], model: str) -> Price | None:
    """Find a model's price; capitals make no difference, for providers make none."""
    exact = prices.get(model)
    if exact is not None:
        return exact
    return next((price for name, price in prices.items() if name.lower() == model.lower()), None)


def cost_usd(usage: Usage | None, price: Price | None) -> float | None:
    """Return what the provider will charge; reasoning is charged as output.

    Cached tokens without a price of their own cost what input does.
    """
    if usage is None or price is None:
        return None
    read = price.input if price.cache_read is None else price.cache_read
    write = price.input if price.cache_write is None else price.cache_write
    millionths = (
        usage.input * price.input
        + usage.cache_read * read
        + usage.cache_write * write
        + usage.completion_tokens * price.output
    )
    return millionths / _PER_MILLION


def estimate_usd(prompt_tokens: int, answer_tokens: int, price: Price | None) -> float | None:
    """Return what a call of this size costs if nothing comes from a cache."""
    return cost_usd(Usage(input=prompt_tokens, output=answer_tokens), price)


def ceiling_usd(tokens: int, price: Price | None) -> float | None:
    """Return the most that so many tokens can cost, whichever way they go."""
    if price is None:
        return None
    dearest = max(price.input, price.output, price.cache_read or 0.0, price.cache_write or 0.0)
    return tokens * dearest / _PER_MILLION
