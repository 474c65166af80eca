"""A budget as status shows it. Pure; the only place that works out positions."""

from __future__ import annotations

from ...protocol.messages.broker import BudgetView, HolderView, WaiterView
from ...storage.leases import Lease
from .budget import Budget
from .claim import Waiter


def view_of(budget: Budget, now: float) -> BudgetView:
    """Return the budget at `now`: holders in the order of their grants, waiters in the order of service."""
    return BudgetView(
        key=budget.key,
        provider=budget.provider,
        limit=budget.limit,
        in_flight=budget.in_flight,
        queued=len(budget.queue),
        granted=budget.granted,
        peak_in_flight=budget.peak_in_flight,
        oldest_wait_s=budget.queue.oldest_wait_s(now),
        wait_p50_ms=budget.waits.quantile_ms(0.5),
        wait_p99_ms=budget.waits.quantile_ms(0.99),
        holders=tuple(_holder(lease, now) for lease in budget.leases.values()),
        waiters=tuple(_waiter(waiter, at, now) for at, waiter in enumerate(budget.queue.in_order(now), start=1)),
    )


def _holder(lease: Lease, now: float) -> HolderView:
    return HolderView(
        call=lease.call,
        pid=lease.holder.owner.pid,
        holder=lease.holder.name,
        model=lease.model,
        held_s=max(0.0, now - lease.granted_at),
        session=lease.session,
        agent=lease.agent,
    )


def _waiter(waiter: Waiter, position: int, now: float) -> WaiterView:
    claim = waiter.claim
    return WaiterView(
        call=claim.call,
        pid=claim.holder.owner.pid,
        holder=claim.holder.name,
        model=claim.model,
        waited_s=waiter.waited_s(now),
        position=position,
        priority=claim.priority,
        session=claim.session,
        agent=claim.agent,
    )
