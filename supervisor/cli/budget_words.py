"""Budgets in words: what they are called, how they stand, and since when. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...protocol.errors import UsageError
from ...protocol.messages.broker import BudgetState, BudgetView, CapView, FaultCount, QuotaWindow
from .common import ago, local_time

STYLES: Final = {
    BudgetState.OPEN: "green",
    BudgetState.PAUSED: "yellow",
    BudgetState.OVERLOADED: "yellow",
    BudgetState.PARKED: "magenta",
    BudgetState.LOCKED: "red",
}
BAR_CELLS: Final = 20

_WORDS: Final = {
    BudgetState.PAUSED: "until {at}, then one call tries",
    BudgetState.OVERLOADED: "until {at}, then one call tries",
    BudgetState.PARKED: "until {at}",
}


def pick(name: str, budgets: Sequence[BudgetView]) -> BudgetView:
    """The budget that is meant: by its key, a unique beginning of that, or its provider. Raises `UsageError`."""
    exact = [budget for budget in budgets if budget.key == name]
    of_provider = [budget for budget in budgets if budget.provider == name]
    beginning = [budget for budget in budgets if name and budget.key.startswith(name)]
    for found in (exact, of_provider, beginning):
        if len(found) == 1:
            return found[0]
    keys = ", ".join(budget.key for budget in of_provider or beginning or budgets) or "none"
    if of_provider or beginning:
        raise UsageError(f"{name} is the beginning of several budgets; valid: {keys}")
    raise UsageError(f"there is no budget {name}; valid: {keys}")


def state_words(budget: BudgetView, *, now: float) -> str:
    """How the budget stands, and until when in local time; `now` in Unix seconds."""
    state = budget.state
    if state is BudgetState.OPEN:
        return state.value
    if state is BudgetState.LOCKED:
        return f"{state.value} until `covey budget unlock {budget.key}`"
    if budget.probing is not None:
        return f"{state.value}, one call is out to try"
    if budget.until_ms is None:
        return f"{state.value}, until when is not known"
    return f"{state.value} {_WORDS[state].format(at=local_time(budget.until_ms, now=now))}"


def reason_words(budget: BudgetView, *, now: float) -> str | None:
    """Why the budget is not open, for a line of its own; None if it is."""
    if budget.state is BudgetState.OPEN:
        return None
    left_s = None if budget.until_ms is None else budget.until_ms / 1000 - now
    soon = f" (in {ago(left_s)})" if left_s is not None and left_s > 0 else ""
    why = f": {printable(budget.state_reason)}" if budget.state_reason else ""
    return f"{budget.key} is {state_words(budget, now=now)}{soon}{why}; {waiting_words(budget)}"


def waiting_words(budget: BudgetView) -> str:
    """How many wait, and the longest for how long."""
    if not budget.queued:
        return "nobody waits"
    longest = f", the longest for {ago(budget.oldest_wait_s)}" if budget.oldest_wait_s is not None else ""
    return f"{budget.queued} waiting{longest}"


def bar(budget: BudgetView) -> str:
    """Slots as cells: held `█`, free `░`, taken away by what was learned `·`. Large limits are scaled down."""
    whole = max(budget.configured, budget.limit, budget.in_flight)
    if whole <= 0:
        return ""
    scale = min(1.0, BAR_CELLS / whole)
    held = min(BAR_CELLS, round(budget.in_flight * scale + (0.49 if budget.in_flight else 0)))
    usable = max(held, round(budget.limit * scale))
    return "█" * held + "░" * (usable - held) + "·" * (max(usable, round(whole * scale)) - usable)


def limit_words(budget: BudgetView) -> str:
    """In flight and the limit in effect, with where it comes from if it is not simply the configured one."""
    parts = []
    if budget.configured and budget.configured != budget.limit:
        parts.append(f"configured {budget.configured}")
    if budget.learned is not None:
        parts.append(f"learned {budget.learned:.3g}")
    return f"{budget.in_flight} of {budget.limit}" + (f" ({', '.join(parts)})" if parts else "")


def last_fault(budget: BudgetView) -> FaultCount | None:
    """The latest fault."""
    return max(budget.faults, key=lambda fault: fault.last_ms, default=None)


def fault_words(fault: FaultCount | None, *, now: float) -> str:
    """Its code and kind, how often, and when last."""
    if fault is None:
        return ""
    name = f"{printable(fault.code)} {fault.kind}" if fault.code else fault.kind
    return f"{name} × {fault.count}, {local_time(fault.last_ms, now=now)}"


def turnover_words(budget: BudgetView) -> str:
    """How long ago a slot changed hands."""
    return "" if budget.turned_over_s is None else f"{ago(budget.turned_over_s)} ago"


def quota_words(window: QuotaWindow, *, now: float) -> str:
    """How full a window is and when it begins anew."""
    used = "use not known" if window.used_percent is None else f"{window.used_percent:g} % used"
    reset = "reset not known" if window.resets_at_ms is None else f"resets {local_time(window.resets_at_ms, now=now)}"
    is_full = window.blocks and window.used_percent is not None and window.used_percent >= 100
    return f"{used}, {reset}" + (", calls are refused" if is_full else "" if window.blocks else ", blocks no calls")


def cap_words(cap: CapView) -> str:
    """What is spent of a cap, and what calls that run may still cost."""
    tokens = f"{cap.tokens:,}{_of(cap.max_tokens, '{:,}')} tokens"
    cost = f"${cap.cost_usd:.2f}{_of(cap.max_cost_usd, '${:.2f}')}"
    reserved = f"reserved {cap.reserved_tokens:,} tokens, ${cap.reserved_cost_usd:.2f}"
    return f"cap {printable(cap.name)}: {tokens}, {cost}, {reserved}"


def printable(text: str) -> str:
    """What a stranger wrote, on one line and without codes for the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _of(most: float | None, form: str) -> str:
    return "" if most is None else f" of {form.format(most)}"
