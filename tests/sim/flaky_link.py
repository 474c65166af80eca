"""A link that drops, duplicates, delays and reorders what is put on it, in virtual time, by a seed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong: probabilities per message, and the longest delay in seconds."""

    drop: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0
    reorder: float = 0.0


@dataclass(slots=True)
class VirtualTime:
    """Calls what is due, in order; time passes only between the calls."""

    now: float = 0.0
    _due: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _order: count[int] = field(default_factory=count)

    def call_in(self, seconds: float, work: Callable[[], None]) -> None:
        """Call `work` after that much time."""
        heapq.heappush(self._due, (self.now + seconds, next(self._order), work))

    def run(self, *, until: Callable[[], bool], limit_s: float) -> bool:
        """Let time pass until the condition holds; False if it does not within `limit_s`."""
        while not until():
            at, _, work = heapq.heappop(self._due)
            if at > limit_s:
                return False
            self.now = max(self.now, at)
            work()
        return True


class FlakyLink:
    """One direction of a wire. The same seed and the same use meet the same faults.

    Without `reorder` messages keep their order, however long each of them is delayed.
    """

    def __init__(self, seed: str, faults: Faults, time: VirtualTime, deliver: Callable[[bytes], None]) -> None:
        self._random = random.Random(seed)
        self._faults = faults
        self._time = time
        self._deliver = deliver
        self._last_at = 0.0
        self._generation = 0
        self.is_faulty = True
        self.dropped = self.duplicated = self.overtaken = 0

    def put(self, messages: list[bytes]) -> None:
        """Send these."""
        for message in messages:
            self._put(message)

    def cut(self) -> None:
        """Lose everything that is under way, as a connection that breaks does."""
        self._generation += 1
        self._last_at = self._time.now

    def _put(self, message: bytes) -> None:
        faults = self._faults if self.is_faulty else Faults()
        if self._random.random() < faults.drop:
            self.dropped += 1
            return
        copies = 1
        if self._random.random() < faults.duplicate:
            self.duplicated += 1
            copies = 2
        for _ in range(copies):
            self._send_one(message, faults)

    def _send_one(self, message: bytes, faults: Faults) -> None:
        at = self._time.now + 0.0001 + self._random.random() * faults.delay
        if self._random.random() < faults.reorder:
            self.overtaken += at < self._last_at
        else:
            at = max(at, self._last_at)
            self._last_at = at
        generation = self._generation

        def arrive() -> None:
            if generation == self._generation:
                self._deliver(message)

        self._time.call_in(at - self._time.now, arrive)
