"""A claim: what one call asks for, with every choice made."""

from __future__ import annotations

import msgspec

from ...protocol.ids import AgentId, BudgetKey, CallId, SessionId
from ...protocol.messages.broker import Priority
from ...protocol.peer import Peer
from ...storage.leases import Lease


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One call's wish for a slot of `budget`. Its `call` is its name in everything that follows."""

    call: CallId
    budget: BudgetKey
    provider: str
    base_url: str
    model: str
    holder: Peer
    tree: str
    """What fairness is measured over."""
    priority: Priority
    timeout_s: float | None
    """Longest wait; None is without end."""
    hold_s: float
    asked_at_ms: int
    """Unix time of the asking, for people; rules count in `now`."""
    session: SessionId | None = None
    agent: AgentId | None = None
    accounted: bool = True


class Waiter(msgspec.Struct, frozen=True, kw_only=True):
    """A claim in a queue since `since`."""

    claim: Claim
    since: float

    def waited_s(self, now: float) -> float:
        """Seconds in the queue at `now`."""
        return max(0.0, now - self.since)

    def lease(self, now: float) -> Lease:
        """Return the lease this becomes when it is served at `now`."""
        claim, waited_s = self.claim, self.waited_s(now)
        return Lease(
            call=claim.call,
            budget=claim.budget,
            provider=claim.provider,
            base_url=claim.base_url,
            model=claim.model,
            holder=claim.holder,
            granted_at=now,
            expires_at=now + claim.hold_s,
            waited_s=waited_s,
            started_at_ms=claim.asked_at_ms + round(waited_s * 1000),
            session=claim.session,
            agent=claim.agent,
            accounted=claim.accounted,
        )
