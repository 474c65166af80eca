"""Sums over calls that stay unknown where nothing is known, with what they cover; and the sessions below a session.

SQL's own sum of nothing but NULLs is NULL: that is kept. A refused call cost nothing and is in no coverage.
"""

from __future__ import annotations

from typing import Final, cast

from ..protocol.messages.ledger import UsageSums
from .database import Row
from .rows import usd
from .schema import TOKEN_COLUMNS

_TAKEN: Final = "FILTER (WHERE status <> 'refused'"

SUMS: Final = (
    f"count(*) {_TAKEN}), count(*) {_TAKEN} AND input_tokens IS NULL), count(*) FILTER (WHERE status = 'refused'),"
    f" {', '.join(f'sum({column})' for column in TOKEN_COLUMNS)},"
    " sum(coalesce(cost_actual_nusd, cost_estimated_nusd)),"
    f" count(coalesce(cost_actual_nusd, cost_estimated_nusd)) {_TAKEN}),"
    " sum(cost_estimated_nusd), sum(cost_actual_nusd)"
)
"""What `sums_of` reads, over rows of calls."""

# UNION, not UNION ALL: a circle of parents ends.
TREE: Final = (
    "WITH RECURSIVE tree (session) AS (SELECT ?1 UNION"
    " SELECT sessions.session FROM tree CROSS JOIN sessions ON sessions.parent = tree.session)"
)
"""The session ?1 and all below it; begins a statement."""


def sums_of(row: Row) -> UsageSums:
    """Read `SUMS`."""
    calls, unknown, refused, read, written, cache_read, cache_write, reasoning, cost, known, estimated, actual = row
    return UsageSums(
        calls=cast(int, calls),
        unknown_calls=cast(int, unknown),
        refused_calls=cast(int, refused),
        input_tokens=cast("int | None", read),
        output_tokens=cast("int | None", written),
        cache_read_tokens=cast("int | None", cache_read),
        cache_write_tokens=cast("int | None", cache_write),
        reasoning_tokens=cast("int | None", reasoning),
        cost_usd=usd(cost),
        cost_known_calls=cast(int, known),
        cost_estimated_usd=usd(estimated),
        cost_actual_usd=usd(actual),
    )
