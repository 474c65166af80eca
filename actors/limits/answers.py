"""Between the rules and the wire: a request becomes a claim, an action becomes an answer. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...protocol.destination import budget_key
from ...protocol.ids import AgentId, BudgetKey
from ...protocol.messages.broker import Acquire, BudgetView, Granted, Refused
from ...protocol.messages.ledger import CallRecorded, CallStatus
from ...protocol.peer import Owner, Peer
from ...storage.leases import Lease
from .accounts import Accounts
from .actions import Grant, Refuse
from .book import Book
from .claim import Claim, shared
from .views import view_of


def problem_with(ask: Acquire) -> str | None:
    """Say what in a request cannot be meant; None if nothing."""
    if not ask.call:
        return "call is empty; a call needs a name of its own"
    if not (math.isfinite(ask.hold_s) and ask.hold_s > 0):
        return f"hold_s is {ask.hold_s}; valid: a positive number of seconds"
    if ask.timeout_s is not None and not (math.isfinite(ask.timeout_s) and ask.timeout_s >= 0):
        return f"timeout_s is {ask.timeout_s}; valid: seconds from 0 on, or nothing to wait without end"
    if ask.park_s is not None and not (math.isfinite(ask.park_s) and ask.park_s >= 0):
        return f"park_s is {ask.park_s}; valid: seconds from 0 on, or nothing to wait for its end"
    if ask.estimated_tokens is not None and ask.estimated_tokens < 0:
        return f"estimated_tokens is {ask.estimated_tokens}; valid: 0 or more, or nothing where nobody knows"
    if ask.estimated_cost_usd is not None and not (
        math.isfinite(ask.estimated_cost_usd) and ask.estimated_cost_usd >= 0
    ):
        return f"estimated_cost_usd is {ask.estimated_cost_usd}; valid: 0 or more, or nothing where nobody knows"
    return None


def claim_of(ask: Acquire, asker: Peer, *, provider: str, accounts: Accounts, now_ms: int) -> Claim:
    """Return what the request asks for. Without a tree, the asking program is one."""
    cost = ask.estimated_cost_usd
    return Claim(
        call=ask.call,
        budget=BudgetKey(shared(budget_key(provider, ask.destination.credential))),
        provider=provider,
        base_url=shared(ask.destination.base_url),
        model=shared(ask.model),
        holder=asker,
        tree=shared(ask.tree or asker.incarnation),
        priority=ask.priority,
        timeout_s=accounts.timeout_s(provider) if ask.timeout_s is None else ask.timeout_s,
        park_s=ask.park_s,
        hold_s=ask.hold_s,
        asked_at_ms=now_ms,
        session=ask.session,
        agent=None if ask.agent is None else AgentId(shared(ask.agent)),
        accounted=ask.accounted,
        work=ask.work,
        attempt=ask.attempt,
        waiting_above=ask.waiting_above,
        estimated_tokens=ask.estimated_tokens,
        estimated_cost_usd=accounts.estimate_usd(provider, ask.model, ask.estimated_tokens) if cost is None else cost,
        cap=ask.cap,
    )


def granted(action: Grant) -> Granted:
    """Return the answer that goes with a grant."""
    return Granted(
        call=action.lease.call,
        budget=action.lease.budget,
        limit=action.limit,
        in_flight=action.in_flight,
        waited_s=action.lease.waited_s,
        is_probe=action.is_probe,
        wants_quota=action.wants_quota,
    )


def refused(action: Refuse) -> Refused:
    """Return the answer that goes with a refusal."""
    return Refused(
        call=action.call,
        budget=action.budget,
        reason=action.reason,
        limit=action.limit,
        queued=action.queued,
        waited_s=action.waited_s,
        until_ms=action.until_ms,
        detail=action.detail,
    )


def lost_call(lease: Lease) -> CallRecorded:
    """Return the broker's account of a call whose holder died: what it cost is not known."""
    return CallRecorded(
        call=lease.call,
        provider=lease.provider,
        base_url=lease.base_url,
        model=lease.model,
        status=CallStatus.LOST,
        started_at_ms=lease.started_at_ms,
        session=lease.session,
        agent=lease.agent,
        waited_ms=lease.waited_s * 1000,
    )


def views(
    book: Book, accounts: Accounts, now: float, wall_ms: int, *, is_stopped: Callable[[Owner], bool]
) -> tuple[BudgetView, ...]:
    """Return every budget that was asked for, then the configured ones that were not yet."""
    seen = tuple(view_of(account, now, wall_ms, is_stopped=is_stopped) for account in book.accounts.values())
    unseen = tuple(
        BudgetView(
            key=key,
            provider=one.provider,
            limit=one.max_concurrent,
            configured=one.max_concurrent,
            in_flight=0,
            queued=0,
            granted=0,
            peak_in_flight=0,
        )
        for key, one in accounts.unseen(view.provider for view in seen)
    )
    return seen + unseen
