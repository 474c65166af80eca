"""Which key of several a call takes. Pure: the caller passes the time and the chance.

Keys are known by their account. One that rests or is to be avoided is never taken, whatever the strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

from ...protocol.messages.credentials import Rest
from ...protocol.settings import KeyStrategy
from .rests import longer


@dataclass(frozen=True, slots=True)
class NoneFree:
    """No key can be taken now."""

    until_ms: int | None
    """When the first one may be again; None where only a person can help, or all that are free are to be avoided."""
    reason: str


class Pool:
    """The keys of one provider, as one chooser sees them; it counts its own choices alone."""

    def __init__(self) -> None:
        self._rests: dict[str, Rest | None] = {}
        self._uses: dict[str, int] = {}
        self._last: str | None = None

    @property
    def accounts(self) -> tuple[str, ...]:
        """All keys, in their order."""
        return tuple(self._rests)

    def offer(self, keys: Mapping[str, Rest | None]) -> None:
        """These are the keys from now on, in this order, with their rests; what was counted of those that stay, stays.

        A new one counts as used as often as the least used one, or it would get every call for a long time.
        """
        least = min((self._uses[account] for account in keys if account in self._uses), default=0)
        self._uses = {account: self._uses.get(account, least) for account in keys}
        self._rests = dict(keys)

    def rest(self, account: str, rest: Rest) -> None:
        """This key rests, for as long as that or the rest it already has; one that is not here is ignored."""
        if account in self._rests:
            self._rests[account] = longer(self._rests[account], rest)

    def choose(
        self, strategy: KeyStrategy, *, avoid: frozenset[str], now_ms: int, chance: Callable[[], float]
    ) -> str | NoneFree:
        """The account to call with, which counts as used; changes nothing where there is none."""
        free = [account for account in self._rests if account not in avoid and not self._does_rest(account, now_ms)]
        if not free:
            return self._none_free(avoid, now_ms)
        self._keep_level(now_ms)
        chosen = self._of_free(free, strategy, chance)
        self._uses[chosen] += 1
        self._last = chosen
        return chosen

    def _of_free(self, free: list[str], strategy: KeyStrategy, chance: Callable[[], float]) -> str:
        match strategy:
            case KeyStrategy.FILL_FIRST:
                return free[0]
            case KeyStrategy.ROUND_ROBIN:
                order = {account: at for at, account in enumerate(self._rests)}
                last = order.get(self._last or "", -1)
                return min(free, key=lambda account: (order[account] <= last, order[account]))
            case KeyStrategy.LEAST_USED:
                return min(free, key=lambda account: self._uses[account])
            case KeyStrategy.RANDOM:
                return free[min(int(chance() * len(free)), len(free) - 1)]
            case _:
                assert_never(strategy)

    def _keep_level(self, now_ms: int) -> None:
        """A key that rests counts on with the others, or it would get every call for a long time afterwards."""
        resting = {account for account in self._rests if self._does_rest(account, now_ms)}
        least = min((uses for account, uses in self._uses.items() if account not in resting), default=0)
        self._uses.update({account: max(self._uses[account], least) for account in resting})

    def _does_rest(self, account: str, now_ms: int) -> bool:
        rest = self._rests[account]
        return rest is not None and rest.holds(now_ms)

    def _none_free(self, avoid: frozenset[str], now_ms: int) -> NoneFree:
        if not self._rests:
            return NoneFree(None, "it has none")
        resting = [rest for rest in self._rests.values() if rest is not None and rest.holds(now_ms)]
        ends = [rest.until_ms for rest in resting if rest.until_ms is not None]
        until_ms = min(ends, default=None)
        if not resting:
            return NoneFree(None, "each of its keys was refused")
        first = next((rest for rest in resting if rest.until_ms == until_ms), resting[0])
        how_many = "its key rests" if len(self._rests) == 1 else f"{len(resting)} of its {len(self._rests)} keys rest"
        others = ", the others were refused" if len(resting) < len(self._rests) else ""
        return NoneFree(until_ms, f"{how_many}{others}: {first.reason}")
