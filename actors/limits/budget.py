"""One budget: its slots, its queue and its totals.

Pure. Slots are a set of call ids: taking one that is taken, or giving back one that is not, changes nothing. The slot
of a call that is over may linger: nobody holds it, and nobody gets it before the provider has had time to notice.
A model's own limit counts inside the account's; who waits for such a model stands aside while it is reached. When
`admit` has returned None, nobody who is permitted waits beside a free slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from ...protocol.ids import BudgetKey, CallId
from ...protocol.messages.broker import Priority
from ...storage.leases import Lease
from .claim import Claim, Waiter, WaitReason
from .fair_queue import FairQueue
from .waits import Waits

SHOWN: Final = 100
"""Waiters that status shows one by one; the others it counts."""

Permit = Callable[[Claim], bool]
"""Whether the account lets this claim out now. Who is next and not permitted is waited for, not skipped."""


class Standing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A waiter as it stands in the queue; at position 1 it is served next, as things are."""

    waiter: Waiter
    position: int
    reason: WaitReason


def _anybody(_: Claim) -> bool:
    return True


class Budget:
    """Slots of one provider account. Limits may change at any time; leases above a lowered one live on."""

    def __init__(
        self,
        key: BudgetKey,
        *,
        provider: str,
        limit: int,
        model_limits: Mapping[str, int] | None = None,
        weights: Mapping[Priority, int] | None = None,
    ) -> None:
        self.key = key
        self.provider = provider
        self.ceiling: int | None = None
        """What the provider was seen to bear, set by whoever learns it; counts where it is below the configured."""
        self.leases: dict[CallId, Lease] = {}
        self.lingering: dict[CallId, Lease] = {}
        self.queue = FairQueue()
        self.waits = Waits()
        self.granted = 0
        self.peak_in_flight = 0
        self._taken: Counter[str] = Counter()  # of every model: one that gets a limit later is counted already
        self.configure(limit, model_limits or {}, weights or {})

    def configure(self, limit: int, model_limits: Mapping[str, int], weights: Mapping[Priority, int]) -> None:
        """Let these limits and weights count from now on. Leases and waiters stay."""
        self.configured = limit
        self.model_limits: Mapping[str, int] = {model.lower(): most for model, most in model_limits.items()}
        self.queue.configure(self.model_limits, weights)

    # --- slots -------------------------------------------------------------------------------------------------------

    @property
    def limit(self) -> int:
        """The limit in effect: the configured one, or the ceiling where that is lower."""
        return self.configured if self.ceiling is None else min(self.configured, self.ceiling)

    @property
    def in_flight(self) -> int:
        """Slots held now, and those that linger."""
        return len(self.leases) + len(self.lingering)

    @property
    def has_room(self) -> bool:
        """Whether a slot is free, for some model."""
        return self.in_flight < self.limit

    def in_flight_of(self, model: str) -> int:
        """Slots held for this model, and those that linger."""
        return self._taken[model.lower()]

    def would_wait(self, claim: Claim, now: float) -> bool:
        """Whether this claim, if it came now, would find no slot, or somebody who could have had it before."""
        is_closed = self.queue.section_of(claim.model) in self._closed()
        return not self.has_room or is_closed or self.next(now) is not None

    def next(self, now: float) -> Waiter | None:
        """Return who gets a free slot next; None when there is no slot, or nobody who could have it."""
        return self.queue.peek(now, self._closed()) if self.has_room else None

    def admit(self, now: float, permits: Permit = _anybody) -> Lease | None:
        """Give a free slot to whoever is next; None when there is no slot, nobody for it, or no permit."""
        waiter = self.next(now)
        if waiter is None or not permits(waiter.claim):
            return None
        self.queue.pop(now, self._closed())
        lease = waiter.lease(now)
        self.keep(lease)
        self.granted += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        self.waits.add(lease.waited_s)
        return lease

    def keep(self, lease: Lease) -> None:
        """Take over a lease that an earlier broker granted; it may exceed the limit."""
        self.leases[lease.call] = lease
        self._taken[lease.model.lower()] += 1

    def drop(self, call: CallId) -> Lease | Waiter | None:
        """Free the call's slot or its place in the queue, whichever it has."""
        lease = self.leases.pop(call, None)
        if lease is None:
            return self.queue.remove(call)
        self._free(lease)
        return lease

    def linger(self, lease: Lease) -> None:
        """Keep the slot of a call that is over from everybody until it is `settle`d."""
        self.lingering[lease.call] = lease
        self._taken[lease.model.lower()] += 1

    def settle(self, call: CallId) -> None:
        """Free a slot that lingers."""
        lease = self.lingering.pop(call, None)
        if lease is not None:
            self._free(lease)

    # --- for people --------------------------------------------------------------------------------------------------

    def standings(self, now: float, *, is_paused: bool = False, count: int = SHOWN) -> list[Standing]:
        """Return the first `count` waiters in the order of service, with the reason; `is_paused`: nobody is let out."""
        closed = self._closed()
        ordered = self.queue.in_order(now, closed=closed, count=count)
        return [
            Standing(waiter=waiter, position=at, reason=self._reason(waiter, closed, is_paused=is_paused))
            for at, waiter in enumerate(ordered, start=1)
        ]

    def _reason(self, waiter: Waiter, closed: Collection[str], *, is_paused: bool) -> WaitReason:
        if is_paused:
            return WaitReason.PAUSE
        return WaitReason.MODEL if self.queue.section_of(waiter.claim.model) in closed else WaitReason.SLOT

    def _closed(self) -> Collection[str]:
        """The models whose own limit is reached."""
        return [model for model, most in self.model_limits.items() if self._taken[model] >= most]

    def _free(self, lease: Lease) -> None:
        model = lease.model.lower()
        self._taken[model] -= 1
        if not self._taken[model]:
            del self._taken[model]
