"""What calls cost: in US dollars, or in the credits of a plan. Pure; the time is an argument.

A price nobody configured, or usage nobody reported, is None and never 0. Where no time is given it is peak time, so
what is estimated or capped is never less than what is charged.
"""

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


def cost_usd(usage: Usage | None, price: Price | None, *, at: float | None = None, calls: int = 1) -> float | None:
    """Return what the provider will charge for `calls` calls of the time `at` (Unix seconds) that used this together.

    Reasoning is charged as output. Cached tokens without a price of their own cost what input does, those written for
    an hour what others that are written do. In credits where the price is in credits.
    """
    if usage is None or price is None:
        return None
    read = _or(price.cache_read, price.input)
    write = _or(price.cache_write, price.input)
    millionths = (
        usage.input * price.input
        + usage.cache_read * read
        + usage.cache_write_5m * write
        + usage.cache_write_1h * _or(price.cache_write_1h, write)
        + usage.completion_tokens * price.output
    )
    return (millionths / _PER_MILLION + calls * price.request) * factor_at(price, at)


def factor_at(price: Price, at: float | None) -> float:
    """Return by what the price is multiplied at that time."""
    if at is None or price.peak_hours is None or price.peak_hours.contain(at):
        return 1.0
    return price.off_peak_factor


def estimate_usd(prompt_tokens: int, answer_tokens: int, price: Price | None) -> float | None:
    """Return what a call of this size costs if nothing comes from a cache."""
    return cost_usd(Usage(input=prompt_tokens, output=answer_tokens), price)


def ceiling_usd(tokens: int, price: Price | None) -> float | None:
    """Return the most that one call of so many tokens can cost, whichever way they go."""
    if price is None:
        return None
    parts = (price.cache_read, price.cache_write, price.cache_write_1h)
    dearest = max(price.input, price.output, *(part or 0.0 for part in parts))
    return tokens * dearest / _PER_MILLION + price.request


def _or(price: float | None, otherwise: float) -> float:
    return otherwise if price is None else price
