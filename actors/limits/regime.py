"""How a provider's answers drive its budget: whether calls are let out, how many at once, and when again. Pure.

    refusal                    what follows
    1302, 1303                 the learned limit is halved, a short pause, then one probe
    1305, 529                  30, 60, 90, 120 s of rest, each followed by one probe; the limit stays
    1308, 1310, 1316 to 1321   parked until the window ends, then one probe, then slot by slot
    1313 and closed accounts   locked until a person unlocks it
    anything else              the call's own affair

A probe that ends without a known outcome, or in what is the call's own affair, gives its place to the next one and
changes nothing else. Faults of calls that were let out before the latest decrease are the same event and count once.
An account that is overloaded for `OVERLOAD_TOTAL_S` without one success turns its waiters away, with the time of the
next try; whoever asks after that time is the next probe. A model that is busy (1312) holds no account: `busy_models`.

`now` is boottime: neither a set clock nor suspend ends or prolongs anything. `wall_ms` is for stamps alone.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from ...protocol.fault_kinds import Fault, FaultKind
from ...protocol.ids import BudgetKey, CallId
from ...protocol.messages.broker import BudgetState, Outcome, QuotaWindow, Refusal
from ...storage.standings import Standing
from .fault_counts import FaultCounts
from .holds import Hold, busy, unwell
from .learned import Learned
from .outlook import RegimeView, Turned, duration, wall
from .parks import Parks
from .release_lag import ReleaseLag
from .restart import Restart
from .suspects import Suspects

__all__ = ["Regime", "RegimeView", "Turned"]


class _Start(msgspec.Struct, frozen=True):
    """What was the case when a call was let out; of a call that an earlier broker let out, nothing is known."""

    level: int | None = None
    gap_s: float | None = None
    work: str | None = None


class Regime:
    """Owned by one `Budget`. Every call that is let out is `granted` once and `ended` once, however it ends."""

    def __init__(self, key: BudgetKey, *, provider: str, limit: int, release_lag_ms: float = 0.0) -> None:
        self._key = key
        self._provider = provider
        self._learned = Learned(limit)
        self._lag = ReleaseLag(release_lag_ms / 1000)
        self._parks = Parks()
        self._suspects = Suspects()
        self._faults = FaultCounts()
        self._starts: dict[CallId, _Start] = {}
        self._lock: str | None = None
        self._hold: Hold | None = None
        self._probe: CallId | None = None
        self._restart: Restart | None = None
        self._cut_at = self._overload_at = self._unlocked_at = float("-inf")
        self._quota: tuple[QuotaWindow, ...] = ()
        self._quota_seen_ms: int | None = None
        self._said: Standing | None = None
        self._is_touched = False

    # --- who may go --------------------------------------------------------------------------------------------------

    @property
    def state(self) -> BudgetState:
        """Whether calls are let out; the gravest reason why not."""
        if self._lock is not None:
            return BudgetState.LOCKED
        if self._parks:
            return BudgetState.PARKED
        return BudgetState.OPEN if self._hold is None else self._hold.state

    @property
    def is_locked(self) -> bool:
        """Whether a person has to act before anything else goes out."""
        return self._lock is not None

    def effective_limit(self, now: float) -> int:
        """How many calls may be in flight: configured, learned and, after a long rest, come back so far."""
        slots = self._learned.limit
        return slots if self._restart is None else min(slots, self._restart.slots(now))

    def admits(self, *, in_flight: int, now: float) -> bool:
        """Whether one more may go beside `in_flight` others, those that linger included."""
        if self._lock is not None or in_flight >= self.effective_limit(now):
            return False
        return self.state is BudgetState.OPEN or (self._probe is None and now >= self._until())

    def next_at(self, now: float) -> float | None:
        """When the answer of `admits` or `turns_all_away` may change by time alone."""
        times = [] if self._hold is None else [self._hold.patience_ends_at]
        if self.state is BudgetState.OPEN:
            times = (
                [self._restart.next_at(now)]
                if self.effective_limit(now) < self._learned.limit and self._restart
                else []
            )
        elif self._probe is None:
            times.append(self._until())
        return None if self.is_locked else min((at for at in times if at is not None and at > now), default=None)

    def turns_all_away(self, now: float) -> bool:
        """Whether waiters are to be told instead of held. Ask after admission: who may go is not turned away."""
        return self.is_locked or (self._hold is not None and self._hold.is_hopeless(now) and not self._parks)

    def turned_away(self, *, work: str | None, wait_s: float | None, now: float, wall_ms: int) -> Turned | None:
        """Say why a call that can wait so long gets no place here; None if it does. `wait_s` None is without end."""
        if self._lock is not None:
            return Turned(reason=Refusal.LOCKED, detail=self._lock)
        if (why := self._suspects.refused(work)) is not None:
            return Turned(reason=Refusal.REQUEST_REFUSED, detail=why)
        until = self._until()
        is_long = bool(self._parks) and wait_s is not None and until > now + wait_s
        is_hopeless = self.turns_all_away(now) and (self._probe is not None or until > now)
        if not (is_long or is_hopeless):
            return None
        return Turned(reason=Refusal.PARKED, detail=self._reason(), until_ms=wall(until, now, wall_ms))

    def is_doubtful(self, work: str | None) -> bool:
        """Whether any other waiter makes a better probe: this request was refused as overload, and may be the cause."""
        return self._suspects.is_doubtful(work)

    def is_closed(self, now: float) -> bool:
        """Whether the next call that is let out, if any, is a probe. Time alone opens nothing."""
        return self.state is not BudgetState.OPEN

    def lag_s(self) -> float:
        """How long a slot that was given back belongs to nobody."""
        return self._lag.seconds

    # --- what happens ------------------------------------------------------------------------------------------------

    def granted(self, call: CallId, *, work: str | None, in_flight: int, now: float) -> None:
        """A call was let out; `in_flight` counts it."""
        self._starts[call] = _Start(in_flight, self._lag.gap_s(now), work)
        if self.is_closed(now):
            assert self._probe is None, "one probe at a time"
            self._probe, self._is_touched = call, True

    def ended(
        self, call: CallId, *, granted_at: float, outcome: Outcome | None, now: float, wall_ms: int, chance: float
    ) -> None:
        """A call gave its slot back; `outcome` None: nobody knows how it ended. `chance` is random, from 0 to 1."""
        start = self._starts.pop(call, _Start())
        was_probe = call == self._probe
        if was_probe:
            self._probe, self._is_touched = None, True
        self._lag.freed(now)
        if outcome is None:
            return
        if outcome.fault is None:
            self._passed(start, granted_at, was_probe=was_probe, now=now)
            return
        self._faults.add(outcome.fault, wall_ms)
        self._failed(outcome.fault, start, granted_at, now=now, wall_ms=wall_ms, chance=chance)

    def answered(self, call: CallId, *, now: float) -> None:
        """The provider has begun to answer a call: if that is the probe, it has told what it was out to tell."""
        if call == self._probe:
            self._probe, self._is_touched = None, True
            self._reopen(now)

    def is_probe(self, call: CallId) -> bool:
        """Whether this is the one call that is out to try."""
        return call == self._probe

    def quota_seen(self, windows: tuple[QuotaWindow, ...], *, now: float, wall_ms: int) -> None:
        """The account's quota was read: full windows park it, and none that is full ends a park."""
        self._quota, self._quota_seen_ms, self._is_touched = windows, wall_ms, True
        was_parked = bool(self._parks)
        self._parks.reading(windows, now=now, wall_ms=wall_ms)
        if was_parked and not self._parks:
            self._restart = Restart(since=now)

    def unlock(self, now: float) -> None:
        """A person vouches for the account: lock, parks and pauses end, and what older calls say of it is past."""
        self._lock = self._hold = None
        self._parks.clear()
        self._suspects.forget()
        self._restart = Restart(since=now)
        self._cut_at = self._overload_at = self._unlocked_at = now
        self._probe, self._is_touched = None, True

    def configure(self, *, limit: int, release_lag_ms: float = 0.0) -> None:
        """The configuration says something else; what was learned holds inside it."""
        self._learned.configure(limit)
        self._lag.configured_s = release_lag_ms / 1000
        self._is_touched = True

    # --- what is kept and shown --------------------------------------------------------------------------------------

    def news(self, boot: str) -> Standing | None:
        """Return the standing if it differs from the one returned last in a way that is worth a record."""
        if not self._is_touched:
            return None
        self._is_touched = False
        standing = self._standing(boot)
        if not standing.is_news_after(self._said):
            return None
        self._said = standing
        return standing

    def restore(
        self, standing: Standing, *, boot: str, outstanding: Collection[CallId], now: float, wall_ms: int
    ) -> None:
        """Take over what an earlier broker, perhaps before a reboot, knew. To be called before anything else."""
        is_same = standing.boot == boot
        self._lock = standing.lock
        self._parks.restore(standing.parks, is_same_boot=is_same, now=now, wall_ms=wall_ms)
        self._hold = Hold.of(standing.hold, is_same_boot=is_same, now=now, wall_ms=wall_ms)
        self._learned.restore(standing.learned, refused_at=standing.refused_at, relapses=standing.relapses)
        self._lag.restore(standing.release_lag_ms / 1000)
        self._quota, self._quota_seen_ms = standing.quota, standing.quota_seen_ms
        self._probe = standing.probing if standing.probing in outstanding else None
        if self._hold is not None:
            # The calls that are still out were there when it began.
            self._cut_at = self._overload_at = now
        self._said, self._is_touched = standing, True

    def view(self, *, now: float, wall_ms: int) -> RegimeView:
        """Return all of it for people."""
        is_timed = self.is_closed(now) and not self.is_locked
        return RegimeView(
            limit=self.effective_limit(now),
            configured=self._learned.configured,
            learned=self._learned.value,
            state=self.state,
            state_reason=self._told(now),
            until_ms=wall(self._until(), now, wall_ms) if is_timed else None,
            probing=self._probe,
            release_lag_ms=self._lag.seconds * 1000,
            faults=self._faults.latest_first(),
            quota=self._quota,
            quota_seen_ms=self._quota_seen_ms,
        )

    # --- passing and failing -----------------------------------------------------------------------------------------

    def _passed(self, start: _Start, granted_at: float, *, was_probe: bool, now: float) -> None:
        self._suspects.passed(start.work, granted_at)
        self._lag.passed(start.level, start.gap_s)
        if granted_at > self._cut_at and self._learned.grow(start.level):
            self._is_touched = True
        if was_probe:
            self._reopen(now)

    def _reopen(self, now: float) -> None:
        if not self.is_closed(now) or self.is_locked:
            return
        if self.state is not BudgetState.PAUSED:
            self._restart = Restart(since=now)
        self._hold = None
        self._parks.clear()

    def _failed(
        self, fault: Fault, start: _Start, granted_at: float, *, now: float, wall_ms: int, chance: float
    ) -> None:
        match fault.kind:
            case FaultKind.LOCKED if granted_at > self._unlocked_at:
                self._lock = f"{fault.code}: {fault.message}" if fault.code else fault.message
            case FaultKind.QUOTA if granted_at > self._unlocked_at:
                self._parks.fault(fault, now=now, wall_ms=wall_ms)
            case FaultKind.CONCURRENCY | FaultKind.RATE:
                self._crowded(fault, start, granted_at, now=now, wall_ms=wall_ms, chance=chance)
            case FaultKind.OVERLOADED:
                blamed = self._suspects.overloaded(start.work, granted_at, fault.message, now)
                if not blamed and granted_at > self._overload_at:
                    self._overload_at = now
                    self._hold = unwell(self._hold, fault, now=now, wall_ms=wall_ms, chance=chance)
            case _:
                return
        self._is_touched = True

    def _crowded(
        self, fault: Fault, start: _Start, granted_at: float, *, now: float, wall_ms: int, chance: float
    ) -> None:
        if granted_at <= self._cut_at:
            if self._hold is not None:
                self._hold = self._hold.not_before(fault.retry_after_s, now=now, wall_ms=wall_ms)
            return
        self._cut_at = now
        is_lag = fault.kind is FaultKind.CONCURRENCY and self._lag.takes_blame(start.level, start.gap_s)
        if not is_lag:
            self._learned.shrink(start.level)
            self._lag.cleared(self._learned.limit)
        self._hold = busy(self._hold, fault, now=now, wall_ms=wall_ms, chance=chance)

    # --- words and times ---------------------------------------------------------------------------------------------

    def _until(self) -> float:
        park, hold = self._parks.last, self._hold
        return max((one.until for one in (park, hold) if one is not None), default=float("-inf"))

    def _reason(self) -> str:
        if self._lock is not None:
            return self._lock
        if (park := self._parks.last) is not None:
            return park.reason
        return "" if self._hold is None else self._hold.reason

    def _told(self, now: float) -> str | None:
        if self.is_locked:
            return f"{self._reason()}; settle it with the provider, then `covey budget unlock {self._key}`"
        if self.is_closed(now):
            return f"{self._reason()}; {self._next_try(now)}"
        if self.effective_limit(now) < self._learned.limit:
            return f"restarting: {self.effective_limit(now)} of {self._learned.limit} slots are back"
        return None

    def _next_try(self, now: float) -> str:
        if self._probe is not None:
            return "one call is out to try"
        wait_s = self._until() - now
        return f"next try in {duration(wait_s)}" if wait_s > 0 else "the next call tries"

    def _standing(self, boot: str) -> Standing:
        value = self._learned.value
        return Standing(
            budget=self._key,
            provider=self._provider,
            boot=boot,
            lock=self._lock,
            parks=self._parks.kept(),
            hold=None if self._hold is None else self._hold.kept(),
            probing=self._probe,
            learned=None if value is None else float(self._learned.limit),
            refused_at=self._learned.refused_at,
            relapses=self._learned.relapses,
            release_lag_ms=self._lag.learned_s * 1000,
            quota=self._quota,
            quota_seen_ms=self._quota_seen_ms,
        )
