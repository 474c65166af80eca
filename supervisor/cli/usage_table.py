"""A report of usage as a table, with its total, and below it what is not known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..usage_report import UsageLine, UsageReport
from .usage_words import cost_words, coverage_words, credit_words, name_of, tokens_words

if TYPE_CHECKING:
    from rich.console import RenderableType


def parts(found: UsageReport) -> Iterator[RenderableType]:
    """What is printed: the table, and a line for each thing it cannot say."""
    from rich.text import Text

    if not found.lines:
        yield Text("no calls were recorded" + ("" if found.since_ms is None else " in that time"))
        return
    yield _table(found)
    for line in remarks(found):
        yield Text(line)


def remarks(found: UsageReport) -> Iterator[str]:
    """What a reader has to know to trust the sums."""
    total = found.total
    if not found.is_complete:
        yield f"{len(found.lines)} rows are shown and there are more (`--limit`); the total has all of them"
    if total.unknown_calls:
        yield f"{total.unknown_calls} of {total.calls} calls ended without a report of usage: they are in no sum"
    if total.refused_calls:
        yield f"{total.refused_calls} more were refused by the provider and used nothing"
    if total.calls and total.cost_known_calls < total.calls:
        missing = total.calls - total.cost_known_calls
        yield f"the cost of {missing} calls is unknown: they have no price (providers.NAME.prices), or no usage"


def _table(found: UsageReport) -> RenderableType:
    from rich.text import Text

    from .output import table

    has_credits = any(line.credits is not None for line in (*found.lines, found.total))
    headers = (">calls", ">reported", ">prompt", ">from cache", ">to cache", ">output", ">reasoning", ">cost")
    rows = table(found.by.value, *headers, *((">credits",) if has_credits else ()))
    for line in found.lines:
        rows.add_row(Text(name_of(line, found.by)), *_cells(line, has_credits=has_credits))
    rows.add_section()
    rows.add_row(Text("total", style="bold"), *_cells(found.total, has_credits=has_credits))
    return rows


def _cells(line: UsageLine, *, has_credits: bool) -> list[str]:
    return [
        f"{line.calls:,}",
        coverage_words(line),
        tokens_words(line.prompt_tokens),
        tokens_words(line.cache_read_tokens),
        tokens_words(line.cache_write_tokens),
        tokens_words(line.completion_tokens),
        tokens_words(line.reasoning_tokens),
        cost_words(line),
        *([credit_words(line)] if has_credits else []),
    ]
