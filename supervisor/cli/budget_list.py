"""`covey budget list`: every budget on one line, with why it is not open below."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ...protocol.messages.broker import BudgetsQuery, BudgetState
from ..quick import ask_broker
from ..running import running_root
from .budget_words import (
    STYLES,
    bar,
    cap_words,
    fault_words,
    last_fault,
    limit_words,
    reason_words,
    state_words,
    turnover_words,
)
from .common import ago, nobody_home

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from ...protocol.messages.broker import Budgets, BudgetView
    from ..home import Home

ASK_S = 5.0


def show_list(home: Home, *, as_json: bool) -> int:
    """Show; exit code 0 also when nothing runs."""
    from .output import console, print_json

    found = find_budgets(home)
    if as_json:
        print_json(list_json(home, found))
    elif found is None:
        print(nobody_home(home))
    else:
        out = console()
        for part in list_parts(found, now=time.time()):
            out.print(part)
    return 0


def find_budgets(home: Home) -> Budgets | None:
    """Every budget as it stands now; None if no fleet runs. Raises `AskTimeout` where the broker does not answer."""
    info = running_root(home)
    return None if info is None else ask_budgets(info.sockets)


def ask_budgets(sockets: str) -> Budgets:
    """Ask the broker itself."""
    from ...protocol.messages.broker import Budgets

    found = ask_broker(sockets, BudgetsQuery(), timeout_s=ASK_S)
    assert isinstance(found, Budgets), "the broker answers a query for budgets with budgets"
    return found


def list_json(home: Home, found: Budgets | None) -> dict[str, Any]:
    """The list as docs/budget.md describes it."""
    from .budget_json import budget_json, cap_json

    return {
        "running": found is not None,
        "home": str(home.path),
        "budgets": [budget_json(budget) for budget in (found.budgets if found else ())],
        "caps": [cap_json(cap) for cap in (found.caps if found else ())],
    }


def list_parts(found: Budgets, *, now: float) -> Iterator[RenderableType]:
    """What is drawn: the table, then a line for each budget that is not open and for each cap."""
    from rich.text import Text

    if found.budgets:
        yield _table(found.budgets, now=now)
    else:
        yield Text("no budgets: no provider has max_concurrent")
    for budget in found.budgets:
        if why := reason_words(budget, now=now):
            yield Text(why, style=STYLES[budget.state])
    for cap in found.caps:
        yield Text(cap_words(cap))


def line(found: Budgets, *, now: float) -> str:
    """All of it on one line, for a log of how it went."""
    parts = [
        f"{budget.key} {state_words(budget, now=now)}, {limit_words(budget)}, {budget.queued} queued"
        for budget in found.budgets
    ]
    return "; ".join(parts) or "no budgets"


def _table(budgets: tuple[BudgetView, ...], *, now: float) -> RenderableType:
    from rich.text import Text

    from .output import table

    rows = table("budget", "state", "slots", "in flight", ">queued", ">waiting longest", ">turned over", "last fault")
    for budget in budgets:
        rows.add_row(
            Text(budget.key),
            # The whole of it stands below, where there is room for it.
            Text(budget.state.value, style=STYLES[budget.state]),
            Text(
                bar(budget), style=STYLES[BudgetState.OPEN if budget.in_flight < budget.limit else BudgetState.PAUSED]
            ),
            limit_words(budget),
            str(budget.queued),
            ago(budget.oldest_wait_s) if budget.oldest_wait_s is not None else "",
            turnover_words(budget),
            Text(fault_words(last_fault(budget), now=now)),
        )
    return rows
