"""A provider's usage report as programs hand it over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..protocol.dialects.chat_wire import usage_of
from ..protocol.errors import UsageError
from ..protocol.usage import Usage


def usage_from(report: Usage | Mapping[str, Any] | None) -> Usage | None:
    """The report in our buckets: a `Usage`, or the `usage` object of a chat completion as it came; None is unknown.

    Raises `UsageError` for a mapping that reports no tokens.
    """
    if report is None or isinstance(report, Usage):
        return report
    usage = usage_of(msgspec.Raw(msgspec.json.encode(dict(report))))
    if usage is None:
        raise UsageError(f"no usage report: {sorted(report)[:8]}; valid: prompt_tokens and completion_tokens, or None")
    return usage
