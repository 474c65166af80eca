"""One budget: its slots, its queue and its totals.

Pure. Slots are a set of call ids: taking one that is taken, or giving back one that is not, changes nothing. The slot
of a call that was cut lingers: nobody holds it, and nobody gets it before the provider has had time to notice.
Whenever a call has returned from `admit`, nobody waits beside a free slot.
"""

from __future__ import annotations

from ...protocol.ids import BudgetKey, CallId
from ...storage.leases import Lease
from .claim import Waiter
from .fair_queue import FairQueue
from .waits import Waits


class Budget:
    """Slots of one provider account. `limit` may change at any time; leases above a lowered one live on."""

    def __init__(self, key: BudgetKey, *, provider: str, limit: int) -> None:
        self.key = key
        self.provider = provider
        self.limit = limit
        self.leases: dict[CallId, Lease] = {}
        self.lingering: set[CallId] = set()
        self.queue = FairQueue()
        self.waits = Waits()
        self.granted = 0
        self.peak_in_flight = 0

    @property
    def in_flight(self) -> int:
        """Slots held now, and those that linger."""
        return len(self.leases) + len(self.lingering)

    @property
    def has_room(self) -> bool:
        """Whether a slot is free."""
        return self.in_flight < self.limit

    def admit(self, now: float) -> Lease | None:
        """Give a free slot to whoever is next; None when there is no slot or nobody waits."""
        waiter = self.queue.pop(now) if self.has_room else None
        if waiter is None:
            return None
        lease = waiter.lease(now)
        self.leases[lease.call] = lease
        self.granted += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        self.waits.add(lease.waited_s)
        return lease

    def keep(self, lease: Lease) -> None:
        """Take over a lease that an earlier broker granted; it may exceed the limit."""
        self.leases[lease.call] = lease

    def drop(self, call: CallId) -> Lease | Waiter | None:
        """Free the call's slot or its place in the queue, whichever it has."""
        return self.leases.pop(call, None) or self.queue.remove(call)
