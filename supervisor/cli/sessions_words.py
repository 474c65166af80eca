"""Words of sessions as people read them. Pure."""

from __future__ import annotations

import re
from typing import Final

from ...protocol.messages.ledger import SessionRow, Totals
from .usage_words import money

GOAL_CHARS: Final = 60
LONG_CHARS: Final = 2000

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """The text without what a terminal would act on: models and tools write what they like."""
    return _CONTROL.sub("\N{MIDDLE DOT}", text.replace("\r\n", "\n"))


def first_line(text: str) -> str:
    """The beginning of a text, on one line."""
    line = visible(next(iter(text.strip().splitlines()), ""))
    return line if len(line) <= GOAL_CHARS else f"{line[: GOAL_CHARS - 1]}…"


def shortened(text: str, *, full: bool) -> str:
    """The beginning of a long text, with what is left out in numbers."""
    text = visible(text)
    if full or len(text) <= LONG_CHARS:
        return text
    return f"{text[:LONG_CHARS]}\n… {len(text) - LONG_CHARS:,} more characters (--full)"


def state_of(row: SessionRow) -> str:
    """How it ended, or that it has not."""
    return row.outcome or "open"


def totals_words(totals: Totals) -> str:
    """What a session and all below it used: tokens, cost, and how much of that is known."""
    unknown = f" ({totals.unknown_calls} with unknown usage)" if totals.unknown_calls else ""
    tokens = f"{totals.prompt_tokens:,} tokens in, {totals.completion_tokens:,} out"
    sessions = f"{totals.sessions} session{'' if totals.sessions == 1 else 's'}"
    if totals.cost_usd is None:
        cost = "cost unknown"
    elif totals.cost_known_calls < totals.calls:
        cost = f"{money(totals.cost_usd)} for {totals.cost_known_calls} of {totals.calls} calls"
    else:
        cost = money(totals.cost_usd)
    return f"{sessions}, {totals.calls} calls{unknown}, {tokens}, {cost}"
