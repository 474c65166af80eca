"""What the calls of one process know of backends: which rest until when, which are silent, and how they want requests.

A backend rests after a call went on to its next target because of it: until the time the provider named, else a minute,
twice as long each time, at most an hour. Every call begins at its primary again once that does not rest. An answer ends
the rest, and so does a change of the configuration.

Pure state, owned by the loop: times are passed in, `now` the loop's and `wall` Unix seconds. Bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

import msgspec

from ...protocol.backend import Backend, surface
from ...protocol.fault_kinds import Fault, FaultAction, FaultKind, FaultScope
from ...protocol.faults import fault_named
from ...protocol.mending import LASTING, NO_MENDS, Mends
from .breaker import KEPT, Breaker, Entry
from .patience import is_stale

FIRST_REST_S: Final = 60.0
LONGEST_REST_S: Final = 3600.0
LONGEST_RESET_S: Final = 32 * 86_400.0
"""No window is longer than a month."""
BROKERED_REST_S: Final = 600.0
"""Where the broker keeps the account, it knows better when a window ends, and says so to whoever asks again."""

_ANSWERED_BY_NOBODY: Final = frozenset({FaultKind.UNREACHABLE, FaultKind.TLS, FaultKind.NOT_FOUND, FaultKind.BLOCKED})


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """A backend rests until `until` (the loop's time), because of `fault`."""

    until: float
    scope: FaultScope
    fault: Fault


class _Bench(msgspec.Struct, kw_only=True):
    rest: Rest
    times: int


class Benches:
    """One per process, shared by all its calls; owned by the loop."""

    def __init__(self, *, stale_calls: int = 5, kept: int = KEPT) -> None:
        self._kept = kept
        self._breaker = Breaker(stale_calls, kept=kept)
        self._benches: OrderedDict[tuple[FaultScope, Hashable], _Bench] = OrderedDict()
        self._mends: OrderedDict[Hashable, Mends] = OrderedDict()

    # --- rest --------------------------------------------------------------------------------------------------------

    def rest(self, backend: Backend, fault: Fault, *, now: float, wall: float, is_brokered: bool = False) -> None:
        """A call leaves `backend` because of `fault`.

        Nothing rests for what is the request's or this machine's, nor for too many calls at once, which the broker
        times.
        """
        scope = told_scope(fault)
        key = surface(backend, scope)
        if key is None or scope in (FaultScope.REQUEST, FaultScope.LOCAL) or fault.kind is FaultKind.CONCURRENCY:
            return
        known = self._benches.get((scope, key))
        named_s = reset_in_s(fault, wall)
        if named_s is not None and is_brokered and fault.action is FaultAction.WAIT:
            named_s = min(named_s, BROKERED_REST_S)
        if known is not None and now < known.rest.until:
            # Whoever was under way at the same time tells of the same trouble.
            if named_s is not None:
                known.rest = Rest(until=now + named_s, scope=scope, fault=fault)
            return
        times = known.times + 1 if known is not None else 1
        span_s = named_s if named_s is not None else min(LONGEST_REST_S, FIRST_REST_S * 2.0 ** min(times - 1, 16))
        self._benches[scope, key] = _Bench(rest=Rest(until=now + span_s, scope=scope, fault=fault), times=times)
        self._benches.move_to_end((scope, key))
        if len(self._benches) > self._kept:
            self._benches.popitem(last=False)

    def resting(self, backend: Backend, now: float) -> Rest | None:
        """Why `backend` is not to be asked now: the rest that ends last of those that hold for it."""
        if not self._benches:
            return None
        rests = (
            bench.rest
            for scope in FaultScope
            if (bench := self._benches.get((scope, surface(backend, scope)))) is not None
        )
        return max((rest for rest in rests if now < rest.until), key=lambda rest: rest.until, default=None)

    def answered(self, backend: Backend) -> None:
        """It has answered: nothing of it rests, and the next trouble is the first again."""
        for scope in FaultScope if self._benches else ():
            self._benches.pop((scope, surface(backend, scope)), None)
        self._breaker.heard(backend)

    def reconfigure(self, *, stale_calls: int) -> None:
        """A person has put something right: nothing rests any more, and silences are counted anew."""
        self._benches.clear()
        self._breaker = Breaker(stale_calls, kept=self._kept)

    # --- silence -----------------------------------------------------------------------------------------------------

    def enter(self, backend: Backend, now: float) -> Entry | Fault:
        """Let a call through to `backend` now, with its slot held; or the `NOT_SENT` fault it ends with instead.

        `left` is owed for the entry, however the attempt ends, also when it is cancelled.
        """
        found = self._breaker.enter(backend, now)
        return found if isinstance(found, Entry) else _not_sent(backend, found)

    def closed(self, backend: Backend, now: float) -> Fault | None:
        """The same fault before the wait for a slot; None if `enter` may let it through. Takes nothing."""
        wait_s = self._breaker.closed_for_s(backend, now)
        return None if wait_s is None else _not_sent(backend, wait_s)

    def heard(self, backend: Backend) -> None:
        """The first content of an answer is there."""
        self._breaker.heard(backend)

    def left(self, entry: Entry, fault: Fault | None, now: float) -> None:
        """The attempt is over; `fault` is what it ended with, None for an answer and for a cancel.

        Only our own clocks speak against the backend. A refusal shows that somebody is there.
        """
        if fault is not None and fault.status is not None:
            self._breaker.heard(entry.backend)
        else:
            self._breaker.left(entry, now, is_stale=fault is not None and is_stale(fault))

    # --- mends -------------------------------------------------------------------------------------------------------

    def remember(self, backend: Backend, mends: Mends) -> None:
        """A request with `mends` in it was answered: what is true of the backend goes into its next one too."""
        key, lasting = surface(backend, FaultScope.REQUEST), mends.done & LASTING
        if key is None or not lasting:
            return
        self._mends[key] = Mends(done=lasting | self.mends_for(backend).done)
        self._mends.move_to_end(key)
        if len(self._mends) > self._kept:
            self._mends.popitem(last=False)

    def mends_for(self, backend: Backend) -> Mends:
        """What a request to `backend` begins with."""
        key = surface(backend, FaultScope.REQUEST)
        return self._mends.get(key, NO_MENDS) if key is not None else NO_MENDS


def told_scope(fault: Fault) -> FaultScope:
    """What `fault` proves broken. An endpoint that answered, or was silent, may serve another model all the same."""
    if fault.scope is FaultScope.ENDPOINT and fault.kind not in _ANSWERED_BY_NOBODY:
        return FaultScope.MODEL
    return fault.scope


def reset_in_s(fault: Fault, wall: float) -> float | None:
    """In how many seconds the provider says that it may be asked again; None if it does not say.

    A stamp that has passed, or lies further off than its window is long, is in the wrong zone or of another window.
    """
    longest_s = fault.window_s if fault.window_s is not None else LONGEST_RESET_S
    stamp_s = fault.resets_at - wall if fault.resets_at is not None else 0.0
    told_s = max(fault.retry_after_s or 0.0, stamp_s if stamp_s <= longest_s else 0.0)
    return min(told_s, LONGEST_RESET_S) if told_s > 0 else None


def _not_sent(backend: Backend, wait_s: float) -> Fault:
    return fault_named(
        FaultKind.NOT_SENT,
        f"{backend.model} at {backend.provider} was silent too often; it is left alone for {wait_s:.0f} s more",
        retry_after_s=wait_s,
    )
