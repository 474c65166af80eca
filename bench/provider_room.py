"""Room for calls: how many one account has in flight, of all models and of each, and what still counts after its end.

Pure: the caller passes the time. Calls are a set of ids, so that ending one twice changes nothing.
"""

from __future__ import annotations

import heapq
from collections import Counter

import msgspec


class _Held(msgspec.Struct, frozen=True):
    account: str
    model: str


class Room:
    """Who takes up room. Owned by the loop thread."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}
        self._leaving: list[tuple[float, int]] = []
        self._taken: Counter[_Held] = Counter()
        self._by_account: Counter[str] = Counter()

    def enter(self, call: int, account: str, model: str) -> None:
        """Let a call in. The caller has looked."""
        held = self._held[call] = _Held(account, model)
        self._taken[held] += 1
        self._by_account[account] += 1

    def leave(self, call: int, *, at: float) -> None:
        """Give a call's room back at `at`, which may lie ahead; nothing changes if it has left already."""
        heapq.heappush(self._leaving, (at, call))

    def taken(self, account: str, model: str, *, now: float) -> tuple[int, int]:
        """Calls that count at `now`: the account's, and of those the model's."""
        self._let_go(now)
        return self._by_account[account], self._taken[_Held(account, model)]

    def _let_go(self, now: float) -> None:
        # A heap: the lag may have been changed while calls were leaving.
        while self._leaving and self._leaving[0][0] <= now:
            _, call = heapq.heappop(self._leaving)
            held = self._held.pop(call, None)
            if held is not None:
                self._subtract(held)

    def _subtract(self, held: _Held) -> None:
        self._taken[held] -= 1
        self._by_account[held.account] -= 1
        # Empty counts go: names of models and keys come from outside and have no end.
        if not self._taken[held]:
            del self._taken[held]
        if not self._by_account[held.account]:
            del self._by_account[held.account]
