"""A provider's usage report as programs hand it over, in the words of any of the three dialects.

Chat completions count `prompt_tokens` with the cached ones in them, Responses `input_tokens` likewise, Anthropic
messages `input_tokens` without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ..protocol.dialects.chat_wire import usage_of as chat_usage_of
from ..protocol.errors import UsageError
from ..protocol.usage import Usage, disjoint

_LARGEST_COUNT: Final = 10**12
"""No call has that many tokens; a report beyond it is no report."""


def usage_from(report: Usage | Mapping[str, Any] | None) -> Usage | None:
    """The report in our buckets: a `Usage`, or the `usage` object of an answer as it came; None is unknown.

    Raises `UsageError` for a mapping that reports no tokens.
    """
    if report is None or isinstance(report, Usage):
        return report
    usage = usage_of(msgspec.Raw(msgspec.json.encode(dict(report))))
    if usage is None:
        raise UsageError(
            f"no usage report: {sorted(report)[:8]}; "
            "valid: prompt_tokens and completion_tokens, input_tokens and output_tokens, or None"
        )
    return usage


def usage_of(raw: msgspec.Raw) -> Usage | None:
    """Read the JSON of a usage report; None if it does not say what went in and what came out."""
    return chat_usage_of(raw) or _other_usage_of(raw)


class _Details(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Report(msgspec.Struct, frozen=True):
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    input_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


def _other_usage_of(raw: msgspec.Raw) -> Usage | None:
    try:
        report = msgspec.json.decode(raw, type=_Report) if bytes(raw) else _Report()
    except (msgspec.DecodeError, RecursionError):
        return None
    if report.input_tokens is None or report.output_tokens is None:
        return None
    read, write = report.cache_read_input_tokens or 0, report.cache_creation_input_tokens or 0
    if max(report.input_tokens, report.output_tokens, read, write) > _LARGEST_COUNT:
        return None
    if report.total_tokens is not None or report.input_tokens_details is not None:
        return disjoint(
            prompt=report.input_tokens,
            completion=report.output_tokens,
            cache_read=(report.input_tokens_details or _Details()).cached_tokens or 0,
            reasoning=(report.output_tokens_details or _Details()).reasoning_tokens or 0,
        )
    return disjoint(
        prompt=report.input_tokens + read + write,
        completion=report.output_tokens,
        cache_read=read,
        cache_write=write,
    )
