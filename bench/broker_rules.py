"""What the broker's rules alone cost, without a process or a socket: the time of a decision and the memory of a waiter,
with few and with many in the queue.
"""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from ..actors.limits.actions import Asked, GivenBack, Grant
from ..actors.limits.book import Book
from ..actors.limits.claim import Claim
from ..actors.limits.terms import Terms
from ..protocol.ids import BudgetKey, CallId, Incarnation
from ..protocol.messages.broker import Priority
from ..protocol.peer import Owner, Peer

_HOLDER: Final = Peer(
    role="client", name="bench", incarnation=Incarnation("bench-1"), owner=Owner(pid=1, start_ticks=1, boot_id="bench")
)


@dataclass(frozen=True, slots=True)
class Rules:
    """Seconds of each decision: to ask for a place, and to hand the slot over to the next."""

    ask: list[float]
    hand_over: list[float]
    waiter_bytes: float
    """What each waiter takes; NaN for none."""


def rules_with(queued: int, *, rounds: int) -> Rules:
    """Measure a book of one slot with so many waiting for it: one more asks, then the slot changes hands."""
    gc.collect()
    tracemalloc.start()
    bench = _Bench(queued)
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    ask: list[float] = []
    hand_over: list[float] = []
    for _ in range(rounds):
        ask.append(bench.ask())
        hand_over.append(bench.hand_over())
    return Rules(ask=ask, hand_over=hand_over, waiter_bytes=taken / queued if queued else float("nan"))


class _Bench:
    def __init__(self, queued: int) -> None:
        self._book = Book({"sim": Terms(limit=1)}, queue_bound=2 * queued + 16)
        self._asked, self._now = 0, 0.0
        self._holder = CallId("call_0000000000000000")
        for _ in range(queued + 1):
            self.ask()

    def ask(self) -> float:
        event = Asked(self._claim())
        self._now += 0.0001
        began = perf_counter()
        self._book.decide(event, self._now)
        return perf_counter() - began

    def hand_over(self) -> float:
        event = GivenBack(self._holder)
        self._now += 0.0001
        began = perf_counter()
        actions = self._book.decide(event, self._now)
        took = perf_counter() - began
        (self._holder,) = (action.lease.call for action in actions if isinstance(action, Grant))
        return took

    def _claim(self) -> Claim:
        call = f"call_{self._asked:016x}"
        self._asked += 1
        return Claim(
            call=CallId(call),
            budget=BudgetKey("sim"),
            provider="sim",
            base_url="http://127.0.0.1/v1",
            model="sim-1",
            holder=_HOLDER,
            # Each waits for itself, as agents of many programs do.
            tree=f"tree_{self._asked:016x}",
            priority=Priority.AGENT,
            timeout_s=None,
            hold_s=3600.0,
            asked_at_ms=0,
        )
