"""Dead letters: messages and answers that went nowhere. Counted for ever, the last ones kept by name.

No payload is kept: a prompt has no business in a status, and a message would keep what it refers to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from threading import Lock
from typing import Final

import msgspec

LAST: Final = 100


class DeadReason(StrEnum):
    """Why nobody got it."""

    REFUSED = "refused"
    """The mailbox was full; the sender has it back."""
    DISPLACED = "displaced"
    """It was dropped from a full mailbox in favour of a newer one."""
    DOWN = "down"
    """Its actor had ended."""
    STALE = "stale"
    """Its actor had ended and a later life has the name."""
    DROPPED = "dropped"
    """It was waiting when its actor ended."""
    UNWANTED = "unwanted"
    """An ask whose asker was gone before it was begun."""
    LATE_REPLY = "late_reply"
    """The ask was handled, but its asker was gone by then."""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """One message that went nowhere, by the names of its receiver and its type."""

    to: str
    message: str
    reason: DeadReason
    age_s: float


class DeadLettersView(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters of a loop; the last ones, oldest first."""

    counts: dict[DeadReason, int]
    last: tuple[DeadLetter, ...]


class DeadLetters:
    """The dead letters of one loop. Used from any thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = Lock()
        self._counts = dict.fromkeys(DeadReason, 0)
        self._last: deque[tuple[str, str, DeadReason, float]] = deque(maxlen=LAST)

    def add(self, to: object, message: object, reason: DeadReason) -> None:
        """Count one."""
        self.add_all(to, (message,), reason)

    def add_all(self, to: object, messages: Sequence[object], reason: DeadReason) -> None:
        """Count them; of many only the last are looked at."""
        now, name = self._clock(), str(to)
        entries = [(name, type(message).__name__, reason, now) for message in messages[-LAST:]]
        with self._lock:
            self._counts[reason] += len(messages)
            self._last.extend(entries)

    def count(self, reason: DeadReason) -> int:
        """How many there were."""
        return self._counts[reason]

    def view(self) -> DeadLettersView:
        """What status shows."""
        now = self._clock()
        with self._lock:
            counts, last = dict(self._counts), list(self._last)
        letters = [DeadLetter(to=to, message=name, reason=why, age_s=now - at) for to, name, why, at in last]
        return DeadLettersView(counts=counts, last=tuple(letters))
