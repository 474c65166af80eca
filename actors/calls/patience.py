"""How long a failed call is tried again: a bound on time, and a smaller one on attempts that may have cost tokens.

Pure: randomness comes in as `chance` (0 to 1). The wait for a slot counts against neither bound.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ...protocol.faults import Fault, FaultAction, FaultKind

DOUBTFUL: Final = frozenset({FaultKind.TRUNCATED, FaultKind.TIMEOUT, FaultKind.INVALID_RESPONSE, FaultKind.UNKNOWN})
"""The provider may have done the work and billed it, or nobody knows what is wrong."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of trying again. With the defaults a provider may be unwell for ten minutes."""

    total_s: float = 600.0
    """Failed attempts and the pauses between them, together."""
    first_s: float = 1.0
    longest_s: float = 30.0
    doubtful_attempts: int = 3
    """Attempts in all that may end in a `DOUBTFUL` fault."""
    unreachable_s: float = 60.0
    """The same as `total_s` where nothing ever answered: an address that is wrong is to be said soon."""


DEFAULT_PATIENCE: Final = Patience()


class Strain(msgspec.Struct, frozen=True, kw_only=True):
    """What a call has gone through so far."""

    attempts: int = 0
    doubtful: int = 0
    spent_s: float = 0.0
    has_answered: bool = False
    """Whether the provider was there at least once."""

    def after(self, fault: Fault, took_s: float) -> Strain:
        """One more failed attempt that took `took_s`."""
        return Strain(
            attempts=self.attempts + 1,
            doubtful=self.doubtful + (fault.kind in DOUBTFUL),
            spent_s=self.spent_s + took_s,
            has_answered=self.has_answered or fault.kind is not FaultKind.UNREACHABLE,
        )

    def paused(self, pause_s: float) -> Strain:
        """The pause before the next attempt is over."""
        return msgspec.structs.replace(self, spent_s=self.spent_s + pause_s)


def pause_s(
    fault: Fault, strain: Strain, patience: Patience, *, chance: float, is_brokered: bool = False
) -> float | None:
    """Seconds until the next attempt after `fault`, which `strain` includes; None: it ends here.

    Full jitter between 0 and a bound that doubles; never before the time the provider asked for. A time that does
    not fit into what is left ends the call at once instead of after a vain wait. `is_brokered`: what is the account's
    trouble is timed by the broker, and not a second time here.
    """
    if fault.action is FaultAction.WAIT and is_brokered:
        return 0.0 if strain.spent_s <= patience.total_s else None
    if fault.action not in (FaultAction.RETRY, FaultAction.WAIT):
        return None
    if fault.kind is FaultKind.QUOTA and fault.retry_after_s is None:
        return None  # its window ends in hours; asking again every half a minute would only be noise
    if strain.doubtful >= patience.doubtful_attempts:
        return None
    bound = min(patience.longest_s, patience.first_s * 2.0 ** min(strain.attempts - 1, 30))
    pause = (fault.retry_after_s or 0.0) + bound * chance
    was_there = strain.has_answered or fault.kind is not FaultKind.UNREACHABLE
    total_s = patience.total_s if was_there else min(patience.total_s, patience.unreachable_s)
    return pause if strain.spent_s + pause <= total_s else None
