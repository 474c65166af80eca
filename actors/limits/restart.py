"""The staggered restart: slots come back one after another. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

STEP_S: Final = 2.0


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """A restart that began at `since` with one slot; each `STEP_S` gives back one more."""

    since: float

    def slots(self, now: float) -> int:
        """How many slots are back at `now`."""
        return 1 + max(0, int((now - self.since) / STEP_S))

    def next_at(self, now: float) -> float:
        """When the next one comes back."""
        return self.since + self.slots(now) * STEP_S
