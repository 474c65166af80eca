"""`covey budget show`: one budget with everything that is known of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ...protocol.messages.broker import BudgetState
from .budget_list import ask_budgets
from .budget_words import (
    STYLES,
    bar,
    limit_words,
    pick,
    printable,
    quota_words,
    reason_words,
    turnover_words,
    waiting_words,
)
from .common import ago, local_time
from .output import console, print_json, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.table import Table

    from ...protocol.messages.broker import BudgetView

MAX_WAITERS_SHOWN = 20
LIMITED = 3


def show(sockets: str, name: str, *, as_json: bool) -> int:
    """Show; exit code 3 if no call is let out until a time or until somebody acts."""
    budget = pick(name, ask_budgets(sockets).budgets)
    if as_json:
        from .budget_json import budget_json

        print_json(budget_json(budget))
    else:
        out = console()
        for part in parts(budget, now=time.time()):
            out.print(part)
    return LIMITED if budget.state in (BudgetState.PARKED, BudgetState.LOCKED) else 0


def parts(budget: BudgetView, *, now: float) -> Iterator[RenderableType]:
    """What is drawn, from the whole to the single call."""
    from rich.text import Text

    yield Text(f"budget {budget.key} of provider {budget.provider}")
    why = reason_words(budget, now=now)
    yield Text(why or budget.state.value, style=STYLES[budget.state])
    yield Text(f"{bar(budget)} {limit_words(budget)} in flight, {waiting_words(budget)}".strip())
    yield Text(_totals(budget))
    for rate in budget.rates:
        yield Text(f"{rate.used:,} of {rate.limit:,} {rate.unit} in the last minute")
    yield from _quota(budget, now)
    if budget.models:
        yield _models(budget)
    if budget.faults:
        yield _faults(budget, now)
    if budget.holders:
        yield _holders(budget)
    if budget.waiters:
        yield _waiters(budget)
        if len(budget.waiters) > MAX_WAITERS_SHOWN:
            yield Text(f"… and {len(budget.waiters) - MAX_WAITERS_SHOWN} more waiting (`--json` has all)")


def _totals(budget: BudgetView) -> str:
    words = [f"{budget.granted} granted, at most {budget.peak_in_flight} at once"]
    if budget.wait_p50_ms is not None and budget.wait_p99_ms is not None:
        words.append(f"waits {budget.wait_p50_ms:.0f} ms (median), {budget.wait_p99_ms:.0f} ms (99 %)")
    if turnover := turnover_words(budget):
        words.append(f"a slot turned over {turnover}")
    if budget.release_lag_ms:
        words.append(f"the provider counts a call {budget.release_lag_ms:.0f} ms beyond its end")
    return ", ".join(words)


def _quota(budget: BudgetView, now: float) -> Iterator[RenderableType]:
    from rich.text import Text

    for window in budget.quota:
        yield Text(f"quota {printable(window.name)}: {quota_words(window, now=now)}")
    if budget.quota and budget.quota_seen_ms is not None:
        yield Text(f"quota was read at {local_time(budget.quota_seen_ms, now=now)}")


def _models(budget: BudgetView) -> Table:
    rows = table("model", ">in flight", ">limit", ">queued")
    for model in budget.models:
        rows.add_row(_text(model.model), str(model.in_flight), str(model.limit), str(model.queued))
    return rows


def _faults(budget: BudgetView, now: float) -> Table:
    rows = table("code", "fault", ">times", "last", "message")
    for fault in sorted(budget.faults, key=lambda fault: fault.last_ms, reverse=True):
        last = local_time(fault.last_ms, now=now)
        rows.add_row(_text(fault.code or ""), _text(fault.kind), str(fault.count), last, _text(fault.message))
    return rows


def _holders(budget: BudgetView) -> Table:
    rows = table("holds a slot", ">since", "model", ">pid", "call", "")
    for holder in budget.holders:
        stalled = "its process is stopped" if holder.is_stalled else ""
        rows.add_row(
            _text(holder.agent or holder.holder),
            ago(holder.held_s),
            _text(holder.model),
            str(holder.pid),
            _text(holder.call),
            stalled,
        )
    return rows


def _waiters(budget: BudgetView) -> Table:
    rows = table(">place", "who", ">since", "model", "priority", ">pid", "waits for")
    for waiter in budget.waiters[:MAX_WAITERS_SHOWN]:
        rows.add_row(
            str(waiter.position),
            _text(waiter.agent or waiter.holder),
            ago(waiter.waited_s),
            _text(waiter.model),
            waiter.priority.value,
            str(waiter.pid),
            _text(waiter.reason),
        )
    return rows


def _text(text: str) -> RenderableType:
    """Not markup: what strangers wrote has brackets in it."""
    from rich.text import Text

    return Text(printable(text))
