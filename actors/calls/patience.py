"""How long a failed call is tried again: bounds on time, and a smaller one on attempts that may have cost tokens.

Pure: randomness comes in as `chance` (0 to 1). The wait for a slot counts against no bound.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ...protocol.faults import Fault, FaultAction, FaultKind, FaultScope
from ...protocol.settings import CallSettings

DOUBTFUL: Final = frozenset({FaultKind.TRUNCATED, FaultKind.TIMEOUT, FaultKind.INVALID_RESPONSE, FaultKind.UNKNOWN})
"""The provider may have done the work and billed it, or nobody knows what is wrong."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of trying again. With the defaults a provider may be unwell for ten minutes."""

    total_s: float = 1800.0
    """The whole call, at all its targets: attempts and pauses, together."""
    retry_s: float = 600.0
    """Failed attempts and pauses at one target, together. Going on to the next target is not bound by it."""
    first_s: float = 1.0
    longest_s: float = 30.0
    doubtful_attempts: int = 3
    """Attempts in all that may end in a `DOUBTFUL` fault; after the last of them nothing is repeated."""
    unreachable_s: float = 60.0
    """The same as `retry_s` where nothing ever answered: an address that is wrong is to be said soon."""


DEFAULT_PATIENCE: Final = Patience()


def patience_for(calls: CallSettings) -> Patience:
    """The patience that the configuration asks for."""
    return Patience(total_s=calls.total_seconds, retry_s=calls.retry_seconds)


class Strain(msgspec.Struct, frozen=True, kw_only=True):
    """What a call has gone through so far, at the target it is at and before."""

    attempts: int = 0
    """Failed ones here."""
    doubtful: int = 0
    """Failed ones anywhere."""
    spent_s: float = 0.0
    """Attempts and pauses here."""
    before_s: float = 0.0
    """Attempts and pauses at earlier targets."""
    has_answered: bool = False
    """Whether this target was there at least once."""

    @property
    def total_s(self) -> float:
        """Seconds spent at all targets."""
        return self.before_s + self.spent_s

    def after(self, fault: Fault, took_s: float) -> Strain:
        """One more failed attempt that took `took_s`."""
        return msgspec.structs.replace(
            self,
            attempts=self.attempts + 1,
            doubtful=self.doubtful + (fault.kind in DOUBTFUL),
            spent_s=self.spent_s + took_s,
            has_answered=self.has_answered
            or (fault.kind is not FaultKind.UNREACHABLE and fault.scope is not FaultScope.LOCAL),
        )

    def paused(self, pause_s: float) -> Strain:
        """The pause before the next attempt is over."""
        return msgspec.structs.replace(self, spent_s=self.spent_s + pause_s)

    def elsewhere(self, there: Strain) -> Strain:
        """Another target, with what it has seen of this call; the whole call's time and doubt go on."""
        return msgspec.structs.replace(there, doubtful=self.doubtful, before_s=self.total_s - there.spent_s)


def pause_s(
    fault: Fault, strain: Strain, patience: Patience, *, chance: float, is_brokered: bool = False
) -> float | None:
    """Seconds until the next attempt at the same target after `fault`, which `strain` includes; None: none more.

    Full jitter between 0 and a bound that doubles; never before the time the provider asked for. A time that does
    not fit into what is left ends the call at once instead of after a vain wait. `is_brokered`: what is the account's
    trouble is timed by the broker, and not a second time here.
    """
    if fault.action is FaultAction.WAIT and is_brokered:
        return 0.0 if fits(0.0, strain, patience) else None
    if fault.action not in (FaultAction.RETRY, FaultAction.WAIT):
        return None
    if fault.kind is FaultKind.QUOTA and fault.retry_after_s is None:
        return None  # its window ends in hours; asking again every half a minute would only be noise
    if strain.doubtful >= patience.doubtful_attempts:
        return None
    pause = (fault.retry_after_s or 0.0) + backoff_s(strain, patience) * chance
    if is_stale(fault) and strain.attempts == 1:
        # One silence takes all of `retry_s` with a model that may think for ten minutes, and a connection that was
        # lost on the way looks the same. It gets the whole call's time for one more.
        return pause if strain.total_s + pause < patience.total_s else None
    return pause if fits(pause, strain, patience, fault) else None


def backoff_s(strain: Strain, patience: Patience) -> float:
    """The bound under which the next pause is drawn."""
    return min(patience.longest_s, patience.first_s * 2.0 ** min(max(strain.attempts - 1, 0), 30))


def fits(pause: float, strain: Strain, patience: Patience, fault: Fault | None = None) -> bool:
    """Whether there is time for such a pause and an attempt after it, at the same target."""
    was_there = strain.has_answered or fault is None or fault.kind is not FaultKind.UNREACHABLE
    retry_s = patience.retry_s if was_there else min(patience.retry_s, patience.unreachable_s)
    return strain.spent_s + pause <= retry_s and strain.total_s + pause < patience.total_s


def is_stale(fault: Fault) -> bool:
    """Whether it was our own clocks that ended the attempt, and not an answer that says that somebody's did."""
    return fault.kind is FaultKind.TIMEOUT and fault.status is None and fault.code is None
