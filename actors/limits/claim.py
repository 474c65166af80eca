"""A claim: what one call asks for, with every choice made."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Final

import msgspec

from ...protocol.ids import AgentId, BudgetKey, CallId, SessionId
from ...protocol.messages.broker import Priority
from ...protocol.peer import Peer
from ...storage.leases import Lease


class WaitReason(StrEnum):
    """What a waiter waits for."""

    SLOT = "slot"
    """All slots of the account are taken, or others go first."""
    MODEL = "model limit"
    """Its model's own limit is reached; others may be served meanwhile."""
    PAUSE = "pause"
    """Nobody is let out: the account pauses, is parked, locked, or its allowance per minute is used up."""


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
    park_s: float | None = None
    """Longest wait for the end of a park; None is as long as any other."""
    hold_s: float
    asked_at_ms: int
    """Unix time of the asking, for people; rules count in `now`."""
    session: SessionId | None = None
    agent: AgentId | None = None
    accounted: bool = True
    work: str | None = None
    """What all attempts at one request have in common."""
    attempt: int = 1
    waiting_above: int = 0
    """How many agents above wait for the end of this one."""
    estimated_tokens: int | None = None
    estimated_cost_usd: float | None = None
    cap: str | None = None

    @property
    def rank(self) -> Priority:
        """The class it counts in: whom a parent waits for stands no worse than an agent.

        Else a busy stranger's agents would hold up the parent, whatever its own class, through its children.
        """
        return Priority.AGENT if self.waiting_above > 0 and self.priority in _BELOW_AGENT else self.priority

    def park_left_s(self, waited_s: float) -> float | None:
        """How much longer it would wait for the end of a park, having waited so long; None is without end."""
        bounds = [self.park_s] if self.park_s is not None else []
        if self.timeout_s is not None:
            bounds.append(self.timeout_s - waited_s)
        return min(bounds, default=None)


@lru_cache(maxsize=1024)
def shared(text: str) -> str:
    """Return an equal text, the same object each time: thousands of waiters name few models, budgets and trees.

    Not `sys.intern`: Python 3.12 never lets go of what that was given.
    """
    return text


_BELOW_AGENT: Final = frozenset({Priority.SUBAGENT, Priority.AUXILIARY})


class Waiter(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
            work=claim.work,
            estimated_tokens=claim.estimated_tokens,
            estimated_cost_usd=claim.estimated_cost_usd,
            cap=claim.cap,
        )
