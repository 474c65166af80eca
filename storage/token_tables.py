"""The tables of token counts: read what the sessions of a batch have, work the batch in, write what came out.

One read and one write for each session and route of a batch, however many records there are. Owned by the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

from ..protocol.ids import SessionId
from ..protocol.messages.tokens import Cost, Counts, Route, RouteUsage, Tokens
from .bulk import Bulk
from .database import Database, Row, Value
from .token_counts import SessionUsage, UsageRecord, apply, coalesce

_COUNTS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_calls",
)
_SUMS: Final = (*_COUNTS, "estimated_nano_usd", "actual_nano_usd", "cost_status", "cost_source")
_ROUTE: Final = ("provider", "base_url", "model", "mode")
SESSION_COLUMNS: Final = ("session", *_ROUTE, *_SUMS, "pricing_version")
ROUTE_COLUMNS: Final = ("session", *_ROUTE, "task", *_SUMS, "first_at_ms", "last_at_ms")


def _overwriting(key: tuple[str, ...], columns: tuple[str, ...]) -> str:
    rest = ", ".join(f"{column} = excluded.{column}" for column in columns if column not in key)
    return f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {rest}"


SESSIONS: Final = Bulk("session_tokens", SESSION_COLUMNS, _overwriting(("session",), SESSION_COLUMNS))
ROUTES: Final = Bulk("route_tokens", ROUTE_COLUMNS, _overwriting(("session", *_ROUTE, "task"), ROUTE_COLUMNS))

_SESSION: Final = f"SELECT {', '.join(SESSION_COLUMNS[1:])} FROM session_tokens WHERE session = ?"
_ROUTES: Final = f"SELECT {', '.join(ROUTE_COLUMNS[1:])} FROM route_tokens WHERE session = ?"
_MEANT: Final = "SELECT provider, model FROM sessions WHERE session = ?"


def write(database: Database, records: Iterable[UsageRecord]) -> None:
    """Work in sound records, within the transaction that is open; the sessions they belong to are written already."""
    before: dict[SessionId, SessionUsage] = {}
    after: dict[SessionId, SessionUsage] = {}
    for record in coalesce(records):
        session = record.session
        if session not in after:
            before[session] = after[session] = read(database, session)
        after[session] = apply(after[session], record)
    SESSIONS.insert(database, [_session_row(session, usage) for session, usage in after.items()])
    ROUTES.insert(
        database,
        [
            _route_row(session, row)
            for session, usage in after.items()
            for key, row in usage.routes.items()
            if before[session].routes.get(key) != row
        ],
    )


def read(database: Database, session: SessionId) -> SessionUsage:
    """Return what a session has; its route begins as the one it was opened with."""
    routes = [_route_of(row) for row in database.execute(_ROUTES, (session,))]
    keyed = {(row.provider, row.base_url, row.model, row.mode, row.task): row for row in routes}
    found = database.execute(_SESSION, (session,))
    if not found:
        provider, model = cast(
            "tuple[str | None, str | None]", (database.execute(_MEANT, (session,)) or [(None,) * 2])[0]
        )
        return SessionUsage(route=Route(provider=provider, model=model), routes=keyed)
    *columns, pricing_version = found[0]
    counts, cost = _sums_of(columns[4:], pricing_version)
    return SessionUsage(route=_route(columns[:4]), counts=counts, cost=cost, routes=keyed)


def tokens(database: Database, session: SessionId) -> Tokens:
    """Return the same as an answer."""
    usage = read(database, session)
    return Tokens(route=usage.route, counts=usage.counts, cost=usage.cost, routes=tuple(usage.routes.values()))


def _session_row(session: SessionId, usage: SessionUsage) -> Row:
    route = usage.route
    named = (route.provider, route.base_url, route.model, route.mode)
    return (session, *named, *_sums(usage.counts, usage.cost), usage.cost.pricing_version)


def _route_row(session: SessionId, row: RouteUsage) -> Row:
    named = (row.provider, row.base_url, row.model, row.mode, row.task)
    return (session, *named, *_sums(row.counts, row.cost), row.first_at_ms, row.last_at_ms)


def _sums(counts: Counts, cost: Cost) -> Row:
    return (
        counts.input,
        counts.output,
        counts.cache_read,
        counts.cache_write,
        counts.reasoning,
        counts.api_calls,
        cost.estimated_nano_usd,
        cost.actual_nano_usd,
        cost.status,
        cost.source,
    )


def _route_of(row: Row) -> RouteUsage:
    provider, base_url, model, mode, task, *sums, first_at_ms, last_at_ms = row
    counts, cost = _sums_of(sums, None)
    return RouteUsage(
        provider=cast(str, provider),
        base_url=cast(str, base_url),
        model=cast(str, model),
        mode=cast(str, mode),
        task=cast(str, task),
        counts=counts,
        cost=cost,
        first_at_ms=cast(int, first_at_ms),
        last_at_ms=cast(int, last_at_ms),
    )


def _route(columns: list[Value]) -> Route:
    provider, base_url, model, mode = cast("list[str | None]", columns)
    return Route(provider=provider, base_url=base_url, model=model, mode=mode)


def _sums_of(columns: list[Value], pricing_version: Value) -> tuple[Counts, Cost]:
    read_in, written, cache_read, cache_write, reasoning, api_calls, *costs = columns
    counts = Counts(
        input=cast(int, read_in),
        output=cast(int, written),
        cache_read=cast(int, cache_read),
        cache_write=cast(int, cache_write),
        reasoning=cast(int, reasoning),
        api_calls=cast(int, api_calls),
    )
    estimated, actual, status, source = costs
    cost = Cost(
        estimated_nano_usd=cast("int | None", estimated),
        actual_nano_usd=cast("int | None", actual),
        status=cast("str | None", status),
        source=cast("str | None", source),
        pricing_version=cast("str | None", pricing_version),
    )
    return counts, cost
