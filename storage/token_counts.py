"""Token accounting: what a count makes of a session's sums, and which counts may be summed before they are written.

Pure. Two counts of one session that follow each other merge if the sums come out the same, row by row: both are
increments, of one route with the same words about their cost, and both or neither make a row of that route. A total
merges with nothing and nothing passes it; neither does a chosen route.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from ..protocol.ids import SessionId
from ..protocol.messages.tokens import Cost, Counts, Route, RouteChosen, RouteUsage, TokensCounted

UNKNOWN_MODEL: Final = "unknown"
MOST: Final = 1 << 40
"""A number beyond this, or below 0, is no count. So a sum takes a million of the largest before it is at its bound."""
MOST_IN_ALL: Final = 1 << 62

_encoder = msgspec.msgpack.Encoder()

UsageRecord = TokensCounted | RouteChosen
RouteKey = tuple[str, str, str, str, str]
"""Provider, base URL, model, mode and task, empty where they are not known."""


class SessionUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of one session."""

    route: Route = Route()
    counts: Counts = Counts()
    cost: Cost = Cost()
    routes: Mapping[RouteKey, RouteUsage] = {}


def is_sound(record: UsageRecord) -> bool:
    """Whether its numbers can be added up, and all of it can be written down."""
    try:
        _encoder.encode(record)
    except (OverflowError, UnicodeEncodeError):
        return False
    if isinstance(record, RouteChosen):
        return True
    numbers = (*msgspec.structs.astuple(record.counts), *_costs(record.cost))
    is_bounded = all(0 <= number <= MOST for number in numbers if number is not None)
    is_dated = abs(record.at_ms) < MOST_IN_ALL and abs(record.since_ms or 0) < MOST_IN_ALL
    return is_bounded and is_dated and not (record.is_total and record.task)


def coalesce(records: Iterable[UsageRecord]) -> list[UsageRecord]:
    """Sum what may be summed; the order within each session stays."""
    merged: list[UsageRecord] = []
    last: dict[SessionId, int] = {}
    for record in records:
        at = last.get(record.session)
        before = merged[at] if at is not None else None
        if at is not None and isinstance(before, TokensCounted) and _may_merge(before, record):
            assert isinstance(record, TokensCounted), "only counts merge"
            merged[at] = _sum(before, record)
        else:
            last[record.session] = len(merged)
            merged.append(record)
    return merged


def apply(usage: SessionUsage, record: UsageRecord) -> SessionUsage:
    """The session's sums after this record, which is sound."""
    match record:
        case RouteChosen():
            return msgspec.structs.replace(usage, route=_filled(record.route, usage.route))
        case TokensCounted(task=task) if task:
            return _with_route(usage, record, Route())
        case TokensCounted(is_total=True):
            return _claimed(usage, record, counts=record.counts, cost=_replaced(usage.cost, record.cost))
        case TokensCounted():
            counts, cost = _added(usage.counts, record.counts), _spent(usage.cost, record.cost)
            after = _claimed(usage, record, counts=counts, cost=cost)
            return _with_route(after, record, after.route) if _makes_row(record) else after


def _may_merge(one: TokensCounted, other: UsageRecord) -> bool:
    if not isinstance(other, TokensCounted) or one.is_total or other.is_total:
        return False
    return _kind(one) == _kind(other) and _makes_row(one) == _makes_row(other)


def _kind(record: TokensCounted) -> tuple[object, ...]:
    cost = record.cost
    return (record.task, record.route, cost.status, cost.source, cost.pricing_version)


def _sum(one: TokensCounted, other: TokensCounted) -> TokensCounted:
    cost = msgspec.structs.replace(
        one.cost,
        estimated_nano_usd=_plus(one.cost.estimated_nano_usd, other.cost.estimated_nano_usd),
        actual_nano_usd=_plus(one.cost.actual_nano_usd, other.cost.actual_nano_usd),
    )
    since_ms = one.at_ms if one.since_ms is None else one.since_ms
    return msgspec.structs.replace(other, since_ms=since_ms, counts=_added(one.counts, other.counts), cost=cost)


