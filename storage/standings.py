"""Where a budget stands with its provider: what must outlive the broker, and the host's boot too.

Pure. Within one boot a deadline is its time of CLOCK_BOOTTIME, which neither suspend nor a set clock moves; after a
reboot that clock begins anew, and what is left of a deadline is worked out from its wall-clock stamp.
"""

from __future__ import annotations

import msgspec

from ..protocol.ids import BudgetKey, CallId
from ..protocol.messages.broker import BudgetState, QuotaWindow


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A point in time on both clocks. `span_s` is how far ahead it was when it was set: it is never farther."""

    boottime: float
    wall_ms: int
    span_s: float

    def after(self, *, is_same_boot: bool, now: float, wall_ms: int) -> float:
        """Return this moment in the boottime of `now`."""
        if is_same_boot:
            return self.boottime
        # A clock that came up wrong must not make a park of an hour one of years.
        return now + min((self.wall_ms - wall_ms) / 1000, self.span_s)


class ParkKept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One used-up window: until when, and how good the evidence for that is."""

    window: str
    until: Moment
    rank: int
    reason: str


class HoldKept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pause or an overload: until when, since when without success, and which try in a row failed."""

    state: BudgetState
    until: Moment
    began: Moment
    step: int
    said: str
    """The provider's words."""
    mark: str
    """The provider's code, or the kind where it has none."""


class Standing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="standing"):
    """All that is kept of one budget besides its leases. Folded by key: a later one replaces an earlier one."""

    budget: BudgetKey
    provider: str
    boot: str
    """The boot whose boottime the moments count in."""
    lock: str | None = None
    """Why it is locked; None: it is not."""
    parks: tuple[ParkKept, ...] = ()
    hold: HoldKept | None = None
    probing: CallId | None = None
    learned: float | None = None
    """Rounded down to whole slots, so that not every clean call is news."""
    refused_at: int | None = None
    """The number in flight that was refused last and has not passed since."""
    relapses: int = 0
    release_lag_ms: float = 0.0
    """Learned; the configured one is not in it."""
    quota: tuple[QuotaWindow, ...] = ()
    quota_seen_ms: int | None = None

    def is_news_after(self, before: Standing | None) -> bool:
        """Whether this is worth a record after `before`: a quota read again with the same content is not."""
        if before is None:
            return self != Standing(budget=self.budget, provider=self.provider, boot=self.boot)
        return msgspec.structs.replace(self, quota_seen_ms=before.quota_seen_ms) != before
