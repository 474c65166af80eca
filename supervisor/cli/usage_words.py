"""Numbers of a report of usage as people read them. Pure."""

from __future__ import annotations

from typing import Final

from ...protocol.messages.ledger import UsageBy
from ..usage_report import UsageLine

UNKNOWN: Final = "unknown"

NAMELESS: Final = {
    UsageBy.MODEL: "(no model)",
    UsageBy.SESSION: "(no session)",
    UsageBy.TREE: "(no session)",
    UsageBy.DAY: "(no day)",
    UsageBy.PROFILE: "(default)",
}
"""What stands for calls that name none."""


def name_of(line: UsageLine, by: UsageBy) -> str:
    """A row's name; of a model with its provider."""
    key = NAMELESS[by] if line.key is None else line.key
    return f"{line.provider}/{key}" if line.provider else key


def tokens_words(count: int | None) -> str:
    """A number of tokens, or that nobody reported any."""
    return UNKNOWN if count is None else f"{count:,}"


def coverage_words(line: UsageLine) -> str:
    """How many of the calls are in the sums: `all`, `8 of 9`."""
    if not line.unknown_calls:
        return "all" if line.calls else ""
    return f"{line.calls - line.unknown_calls} of {line.calls}"


def cost_words(line: UsageLine) -> str:
    """What is known of the cost, and of how many calls where that is not all of them."""
    return _covered(line, None if line.cost_usd is None else money(line.cost_usd), line.cost_known_calls)


def credit_words(line: UsageLine) -> str:
    """The same in credits of plans."""
    return _covered(line, None if line.credits is None else f"{line.credits:,.2f}", line.credits_known_calls)


def money(usd: float) -> str:
    """An amount of dollars: cents, and as many digits more as a small one needs."""
    if usd >= 1 or usd == 0:
        return f"${usd:,.2f}"
    if usd >= 0.0001:
        return f"${usd:.4f}"
    return f"${usd:.6f}" if usd >= 0.000001 else "under $0.000001"


def _covered(line: UsageLine, amount: str | None, calls: int) -> str:
    if not line.calls:
        return ""
    if amount is None:
        return UNKNOWN
    return amount if calls >= line.calls else f"{amount} for {calls} of {line.calls}"
