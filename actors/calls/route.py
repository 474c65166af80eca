"""The way of one call through its chain of targets: stay, take another key, go on, or end.

Pure state of one call, owned by its task; nothing is waited for in here. The loop around it:

    step = route.begin()
    Next, Rotate → choose a key avoiding `route.avoid`; then `route.chose(fingerprint, at)` says None (go ahead) or
    another step. Again → the pause, then the same target with the same key. End → it is over.
    After an attempt: `failed`, `refused` (no key, no slot) or `answered`.

A target is skipped while it rests (`Benches`), and if what failed in this call is proven to be its failure too. When
nothing else is left, the call comes back to what it skipped or left for a better target, once for real and with what
was left of its patience there: fallbacks end no call that its primary alone would have answered in that time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from ...protocol.backend import NO_CREDENTIAL, is_same
from ...protocol.errors import (
    BrokerSilent,
    BudgetLocked,
    BudgetParked,
    CoveyError,
    NoKey,
    QueueFull,
    RequestRefused,
    SlotTimeout,
)
from ...protocol.fault_kinds import Fault, FaultKind, FaultScope
from .benches import Benches, Rest, reset_in_s, told_scope
from .chain import Chain, Resort, Target
from .failover import OF_KEY, WAIT_WORTH_S, is_worth_staying, may_help_elsewhere, may_rotate
from .patience import DEFAULT_PATIENCE, Patience, Strain, fits, pause_s

__all__ = ["Again", "End", "Instant", "Next", "Rotate", "Route", "Step", "Target"]

MAX_ROTATIONS: Final = 8
"""Keys that one call tries at one target."""
LEAST_KEY_WAIT_S: Final = 1.0
"""Keys are asked for no faster than this, if they are back a moment later than was said."""


class Instant(NamedTuple):
    """When something happened: the loop's time, Unix seconds, and the chance (0 to 1) drawn for it."""

    now: float
    wall: float
    chance: float


@dataclass(frozen=True, slots=True)
class Again:
    """The same target with the same key (a new one where there was none), after `pause_s`."""

    pause_s: float


@dataclass(frozen=True, slots=True)
class Rotate:
    """The same target with another key. `fault` is to be told to `Keys.trouble` (None: it is known); `renew`: ask
    `Keys.renew` before `Keys.choose`."""

    fault: Fault | None
    renew: bool = False


@dataclass(frozen=True, slots=True)
class Next:
    """Another target: key, rendering, clocks and mends anew, after `pause_s` where the call comes back to one."""

    target: Target
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class End:
    """Nobody can answer; `cause` is what was heard last, of a provider or of this fleet."""

    cause: Fault | CoveyError


Step = Again | Rotate | Next | End


