"""Tokens and costs that a sender accounts by itself, summed per session and per route, beside the rows of calls.

Costs are whole billionths of a dollar: sums of them are the same in any grouping. Times are Unix milliseconds.
"""

from __future__ import annotations

import msgspec

from ..ids import SessionId
from .base import Wire


class Route(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where calls go, and how they are paid for. None is not known."""

    provider: str | None = None
    base_url: str | None = None
    model: str | None = None
    mode: str | None = None
    """How the provider bills it, for example `subscription`."""


class Counts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Numbers that are added up."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    api_calls: int = 0


class Cost(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was spent, and how that is known. None says nothing: it never replaces what is known."""

    estimated_nano_usd: int | None = None
    actual_nano_usd: int | None = None
    status: str | None = None
    source: str | None = None
    pricing_version: str | None = None


class TokensCounted(Wire, frozen=True, kw_only=True, tag="tokens_counted"):
    """What a session used since the last such record; with `is_total`, all that it has used so far.

    With a `task` it is the work of an auxiliary call (a summary, a title): a row of its own route, which is in no sum
    of the session and takes nothing from the session's route. There are no totals of those.
    """

    session: SessionId
    at_ms: int
    since_ms: int | None = None
    """When the first of several counts was made that this one sums up; None if it is one."""
    is_total: bool = False
    task: str | None = None
    route: Route = Route()
    counts: Counts = Counts()
    cost: Cost = Cost()


class RouteChosen(Wire, frozen=True, kw_only=True, tag="route_chosen"):
    """From here on the session is meant to go this way; what is None in `route` stays as it is."""

    session: SessionId
    route: Route
    at_ms: int


class RouteUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The sums of one route of a session; `task` is empty for the session's own calls."""

    provider: str
    base_url: str
    model: str
    mode: str
    task: str
    counts: Counts
    cost: Cost
    first_at_ms: int
    last_at_ms: int


class TokensQuery(Wire, frozen=True, kw_only=True, tag="tokens_query"):
    """The sums of one session. Answered by `Tokens`."""

    session: SessionId


class Tokens(Wire, frozen=True, kw_only=True, tag="tokens"):
    """What was accounted with `TokensCounted`. The session's sums may exceed those of its routes: totals have none."""

    route: Route = Route()
    counts: Counts = Counts()
    cost: Cost = Cost()
    routes: tuple[RouteUsage, ...] = ()
