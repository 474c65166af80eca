"""A budget for programs. Names carry their units; later versions only add keys. docs/status.md has them."""

from __future__ import annotations

from typing import Any

import msgspec

from ...protocol.messages.broker import BudgetView, CapView, HolderView, QuotaWindow, WaiterView


def budget_json(budget: BudgetView) -> dict[str, Any]:
    """Everything that is known of one budget."""
    return {
        "key": budget.key,
        "provider": budget.provider,
        "state": budget.state.value,
        "state_reason": budget.state_reason,
        "until_ms": budget.until_ms,
        "probing": budget.probing,
        "limit": budget.limit,
        "configured": budget.configured,
        "learned": budget.learned,
        "in_flight": budget.in_flight,
        "queued": budget.queued,
        "oldest_wait_s": budget.oldest_wait_s,
        "granted": budget.granted,
        "peak_in_flight": budget.peak_in_flight,
        "wait_p50_ms": budget.wait_p50_ms,
        "wait_p99_ms": budget.wait_p99_ms,
        "turned_over_s": budget.turned_over_s,
        "release_lag_ms": budget.release_lag_ms,
        "faults": [msgspec.structs.asdict(fault) for fault in budget.faults],
        "models": [msgspec.structs.asdict(model) for model in budget.models],
        "rates": [msgspec.structs.asdict(rate) for rate in budget.rates],
        "quota": [window_json(window) for window in budget.quota],
        "quota_seen_ms": budget.quota_seen_ms,
        "holders": [_holder(holder) for holder in budget.holders],
        "waiters": [_waiter(waiter) for waiter in budget.waiters],
    }


def cap_json(cap: CapView) -> dict[str, Any]:
    """A cap on tokens and money."""
    return msgspec.structs.asdict(cap)


def window_json(window: QuotaWindow) -> dict[str, Any]:
    """One quota window."""
    return msgspec.structs.asdict(window)


def _holder(holder: HolderView) -> dict[str, Any]:
    return {
        "call": holder.call,
        "pid": holder.pid,
        "holder": holder.holder,
        "model": holder.model,
        "held_s": holder.held_s,
        "agent": holder.agent,
        "session": holder.session,
        "is_stalled": holder.is_stalled,
    }


def _waiter(waiter: WaiterView) -> dict[str, Any]:
    return {
        "call": waiter.call,
        "pid": waiter.pid,
        "holder": waiter.holder,
        "model": waiter.model,
        "waited_s": waiter.waited_s,
        "position": waiter.position,
        "priority": waiter.priority.value,
        "reason": waiter.reason,
        "agent": waiter.agent,
        "session": waiter.session,
    }
