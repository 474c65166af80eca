"""One provider account: its budget, and what else decides who is let out. Pure.

Three things have a say before a slot is given: the regime (what the provider's answers tell), the limits per minute,
and the caps a call spends from. Whoever waits only for room under a cap, or is a bad probe, stands aside: others of
the account go before, and nobody behind is held up.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from ...protocol.ids import BudgetKey, CallId
from ...storage.leases import Lease
from .budget import Budget
from .busy_models import BusyModels
from .caps import Caps
from .claim import Claim, Waiter
from .rates import Rates
from .regime import Regime
from .terms import Terms


class Aside(StrEnum):
    """Why a waiter stands aside."""

    CAP = "cap"
    """Calls that run have reserved what is left under its cap."""
    DOUBT = "doubt"
    """Its request failed before, so another is to try whether the account answers again."""
    BUSY = "busy"
    """Its model has too much to do; others of the account may answer."""


class Overspent(msgspec.Struct, frozen=True):
    """Whoever is next has no room under a cap, and will have none."""

    waiter: Waiter
    why: str


class Account:
    """Owned by the book. Slots and order are the budget's; this says when, and to whom not."""

    def __init__(self, key: BudgetKey, *, provider: str, terms: Terms, caps: Caps) -> None:
        self.budget = Budget(
            key, provider=provider, limit=terms.limit, model_limits=terms.model_limits, weights=terms.weights
        )
        self.regime = Regime(key, provider=provider, limit=terms.limit, release_lag_ms=terms.release_lag_ms)
        self.rates = Rates()
        self.busy = BusyModels()
        self.aside: OrderedDict[CallId, tuple[Waiter, Aside]] = OrderedDict()
        self.turned_over_at: float | None = None
        self._caps = caps
        self._quota_asked_at: float | None = None
        self.configure(terms)

    @property
    def key(self) -> BudgetKey:
        """The account's name."""
        return self.budget.key

    @property
    def queued(self) -> int:
        """All who wait."""
        return len(self.budget.queue) + len(self.aside)

    def waiters(self) -> Iterator[Waiter]:
        """Yield all who wait, those in the queue first."""
        yield from self.budget.queue
        yield from (waiter for waiter, _ in self.aside.values())

    def configure(self, terms: Terms) -> None:
        """Let these terms count from now on; leases and waiters stay."""
        self.terms = terms
        self.budget.configure(terms.limit, terms.model_limits, terms.weights)
        self.regime.configure(limit=terms.limit, release_lag_ms=terms.release_lag_ms)
        self.rates.configure(requests=terms.requests_per_minute, tokens=terms.tokens_per_minute)

    # --- letting out -------------------------------------------------------------------------------------------------

    def admit(self, now: float) -> Lease | Overspent | None:
        """Give a slot to whoever is next and may; None when there is none, or nobody."""
        while self.budget.queue and self._is_open(now) and (waiter := self.budget.next(now)) is not None:
            if self._is_bad_probe(waiter.claim, now):
                self._set_aside(waiter, Aside.DOUBT)
                continue
            if self.busy.holds(waiter.claim.model, now):
                self._set_aside(waiter, Aside.BUSY)
                continue
            if (why := self._cap_problem(waiter.claim)) is not None:
                if self._is_overspent(waiter.claim):
                    self.budget.drop(waiter.claim.call)
                    return Overspent(waiter, why)
                self._set_aside(waiter, Aside.CAP)
                continue
            lease = self.budget.admit(now, lambda claim: self.rates.fits(claim, now))
            if lease is not None:
                self._let_out(lease, now)
            return lease
        return None

    def would_wait(self, claim: Claim, now: float) -> bool:
        """Whether this claim, if it came now, would not be let out at once."""
        return not self._is_open(now) or not self.rates.fits(claim, now) or self.budget.would_wait(claim, now)

    def restore(self, lease: Lease, now: float) -> None:
        """Take over a lease that an earlier broker granted."""
        self.budget.keep(lease)
        self.rates.count(lease, now)
        self._reserve(lease)

    def next_at(self, now: float) -> float | None:
        """When somebody may be let out by time alone."""
        if not self.queued:
            return None
        waiter = self.budget.next(now)
        times = [self.regime.next_at(now), self.busy.next_at(now) if self.aside else None]
        if waiter is not None and not self.rates.fits(waiter.claim, now):
            times.append(self.rates.fits_at(waiter.claim, now))
        return min((at for at in times if at is not None), default=None)

    def recall(self, now: float) -> None:
        """Something has changed: whoever stands aside may stand in the queue again, if it could be let out."""
        for call, (waiter, why) in tuple(self.aside.items()):
            if not self._stays_aside(waiter.claim, why, now):
                del self.aside[call]
                self.budget.queue.push(waiter)

    def drop(self, call: CallId) -> Lease | Waiter | None:
        """Free the call's slot or its place, whichever it has."""
        found = self.aside.pop(call, None)
        return found[0] if found is not None else self.budget.drop(call)

    def asks_for_quota(self, now: float) -> bool:
        """Whether somebody should read the account's quota now; says so once per interval."""
        poll_s = self.terms.quota_poll_s
        if poll_s is None or (self._quota_asked_at is not None and now < self._quota_asked_at + poll_s):
            return False
        self._quota_asked_at = now
        return True

    def _is_open(self, now: float) -> bool:
        if not self.regime.admits(in_flight=self.budget.in_flight, now=now):
            return False
        self.budget.ceiling = self.regime.effective_limit(now)
        return True

    def _is_bad_probe(self, claim: Claim, now: float) -> bool:
        others = len(self.budget.queue) > 1
        return others and self.regime.is_closed(now) and self.regime.is_doubtful(claim.work)

    def _let_out(self, lease: Lease, now: float) -> None:
        self.turned_over_at = now
        self.regime.granted(lease.call, work=lease.work, in_flight=self.budget.in_flight, now=now)
        self.rates.count(lease, now)
        self._reserve(lease)

    def _stays_aside(self, claim: Claim, why: Aside, now: float) -> bool:
        match why:
            case Aside.CAP:
                return self._cap_problem(claim) is not None and not self._is_overspent(claim)
            case Aside.BUSY:
                return self.busy.holds(claim.model, now)
            case Aside.DOUBT:
                return False

    def _set_aside(self, waiter: Waiter, why: Aside) -> None:
        self.budget.drop(waiter.claim.call)
        self.aside[waiter.claim.call] = waiter, why

    # --- caps --------------------------------------------------------------------------------------------------------

    def _cap_problem(self, claim: Claim) -> str | None:
        """Why it cannot start under its caps now."""
        return self._caps.problem(*self._wish(claim), provider=claim.provider, model=claim.model)

    def _is_overspent(self, claim: Claim) -> bool:
        """Whether it could not start either if every call that runs cost nothing."""
        return self._caps.is_lasting(*self._wish(claim), provider=claim.provider, model=claim.model)

    def _wish(self, claim: Claim) -> tuple[tuple[str, ...], int | None, float | None]:
        return self._caps.names(claim.cap), claim.estimated_tokens, claim.estimated_cost_usd

    def _reserve(self, lease: Lease) -> None:
        names = self._caps.names(lease.cap)
        if names:
            self._caps.reserve(lease.call, names, lease.estimated_tokens, lease.estimated_cost_usd)