class Route:
    """Where one call is, and where it goes after a fault. `targets` is not empty; the first is the primary."""

    def __init__(self, targets: tuple[Target, ...], *, benches: Benches, patience: Patience = DEFAULT_PATIENCE) -> None:
        assert targets, "a call has a target"
        self._chain, self._benches, self._patience = Chain(targets), benches, patience
        self._index = 0
        self._is_last_resort = False
        self._avoid: dict[str, dict[str, FaultScope]] = {}
        self._renewed: set[str] = set()
        self._rotations = self._rates = 0
        self._pending: tuple[Fault, bool] | None = None
        self._rest: Rest | None = None
        self.target = targets[0]
        """Where the call is."""
        self.backend = self.target.backend(None)
        """The same with the key that was chosen."""
        self.strain = Strain()
        self.attempts = 0
        """Those that were sent, at all targets."""
        self.trail: list[tuple[Target, Fault | CoveyError]] = []
        """The targets that were left, and why."""

    # --- what the next attempt needs ---------------------------------------------------------------------------------

    @property
    def avoid(self) -> frozenset[str]:
        """Fingerprints of this target's keys that are not to be chosen."""
        return frozenset(self._avoid.get(self.target.provider.name, ()))

    @property
    def left_s(self) -> float:
        """What the next attempt may take at most."""
        return max(0.0, self._patience.total_s - self.strain.total_s)

    def park_wait_s(self, now: float) -> float | None:
        """How long a parked account is worth waiting for; None: as long as the provider's settings say."""
        has_other = self._has_other(FaultScope.ACCOUNT, now)
        return WAIT_WORTH_S if has_other and not self._is_last_resort else None

    # --- what happens ------------------------------------------------------------------------------------------------

    def begin(self) -> Next:
        """Begin at the primary."""
        return Next(self.target)

    def chose(self, fingerprint: str | None, at: Instant) -> Step | None:
        """There is a key (None: the provider needs none). None: go ahead; else what to do instead."""
        self.backend = self.target.backend(fingerprint or NO_CREDENTIAL)
        self._chain.chose(self.backend)
        self._pending, self._rest, self._rates = None, None, 0
        is_gone = self._chain.is_lost if self._is_last_resort else self._chain.is_dead
        if is_gone(self.backend):
            return self._go_on(self.trail[-1][1], at)
        if self._is_last_resort:
            return None
        self._rest = self._benches.resting(self.backend, at.now)
        if self._rest is None:
            return None
        self._keep_in_mind(self._rest.until, asked=False)
        if self._rest.scope in OF_KEY and fingerprint is not None and self._rotations < MAX_ROTATIONS:
            return self._rotate(None, self._rest.scope)
        return self._leave(self._rest.fault, at)

    def renewed(self) -> None:
        """The key that was refused was renewed and is the same account's: go ahead with the new one."""
        self._pending, self._rest, self._rates = None, None, 0
        self._chain.forgive(self.backend)
        self._avoid.get(self.target.provider.name, {}).pop(self.backend.credential or "", None)

    def failed(self, fault: Fault, took_s: float, at: Instant, *, is_brokered: bool = False) -> Step:
        """The attempt ended in `fault` after `took_s`, and it could not be mended."""
        self.strain = self.strain.after(fault, took_s)
        self.attempts += fault.kind is not FaultKind.NOT_SENT
        self._rates = self._rates + 1 if fault.kind is FaultKind.RATE else 0
        may_still = self._rotations < MAX_ROTATIONS and self.left_s > 0
        if may_still and may_rotate(fault, self.backend, rates=self._rates, wall=at.wall):
            self._pending = (fault, is_brokered)
            return self._rotate(fault, told_scope(fault))
        return self._decide(fault, at, is_brokered=is_brokered)

    def mended(self, took_s: float) -> None:
        """The attempt ended in a fault after `took_s`, and a mended request goes to the same target at once."""
        self.strain = self.strain.paused(took_s)
        self.attempts += 1

    def paused(self, pause_s: float) -> None:
        """A pause is over."""
        self.strain = self.strain.paused(pause_s)

    def refused(self, error: CoveyError, at: Instant) -> Step:
        """This fleet said no: no key, or no slot. It speaks against no backend, whoever it is said of."""
        match error:
            case NoKey():
                return self._without_key(error, at)
            case BudgetParked(until=until):
                self._keep_in_mind(inf if until is None else at.now + until - at.wall, asked=False)
                self._chain.failed(self.backend, FaultScope.ACCOUNT, is_final=False)
            case BudgetLocked():
                self._chain.failed(self.backend, FaultScope.ACCOUNT, is_final=True)
            case RequestRefused():
                self._chain.failed(self.backend, FaultScope.REQUEST, is_final=True)
            case BrokerSilent():
                return End(error)  # there is one broker for all
            case SlotTimeout() | QueueFull():
                pass
            case _:
                return End(error)
        return self._leave(error, at)

    def answered(self) -> None:
        """The attempt ended in an answer."""
        self._benches.answered(self.backend)

    # --- deciding ----------------------------------------------------------------------------------------------------

    def _decide(self, fault: Fault, at: Instant, *, is_brokered: bool) -> Step:
        scope = told_scope(fault)
        if fault.kind is FaultKind.CONTEXT_OVERFLOW and not self._outgrew(fault):
            return End(fault)
        pause = pause_s(fault, self.strain, self._patience, chance=at.chance, is_brokered=is_brokered)
        stays = is_worth_staying(fault, attempts=self.strain.attempts, wall=at.wall)
        has_other = may_help_elsewhere(fault) and self._has_other(scope, at.now)
        if pause is not None and (stays or not has_other):
            return Again(pause)
        self._chain.failed(self.backend, scope, is_final=pause is None)
        if pause is not None:
            self._keep_in_mind(at.now + max(pause, reset_in_s(fault, at.wall) or 0.0), asked=not is_brokered)
        if len(self._chain.targets) > 1:
            self._benches.rest(self.backend, fault, now=at.now, wall=at.wall, is_brokered=is_brokered)
        return self._leave(fault, at)

    def _outgrew(self, fault: Fault) -> bool:
        """Whether it is known which window the request is too long for."""
        known = [size for size in (self.target.window_tokens, fault.limit_tokens) if size is not None]
        if known:
            self._chain.outgrew(max(known))
        return bool(known)

    def _has_other(self, scope: FaultScope, now: float) -> bool:
        """Whether a target could be gone to that a fault of `scope` here does not speak against."""
        here = self.backend
        return self._chain.has_next(
            lambda there: not is_same(there, here, scope) and self._benches.resting(there, now) is None
        )

    def _rotate(self, fault: Fault | None, scope: FaultScope) -> Rotate:
        name, key = self.target.provider.name, self.backend.credential
        assert key is not None, "only what is known is rotated"
        self._avoid.setdefault(name, {})[key] = scope
        self._rotations += 1
        if fault is not None:
            self._chain.failed(self.backend, scope, is_final=False)
        renew = fault is not None and fault.kind is FaultKind.AUTH and name not in self._renewed
        if renew:
            self._renewed.add(name)
        return Rotate(fault, renew=renew)

    def _without_key(self, error: NoKey, at: Instant) -> Step:
        if self._pending is not None:
            (fault, is_brokered), self._pending = self._pending, None
            self._rotations = MAX_ROTATIONS  # there is no other: not to be asked for again here
            return self._decide(fault, at, is_brokered=is_brokered)
        if self._rest is not None:
            return self._leave(self._rest.fault, at)
        if error.until is not None and not self._chain.has_next(lambda _: True):
            pause = max(LEAST_KEY_WAIT_S, error.until - at.wall)
            if fits(pause, self.strain, self._patience):
                return Again(pause)
        return self._leave(error, at)

    # --- going on ----------------------------------------------------------------------------------------------------

    def _keep_in_mind(self, until: float, *, asked: bool) -> None:
        if not self._is_last_resort:
            self._chain.add_resort(Resort(until, self._index, self.backend, self.strain, asked))

    def _leave(self, cause: Fault | CoveyError, at: Instant) -> Step:
        self.trail.append((self.target, cause))
        return self._go_on(cause, at)

    def _go_on(self, cause: Fault | CoveyError, at: Instant) -> Step:
        """Go to the next target that may help, else back to a last resort, else nowhere."""
        if self.left_s <= 0 or (isinstance(cause, Fault) and not may_help_elsewhere(cause)):
            return End(cause)
        index = self._chain.take_next()
        if index is not None:
            return self._at(index, Strain(), is_last_resort=False)
        resort = self._chain.take_resort()
        if resort is None:
            return End(cause)
        pause = max(0.0, resort.until - at.now) if resort.asked else 0.0
        if pause >= self.left_s:
            return End(cause)
        step = self._at(resort.index, resort.strain, is_last_resort=True, pause=pause)
        if resort.backend.credential is not None:
            self._avoid.get(self.target.provider.name, {}).pop(resort.backend.credential, None)
        return step

    def _at(self, index: int, strain: Strain, *, is_last_resort: bool, pause: float = 0.0) -> Next:
        self._index, self.target = index, self._chain.targets[index]
        self.backend = self._chain.guess(index)
        self.strain = self.strain.elsewhere(strain)
        self._is_last_resort = is_last_resort
        self._pending, self._rest, self._rotations, self._rates = None, None, 0, 0
        # A key that may not use one model may be good for the next.
        self._avoid = {
            name: {key: scope for key, scope in keys.items() if scope in OF_KEY} for name, keys in self._avoid.items()
        }
        return Next(self.target, pause)
