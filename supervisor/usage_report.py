"""A report of usage as people and programs get it: rows, their total, and what is not known. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec

from ..protocol.messages.ledger import UsageBy, UsageRow, UsageRows, UsageSums
from .usage_costs import Key, Priced, total_of

Number = TypeVar("Number", int, float)


class UsageLine(msgspec.Struct, frozen=True, kw_only=True):
    """One row. A sum over nothing known is None; costs and credits cover the calls that are counted beside them."""

    key: str | None
    provider: str | None
    calls: int
    """Calls that a provider took on."""
    unknown_calls: int
    refused_calls: int
    input_tokens: int | None
    """From no cache."""
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    output_tokens: int | None
    """Without reasoning."""
    reasoning_tokens: int | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_usd: float | None
    cost_known_calls: int
    credits: float | None
    credits_known_calls: int

    @property
    def coverage(self) -> float | None:
        """The part of the calls whose usage is known; None without calls."""
        return (self.calls - self.unknown_calls) / self.calls if self.calls else None

    @property
    def total_tokens(self) -> int:
        """All known tokens."""
        return (self.prompt_tokens or 0) + (self.completion_tokens or 0)


@dataclass(frozen=True, slots=True)
class UsageReport:
    """What was asked for, and what there is."""

    by: UsageBy
    since_ms: int | None
    lines: tuple[UsageLine, ...]
    total: UsageLine
    is_complete: bool
    """False: there are more rows than are listed; the total has all of them."""


def report(
    found: UsageRows, priced: dict[Key, Priced], *, by: UsageBy, since_ms: int | None, limit: int
) -> UsageReport:
    """Put sums and prices together."""
    return UsageReport(
        by=by,
        since_ms=since_ms,
        lines=tuple(_line(row, priced.get((row.key, row.provider), Priced())) for row in found.rows[:limit]),
        total=_line(UsageRow(key=None, sums=found.total), total_of(priced)),
        is_complete=len(found.rows) <= limit,
    )


def _line(row: UsageRow, priced: Priced) -> UsageLine:
    sums = row.sums
    return UsageLine(
        key=row.key,
        provider=row.provider,
        calls=sums.calls,
        unknown_calls=sums.unknown_calls,
        refused_calls=sums.refused_calls,
        input_tokens=sums.input_tokens,
        cache_read_tokens=sums.cache_read_tokens,
        cache_write_tokens=sums.cache_write_tokens,
        output_tokens=sums.output_tokens,
        reasoning_tokens=sums.reasoning_tokens,
        prompt_tokens=_prompt(sums),
        completion_tokens=_added(sums.output_tokens, sums.reasoning_tokens),
        cost_usd=_added(sums.cost_usd, priced.cost_usd),
        cost_known_calls=sums.cost_known_calls + priced.cost_calls,
        credits=priced.credits,
        credits_known_calls=priced.credit_calls,
    )


def _prompt(sums: UsageSums) -> int | None:
    return _added(_added(sums.input_tokens, sums.cache_read_tokens), sums.cache_write_tokens)


def _added(one: Number | None, other: Number | None) -> Number | None:
    """The sum of what is known; None if neither is."""
    if one is None or other is None:
        return other if one is None else one
    return one + other
