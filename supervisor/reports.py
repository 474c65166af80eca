"""A provider's usage report as programs hand it over, in any of the shapes of `protocol.usage_shapes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..protocol.errors import UsageError
from ..protocol.usage import Usage
from ..protocol.usage_meter import usage_of


def usage_from(report: Usage | Mapping[str, Any] | None) -> Usage | None:
    """The report in our buckets: a `Usage`, or the `usage` object of an answer as it came; None is unknown.

    Raises `UsageError` for a mapping that reports no tokens.
    """
    if report is None or isinstance(report, Usage):
        return report
    usage = usage_of(msgspec.json.encode(dict(report)))
    if usage is None:
        raise UsageError(
            f"no usage report: {sorted(report)[:8]}; "
            "valid: prompt_tokens and completion_tokens, input_tokens and output_tokens, or None"
        )
    return usage
