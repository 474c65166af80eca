"""What usage cost by the prices of config.yaml where nothing was recorded with the call, and what a plan counts.

Pure. Prices of today are put on calls of then; a cost that was recorded stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..protocol.messages.pricing import PriceCell
from ..protocol.peak_hours import QUARTER_S
from ..protocol.prices import cost_usd, price_of
from ..protocol.settings import Price, ProviderSettings, Settings
from ..protocol.usage import Usage

Key = tuple[str | None, str | None]
"""A row's key and, by model only, its provider."""


@dataclass(slots=True)
class Priced:
    """What prices add to a row. Owned by who adds it up."""

    cost_usd: float | None = None
    cost_calls: int = 0
    credits: float | None = None
    credit_calls: int = 0

    def add(self, cell: PriceCell, provider: ProviderSettings) -> None:
        """Price one cell; without a price it adds nothing."""
        cost = None if cell.has_cost else _cost(cell, provider.prices)
        counted = _cost(cell, provider.credits)
        if cost is not None:
            self.cost_usd, self.cost_calls = (self.cost_usd or 0.0) + cost, self.cost_calls + cell.calls
        if counted is not None:
            self.credits, self.credit_calls = (self.credits or 0.0) + counted, self.credit_calls + cell.calls


def has_prices(settings: Settings) -> bool:
    """Whether there is anything to price with."""
    return any(provider.prices or provider.credits for provider in settings.providers.values())


def price_cells(cells: Iterable[PriceCell], settings: Settings, *, by_model: bool) -> dict[Key, Priced]:
    """What each row gets; rows that get nothing are missing. A provider that is not configured has no prices."""
    found: dict[Key, Priced] = {}
    for cell in cells:
        provider = settings.providers.get(cell.provider)
        if provider is not None:
            key = (cell.key, cell.provider if by_model else None)
            found.setdefault(key, Priced()).add(cell, provider)
    return {key: priced for key, priced in found.items() if priced != Priced()}


def total_of(priced: Mapping[Key, Priced]) -> Priced:
    """All rows together."""
    rows = priced.values()
    costs, counts = [row.cost_usd for row in rows], [row.credits for row in rows]
    return Priced(
        cost_usd=_sum(costs),
        cost_calls=sum(row.cost_calls for row in rows),
        credits=_sum(counts),
        credit_calls=sum(row.credit_calls for row in rows),
    )


def _cost(cell: PriceCell, prices: Mapping[str, Price]) -> float | None:
    usage = Usage(
        input=cell.input_tokens,
        output=cell.output_tokens,
        cache_read=cell.cache_read_tokens,
        cache_write=cell.cache_write_tokens,
        cache_write_1h=cell.cache_write_1h_tokens,
        reasoning=cell.reasoning_tokens,
    )
    return cost_usd(usage, price_of(prices, cell.model), at=cell.quarter * QUARTER_S, calls=cell.calls)


def _sum(parts: Iterable[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None
