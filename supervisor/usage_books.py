"""A report of usage out of the books: one query for the sums, and pages of cells for what has to be priced."""

from __future__ import annotations

from ..protocol.messages.ledger import UsageBy, UsageQuery, UsageRows, UsageSums
from ..protocol.messages.pricing import PriceCell, PriceCells, PriceCellsQuery
from ..protocol.settings import Settings
from .books import Books
from .usage_costs import has_prices, price_cells
from .usage_report import UsageReport, report


def read_report(
    books: Books | None, settings: Settings, *, by: UsageBy, since_ms: int | None, utc_offset_s: int, limit: int
) -> UsageReport:
    """Ask for everything a report needs; without books it is empty. Raises what `Books.ask` does."""
    if books is None:
        return report(UsageRows(total=UsageSums(calls=0)), {}, by=by, since_ms=since_ms, limit=limit)
    query = UsageQuery(by=by, since_ms=since_ms or 0, utc_offset_s=utc_offset_s, limit=limit + 1)
    found = books.ask(query, UsageRows)
    cells = _cells(books, query) if has_prices(settings) else []
    return report(
        found, price_cells(cells, settings, by_model=by is UsageBy.MODEL), by=by, since_ms=since_ms, limit=limit
    )


def _cells(books: Books, query: UsageQuery) -> list[PriceCell]:
    cells: list[PriceCell] = []
    upto: int | None = 0
    while upto is not None:
        page = books.ask(
            PriceCellsQuery(by=query.by.value, since_ms=query.since_ms, utc_offset_s=query.utc_offset_s, after=upto),
            PriceCells,
        )
        cells += page.cells
        upto = page.upto
    return cells
