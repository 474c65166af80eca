"""A budget's limits per minute, requests and tokens together. Pure."""

from __future__ import annotations

from ...protocol.ids import CallId
from ...protocol.messages.broker import RateView
from ...storage.leases import Lease
from .caps import DEFAULT_TOKENS
from .claim import Claim
from .windows import Window


class Rates:
    """Both windows of one budget; without limits everything fits."""

    def __init__(self) -> None:
        self._requests: Window | None = None
        self._tokens: Window | None = None

    def configure(self, *, requests: int | None, tokens: int | None) -> None:
        """Let these limits count from now on; what was counted stays counted."""
        self._requests = _limited(self._requests, requests)
        self._tokens = _limited(self._tokens, tokens)

    def fits(self, claim: Claim, now: float) -> bool:
        """Whether this call may start."""
        return all(window.fits(amount, now) for window, amount in self._amounts(claim))

    def fits_at(self, claim: Claim, now: float) -> float:
        """Return the earliest time at which it may, if nothing else starts before."""
        return max((window.fits_at(amount, now) for window, amount in self._amounts(claim)), default=now)

    def count(self, lease: Lease, now: float) -> None:
        """Count a call that starts."""
        if self._requests is not None:
            self._requests.count(lease.call, 1, now)
        if self._tokens is not None:
            self._tokens.count(lease.call, _tokens(lease.estimated_tokens), now)

    def ended(self, call: CallId, tokens: int | None, now: float) -> None:
        """The call is over and used so many tokens; None if nobody knows."""
        if self._requests is not None:
            self._requests.keep(call, now)
        if self._tokens is not None and tokens is not None:
            self._tokens.correct(call, tokens, now)
        elif self._tokens is not None:
            self._tokens.keep(call, now)

    def views(self, now: float) -> tuple[RateView, ...]:
        """The limits there are, and what the last minute used of them."""
        named = (("requests", self._requests), ("tokens", self._tokens))
        return tuple(
            RateView(unit=unit, limit=window.limit, used=window.used(now))
            for unit, window in named
            if window is not None
        )

    def _amounts(self, claim: Claim) -> tuple[tuple[Window, int], ...]:
        named = ((self._requests, 1), (self._tokens, _tokens(claim.estimated_tokens)))
        return tuple((window, amount) for window, amount in named if window is not None)


def _tokens(estimate: int | None) -> int:
    return DEFAULT_TOKENS if estimate is None else estimate


def _limited(window: Window | None, limit: int | None) -> Window | None:
    if limit is None:
        return None
    if window is None:
        return Window(limit)
    window.limit = limit
    return window
