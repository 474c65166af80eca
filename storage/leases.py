"""What is kept about slots: the lease, and the journal's records folded into what is outstanding.

Pure. The file around it is `lease_journal`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from ..protocol.ids import AgentId, BudgetKey, CallId, SessionId
from ..protocol.peer import Peer
from .caps import CapKept
from .standings import Standing


class Lease(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A slot held by one call. Times are seconds of CLOCK_BOOTTIME, so they outlive the broker's process."""

    call: CallId
    budget: BudgetKey
    provider: str
    base_url: str
    model: str
    holder: Peer
    granted_at: float
    expires_at: float
    waited_s: float
    started_at_ms: int
    """The grant on the wall clock, for people and for the ledger."""
    session: SessionId | None = None
    agent: AgentId | None = None
    accounted: bool = True
    work: str | None = None
    estimated_tokens: int | None = None
    estimated_cost_usd: float | None = None
    cap: str | None = None
    """These two were reserved under this cap, and under the fleet's."""


CAPS_KEPT: Final = 8192
"""Twice what a broker works with: of more, the oldest are forgotten."""


class LifeBegan(msgspec.Struct, frozen=True, kw_only=True, tag="life"):
    """First record of a file: the fleet's life that the totals count."""

    life: str


class TotalsCarried(msgspec.Struct, frozen=True, kw_only=True, tag="totals"):
    """What a budget had given before this file began."""

    budget: BudgetKey
    provider: str
    granted: int
    peak_in_flight: int


class LeaseCarried(msgspec.Struct, frozen=True, kw_only=True, tag="carried"):
    """A lease that was outstanding when this file began; it is in the carried totals already."""

    lease: Lease


class LeaseGranted(msgspec.Struct, frozen=True, kw_only=True, tag="granted"):
    """A grant; `in_flight` are the leases of its budget with this one."""

    lease: Lease
    in_flight: int


class LeaseEnded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="ended"):
    """The slot is free. An unknown call changes nothing; `caps` are its caps with what it spent."""

    call: CallId
    caps: tuple[CapKept, ...] = ()


LeaseRecord = LifeBegan | TotalsCarried | LeaseCarried | LeaseGranted | LeaseEnded | Standing | CapKept


class Outstanding:
    """All records so far, folded: the leases that have not ended, and every budget's totals."""

    def __init__(self) -> None:
        self.life: str | None = None
        self.leases: dict[CallId, Lease] = {}
        self.totals: dict[BudgetKey, TotalsCarried] = {}
        self.standings: dict[BudgetKey, Standing] = {}
        self.caps: dict[str, CapKept] = {}

    def apply(self, record: LeaseRecord) -> None:
        """Take one more record into account."""
        match record:
            case LifeBegan(life=life):
                self.life = life
            case TotalsCarried(budget=budget):
                self.totals[budget] = record
            case LeaseCarried(lease=lease):
                self.leases[lease.call] = lease
            case LeaseGranted(lease=lease, in_flight=in_flight):
                self.leases[lease.call] = lease
                self._count(lease, in_flight)
            case LeaseEnded(call=call, caps=caps):
                self.leases.pop(call, None)
                self._keep(caps)
            case Standing(budget=budget):
                self.standings[budget] = record
            case CapKept():
                self._keep((record,))

    def begin_life(self, life: str) -> None:
        """Start counting totals anew if this is another life of the fleet. Leases stay: their calls still run; so does
        what providers told us, and what was spent."""
        if self.life != life:
            self.life = life
            self.totals.clear()

    def records(self) -> Iterator[LeaseRecord]:
        """Yield the shortest list of records that folds into the same."""
        if self.life is not None:
            yield LifeBegan(life=self.life)
        yield from self.totals.values()
        yield from self.standings.values()
        yield from self.caps.values()
        for lease in self.leases.values():
            yield LeaseCarried(lease=lease)

    def _keep(self, caps: tuple[CapKept, ...]) -> None:
        for cap in caps:
            self.caps[cap.name] = cap
        while len(self.caps) > CAPS_KEPT:
            del self.caps[next(iter(self.caps))]

    def _count(self, lease: Lease, in_flight: int) -> None:
        before = self.totals.get(lease.budget)
        self.totals[lease.budget] = TotalsCarried(
            budget=lease.budget,
            provider=lease.provider,
            granted=(before.granted if before else 0) + 1,
            peak_in_flight=max(before.peak_in_flight if before else 0, in_flight),
        )