def _claimed(usage: SessionUsage, record: TokensCounted, *, counts: Counts, cost: Cost) -> SessionUsage:
    """The new sums, and the route: the first one that was accounted, after which only gaps are filled."""
    named, route = record.route, usage.route
    if not _is_accounted(record):
        named = Route()
    is_other = (route.model, route.provider) != (named.model, named.provider)
    if usage.counts.api_calls == 0 and named.model and named.provider and is_other:
        route = named
    return msgspec.structs.replace(usage, route=_filled(route, named), counts=counts, cost=cost)


def _with_route(usage: SessionUsage, record: TokensCounted, inherited: Route) -> SessionUsage:
    named = record.route
    key: RouteKey = (
        named.provider or inherited.provider or "",
        named.base_url or inherited.base_url or "",
        named.model or inherited.model or UNKNOWN_MODEL,
        named.mode or inherited.mode or "",
        record.task or "",
    )
    since_ms = record.at_ms if record.since_ms is None else record.since_ms
    before = usage.routes.get(key)
    counts = _added(before.counts if before else Counts(), record.counts)
    cost = _spent(before.cost if before else Cost(actual_nano_usd=0), record.cost)
    provider, base_url, model, mode, task = key
    row = RouteUsage(
        provider=provider,
        base_url=base_url,
        model=model,
        mode=mode,
        task=task,
        counts=counts,
        cost=msgspec.structs.replace(cost, pricing_version=None),
        first_at_ms=before.first_at_ms if before else since_ms,
        last_at_ms=record.at_ms,
    )
    return msgspec.structs.replace(usage, routes={**usage.routes, key: row})


def _filled(route: Route, other: Route) -> Route:
    """`route`, with what it does not know from `other`."""
    pairs = zip(msgspec.structs.astuple(route), msgspec.structs.astuple(other), strict=True)
    provider, base_url, model, mode = (second if first is None else first for first, second in pairs)
    return Route(provider=provider, base_url=base_url, model=model, mode=mode)


def _is_accounted(record: TokensCounted) -> bool:
    return any(msgspec.structs.astuple(record.counts)) or any(_costs(record.cost))


def _makes_row(record: TokensCounted) -> bool:
    return any(msgspec.structs.astuple(record.counts)) or bool(record.cost.estimated_nano_usd) or bool(record.task)


def _added(one: Counts, other: Counts) -> Counts:
    return Counts(
        input=_bounded(one.input + other.input),
        output=_bounded(one.output + other.output),
        cache_read=_bounded(one.cache_read + other.cache_read),
        cache_write=_bounded(one.cache_write + other.cache_write),
        reasoning=_bounded(one.reasoning + other.reasoning),
        api_calls=_bounded(one.api_calls + other.api_calls),
    )


def _spent(before: Cost, cost: Cost) -> Cost:
    """After an increment. An estimate of nothing is 0 from then on; what was really paid stays unknown until it is."""
    estimated = _bounded((before.estimated_nano_usd or 0) + (cost.estimated_nano_usd or 0))
    return _told(before, cost, estimated=estimated, actual=_plus(before.actual_nano_usd, cost.actual_nano_usd))


def _replaced(before: Cost, cost: Cost) -> Cost:
    """After a total."""
    actual = before.actual_nano_usd if cost.actual_nano_usd is None else cost.actual_nano_usd
    return _told(before, cost, estimated=cost.estimated_nano_usd or 0, actual=actual)


def _told(before: Cost, cost: Cost, *, estimated: int, actual: int | None) -> Cost:
    return Cost(
        estimated_nano_usd=estimated,
        actual_nano_usd=actual,
        status=before.status if cost.status is None else cost.status,
        source=before.source if cost.source is None else cost.source,
        pricing_version=before.pricing_version if cost.pricing_version is None else cost.pricing_version,
    )


def _plus(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else _bounded(one + other)


def _bounded(number: int) -> int:
    return min(number, MOST_IN_ALL)


def _costs(cost: Cost) -> tuple[int | None, int | None]:
    return (cost.estimated_nano_usd, cost.actual_nano_usd)
