"""A budget as status shows it. Pure; the only place that works out positions."""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.messages.broker import BudgetState, BudgetView, HolderView, ModelLimitView, WaiterView
from ...protocol.peer import Owner
from ...storage.leases import Lease
from .account import Account, Aside
from .budget import SHOWN
from .claim import Waiter

_WHY = {
    Aside.CAP: "room under its cap",
    Aside.DOUBT: "a try by another request",
    Aside.BUSY: "its model, which is busy",
}


def view_of(account: Account, now: float, wall_ms: int, *, is_stopped: Callable[[Owner], bool]) -> BudgetView:
    """Return the account at `now`: holders in the order of their grants, the first waiters in the order of service.

    `is_stopped` tells which processes of this host stand still.
    """
    budget, regime = account.budget, account.regime.view(now=now, wall_ms=wall_ms)
    waits = [waiter.waited_s(now) for waiter, _ in account.aside.values()]
    oldest = budget.queue.oldest_wait_s(now)
    return BudgetView(
        key=budget.key,
        provider=budget.provider,
        limit=regime.limit,
        configured=regime.configured,
        learned=regime.learned,
        in_flight=budget.in_flight,
        queued=account.queued,
        granted=budget.granted,
        peak_in_flight=budget.peak_in_flight,
        oldest_wait_s=max((*waits, *(() if oldest is None else (oldest,))), default=None),
        wait_p50_ms=budget.waits.quantile_ms(0.5),
        wait_p99_ms=budget.waits.quantile_ms(0.99),
        state=regime.state,
        state_reason=regime.state_reason,
        until_ms=regime.until_ms,
        probing=regime.probing,
        release_lag_ms=regime.release_lag_ms,
        turned_over_s=None if account.turned_over_at is None else max(0.0, now - account.turned_over_at),
        faults=regime.faults,
        models=tuple(
            ModelLimitView(
                model=model, limit=limit, in_flight=budget.in_flight_of(model), queued=budget.queue.queued(model)
            )
            for model, limit in budget.model_limits.items()
        ),
        rates=account.rates.views(now),
        quota=regime.quota,
        quota_seen_ms=regime.quota_seen_ms,
        holders=tuple(_holder(lease, now, is_stopped=is_stopped) for lease in budget.leases.values()),
        waiters=_waiters(account, now, is_paused=regime.state is not BudgetState.OPEN),
    )


def _holder(lease: Lease, now: float, *, is_stopped: Callable[[Owner], bool]) -> HolderView:
    owner = lease.holder.owner
    return HolderView(
        call=lease.call,
        pid=owner.pid,
        holder=lease.holder.name,
        model=lease.model,
        held_s=max(0.0, now - lease.granted_at),
        session=lease.session,
        agent=lease.agent,
        is_stalled=not owner.is_remote and is_stopped(owner),
    )


def _waiters(account: Account, now: float, *, is_paused: bool) -> tuple[WaiterView, ...]:
    standings = account.budget.standings(now, is_paused=is_paused)
    first = [(one.waiter, one.reason.value) for one in standings]
    aside = [(waiter, _WHY[why]) for waiter, why in account.aside.values()]
    # Whoever stands aside comes after the queue: not because it will, but because nobody knows when.
    behind = len(account.budget.queue) - len(first)
    shown = [(waiter, at, why) for at, (waiter, why) in enumerate(first, start=1)]
    shown += [(waiter, at + behind, why) for at, (waiter, why) in enumerate(aside, start=len(first) + 1)]
    return tuple(_waiter(waiter, at, why, now) for waiter, at, why in shown[:SHOWN])


def _waiter(waiter: Waiter, position: int, reason: str, now: float) -> WaiterView:
    claim = waiter.claim
    return WaiterView(
        call=claim.call,
        pid=claim.holder.owner.pid,
        holder=claim.holder.name,
        model=claim.model,
        waited_s=waiter.waited_s(now),
        position=position,
        priority=claim.priority,
        reason=reason,
        session=claim.session,
        agent=claim.agent,
    )
