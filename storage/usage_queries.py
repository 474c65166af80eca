"""Usage since a time, added up by model, session, tree, day or profile."""

from __future__ import annotations

from typing import Final, cast

from ..protocol.messages.ledger import UsageBy, UsageQuery, UsageRow, UsageRows
from .database import Database, Row, Value
from .sums import SUMS, TREE, sums_of

_INT64: Final = (1 << 63) - 1
_DAY_S: Final = 86_400

# A session without a row is the top of its own tree; so is one in a circle of parents.
TOPS: Final = (
    " climb (session, at) AS (SELECT DISTINCT session, session FROM chosen WHERE session IS NOT NULL UNION"
    " SELECT climb.session, sessions.parent FROM climb CROSS JOIN sessions ON sessions.session = climb.at"
    " WHERE sessions.parent IS NOT NULL),"
    " tops (session, top) AS MATERIALIZED (SELECT session, max(at) FROM climb"
    " WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE session = climb.at AND parent IS NOT NULL) GROUP BY session)"
)
"""What `KEYS` of trees needs beside `chosen`, in a recursive WITH."""
_TOP: Final = "coalesce((SELECT top FROM tops WHERE tops.session = chosen.session), chosen.session)"
_PROFILE: Final = "coalesce(profile, (SELECT profile FROM sessions WHERE session = chosen.session))"
# Whole milliseconds; what is left over by the division of a negative time is a day earlier.
_DAY: Final = "date((started_at_ms + ?3 * 1000) / 1000.0, 'unixepoch')"

KEYS: Final[dict[UsageBy, str]] = {
    UsageBy.MODEL: "model",
    UsageBy.SESSION: "session",
    UsageBy.TREE: _TOP,
    UsageBy.DAY: _DAY,
    UsageBy.PROFILE: _PROFILE,
}
"""What a row of `chosen` is added up under; ?3 is what local time is ahead of UTC, in seconds."""
_BETWEEN: Final = "started_at_ms >= {0} AND started_at_ms < {1}"
_ALL: Final = f"chosen AS NOT MATERIALIZED (SELECT * FROM calls WHERE {_BETWEEN.format('?1', '?2')})"
_WITHIN: Final = (
    ", chosen AS NOT MATERIALIZED (SELECT calls.* FROM tree CROSS JOIN calls ON calls.session = tree.session"
    f" WHERE {_BETWEEN.format('?4', '?2')})"
)


def _statement(by: UsageBy, *, within: bool) -> str:
    begin = f"{TREE}{_WITHIN}" if within else f"WITH RECURSIVE {_ALL}"
    tops = f",{TOPS}" if by is UsageBy.TREE else ""
    provider = "provider" if by is UsageBy.MODEL else "NULL"
    groups = "1, 2" if by is UsageBy.MODEL else "1"
    order = "1" if by is UsageBy.DAY else "coalesce(sum(input_tokens + output_tokens), 0) DESC, min(id)"
    return (
        f"{begin}{tops} SELECT {KEYS[by]}, {provider}, {SUMS} FROM chosen GROUP BY {groups} ORDER BY {order} LIMIT ?5"
    )


USAGE: Final[dict[UsageBy, tuple[str, str]]] = {
    by: (_statement(by, within=False), _statement(by, within=True)) for by in UsageBy
}
"""Of everything, and of one tree."""
TOTAL: Final = (f"WITH {_ALL} SELECT {SUMS} FROM chosen", f"{TREE}{_WITHIN} SELECT {SUMS} FROM chosen")


def usage(database: Database, query: UsageQuery) -> UsageRows:
    """Return the sums, and their total; bounds beyond 64 bits are as good as none."""
    since, limit = _int64(query.since_ms), max(_int64(query.limit), 0)
    until = _int64(query.until_ms) if query.until_ms is not None else _INT64
    offset_s = min(max(query.utc_offset_s, -_DAY_S), _DAY_S)
    is_within = query.within is not None
    values: tuple[Value, ...] = (query.within if is_within else since, until, offset_s, since, limit)
    rows = database.execute(USAGE[query.by][is_within], values)
    total = database.execute(TOTAL[is_within], values[:4] if is_within else values[:2])
    return UsageRows(rows=tuple(_row(row) for row in rows), total=sums_of(total[0]))


def _row(row: Row) -> UsageRow:
    key, provider, *sums = row
    return UsageRow(key=cast("str | None", key), provider=cast("str | None", provider), sums=sums_of(tuple(sums)))


def _int64(number: int) -> int:
    return min(max(number, -_INT64), _INT64)
