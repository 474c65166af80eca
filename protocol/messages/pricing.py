"""Calls as prices tell them apart: by model, by quarter of an hour, and by whether a cost was recorded."""

from __future__ import annotations

import msgspec

from .base import Wire


class PriceCellsQuery(Wire, frozen=True, kw_only=True, tag="price_cells_query"):
    """Sums of calls with known usage among the next `limit` rows behind row `after`. Answered by `PriceCells`.

    `by` is one of `UsageBy`, in its words; all else is as in `UsageQuery`.
    """

    by: str
    since_ms: int = 0
    utc_offset_s: int = 0
    after: int = 0
    limit: int = 10_000


class PriceCell(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Calls of one key, provider and model that began within one quarter of an hour."""

    key: str | None
    provider: str
    model: str
    quarter: int
    """Which one, counted from the Unix epoch."""
    has_cost: bool = False
    """Whether what they cost was recorded, by the provider's bill or by the prices of that day."""
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0


class PriceCells(Wire, frozen=True, kw_only=True, tag="price_cells"):
    """`upto` is the last row that was looked at; None when there are no more. A key may come again on later pages."""

    cells: tuple[PriceCell, ...] = ()
    upto: int | None = None
