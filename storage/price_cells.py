"""Calls as prices tell them apart, in pages of rows: each is read within a query's deadline, however many there are."""

from __future__ import annotations

from typing import Final, cast

from ..protocol.errors import UsageError
from ..protocol.messages.ledger import UsageBy
from ..protocol.messages.pricing import PriceCell, PriceCells, PriceCellsQuery
from ..protocol.peak_hours import QUARTER_S
from .database import Database, Row
from .usage_queries import KEYS, TOPS

_INT64: Final = (1 << 63) - 1
_DAY_S: Final = 86_400

FIRST: Final = "SELECT min(id) FROM calls WHERE started_at_ms >= ?"
LAST: Final = "SELECT count(*), max(id) FROM (SELECT id FROM calls WHERE id > ? ORDER BY id LIMIT ?)"

_CHOSEN: Final = (
    "WITH RECURSIVE chosen AS MATERIALIZED (SELECT * FROM calls WHERE id > ?4 AND id <= ?5"
    " AND started_at_ms >= ?1 AND status <> 'refused' AND input_tokens IS NOT NULL)"
)
_SUMS: Final = (
    "count(*), sum(input_tokens), sum(output_tokens), sum(cache_read_tokens), sum(cache_write_tokens),"
    " coalesce(sum(cache_write_1h_tokens), 0), sum(reasoning_tokens)"
)


def _statement(by: UsageBy) -> str:
    tops = f",{TOPS}" if by is UsageBy.TREE else ""
    return (
        f"{_CHOSEN}{tops} SELECT {KEYS[by]}, provider, model, started_at_ms / {QUARTER_S * 1000},"
        f" coalesce(cost_actual_nusd, cost_estimated_nusd) IS NOT NULL, {_SUMS}"
        " FROM chosen GROUP BY 1, 2, 3, 4, 5"
    )


CELLS: Final[dict[UsageBy, str]] = {by: _statement(by) for by in UsageBy}


def price_cells(database: Database, query: PriceCellsQuery) -> PriceCells:
    """Return the cells of the next page of rows; raises `UsageError` for a `by` that is not known."""
    try:
        by = UsageBy(query.by)
    except ValueError:
        raise UsageError(f"usage is not added up by {query.by}; valid: {', '.join(UsageBy)}") from None
    since, after = _int64(query.since_ms), max(_int64(query.after), 0)
    if after == 0 and since > 0:
        # Rows are in the order in which calls were recorded, so none before the first of that time is of it.
        after = cast("int | None", database.execute(FIRST, (since,))[0][0]) or _INT64
        after -= 1
    limit = max(_int64(query.limit), 1)
    count, upto = cast("tuple[int, int | None]", database.execute(LAST, (after, limit))[0])
    if upto is None:
        return PriceCells()
    offset_s = min(max(query.utc_offset_s, -_DAY_S), _DAY_S)
    rows = database.execute(CELLS[by], (since, None, offset_s, after, upto))
    return PriceCells(cells=tuple(_cell(row) for row in rows), upto=upto if count == limit else None)


def _cell(row: Row) -> PriceCell:
    key, provider, model, quarter, has_cost, *sums = row
    calls, read, written, cache_read, cache_write, for_an_hour, reasoning = cast("list[int]", sums)
    return PriceCell(
        key=cast("str | None", key),
        provider=cast(str, provider),
        model=cast(str, model),
        quarter=cast(int, quarter),
        has_cost=bool(has_cost),
        calls=calls,
        input_tokens=read,
        output_tokens=written,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        cache_write_1h_tokens=for_an_hour,
        reasoning_tokens=reasoning,
    )


def _int64(number: int) -> int:
    return min(max(number, -_INT64), _INT64)
