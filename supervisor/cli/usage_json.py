"""A report of usage for programs. Names carry their units; later versions only add keys. docs/usage.md has them."""

from __future__ import annotations

from typing import Any

import msgspec

from ..usage_report import UsageLine, UsageReport


def as_json(found: UsageReport, *, home: str, is_running: bool) -> dict[str, Any]:
    """The report as docs/usage.md describes it."""
    return {
        "running": is_running,
        "home": home,
        "by": found.by.value,
        "since_ms": found.since_ms,
        "is_complete": found.is_complete,
        "rows": [_line(line) for line in found.lines],
        "total": _line(found.total),
    }


def _line(line: UsageLine) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(line),
        # Prices are not binary fractions; a billionth of a dollar is what state.db keeps.
        "cost_usd": _rounded(line.cost_usd, 9),
        "credits": _rounded(line.credits, 6),
        "coverage": _rounded(line.coverage, 4),
    }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
