"""Processes of other hosts that have something of ours: each is believed to live for a while after it was heard.

Pure. The kernel tells of the end of our own host's processes; of these it knows nothing.
"""

from __future__ import annotations

from collections import OrderedDict

from ...protocol.peer import Owner


class Distant:
    """Who was heard when; owned by the book. An owner is here as long as it has something."""

    def __init__(self, *, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        # In the order of their ends: everybody is believed for the same time, so who was heard last ends last.
        self._ends: OrderedDict[Owner, float] = OrderedDict()

    def __contains__(self, owner: Owner) -> bool:
        return owner in self._ends

    def __len__(self) -> int:
        return len(self._ends)

    def hear(self, owner: Owner, now: float) -> None:
        """Believe in this owner from now on, or for longer."""
        self._ends[owner] = now + self._ttl_s
        self._ends.move_to_end(owner)

    def forget(self, owner: Owner) -> None:
        """It has nothing any more."""
        self._ends.pop(owner, None)

    def next_at(self) -> float | None:
        """Return when the first of them ends if nothing is heard."""
        return next(iter(self._ends.values()), None)

    def pop_due(self, now: float) -> list[Owner]:
        """Take out those who were not heard for too long, longest first."""
        due: list[Owner] = []
        while (at := self.next_at()) is not None and at <= now:
            due.append(self._ends.popitem(last=False)[0])
        return due
