"""One provider call, from the wish to the outcome: target, key, slot, attempt, and again while that makes sense.

Each attempt is a call of its own: a new id, a new slot, rendered anew for its target. Between attempts nothing is held,
so a pause blocks nobody. The only place that retries: where to is the rules' to say (`Route`), what to change in a
request is `mended`'s. Where the destination has a budget, the broker is told how each attempt ended, and what is the
account's trouble is its to time: the next attempt asks for its slot at once, and waits there.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from typing import assert_never

from ...protocol.dialects.base import Answer
from ...protocol.errors import CoveyError, NoKey
from ...protocol.faults import Fault
from ...protocol.mending import Mends, mended
from ...protocol.messages.fleet import AgentState
from ...storage.logs import log_event
from ..ports import Key
from .attempt import Attempt, Ended, NoSlot
from .call_request import BeganAgain, CallAnswered, CallOutcome, CallRequest, CallUnanswered
from .caller import Caller
from .endings import problem, words
from .patience import patience_for
from .route import Again, End, Instant, Next, Rotate, Route, Step

__all__ = ["Caller", "run_call"]

log = logging.getLogger(__name__)


async def run_call(request: CallRequest, caller: Caller) -> CallOutcome:
    """Ask the model until it, or one of those behind it, has answered, nobody can help, or patience ends.

    Every attempt that reached out is recorded once. Cancelled, it closes the connection, then gives the slot back. A
    local refusal (no slot in time, a full queue) is not repeated: waiting in the queue was the patience.
    """
    return await _Call(request, caller).run()


class _Call:
    """One call under way; owned by its task."""

    def __init__(self, request: CallRequest, caller: Caller) -> None:
        self._request, self._caller = request, caller
        self._route = Route(request.targets, benches=caller.benches, patience=patience_for(caller.calls))
        self._now = asyncio.get_running_loop().time
        self._work = f"work_{secrets.token_hex(8)}"
        self._key: Key | None = None
        self._last_key: Key | None = None
        self._mends: Mends | None = None
        self._number = self._told = 0
        self._partial = ""
        self._is_shown = False

    async def run(self) -> CallOutcome:
        step: Step = self._route.begin()
        while not isinstance(step, End):
            did = await self._prepare(step) or await self._attempt()
            if isinstance(did, Answer):
                return CallAnswered(did)
            step = did
        return self._unanswered(step.cause)

    # --- before an attempt -------------------------------------------------------------------------------------------

    async def _prepare(self, step: Again | Rotate | Next) -> Step | None:
        """Do what `step` says, and have a key; None: go ahead."""
        provider = self._route.target.provider
        match step:
            case Again(pause_s=pause_s):
                await self._pause(pause_s)
                if self._key is not None:
                    return None
            case Next(pause_s=pause_s):
                self._say_where()
                self._key = self._last_key = self._mends = None
                await self._pause(pause_s)
            case Rotate():
                old, self._last_key = self._key, self._key
                self._key = await self._replaced(step)
                if self._key is not None and old is not None and self._key.fingerprint == old.fingerprint:
                    self._route.renewed()
                    return None
            case _:
                assert_never(step)
        if self._key is None:
            try:
                self._key = _usable(await self._caller.keys.choose(provider, avoid=self._route.avoid), provider.name)
            except NoKey as error:
                then = self._route.refused(error, self._instant())
                if isinstance(then, Again):
                    self._key = self._last_key  # the one that was to be replaced; it may be good again after a pause
                return then
        return self._route.chose(self._key.fingerprint, self._instant())

    async def _replaced(self, step: Rotate) -> Key | None:
        """The key that took the place of ours already, if there is one; else others are told what is wrong with it."""
        keys, provider, key = self._caller.keys, self._route.target.provider, self._key
        assert key is not None, "what there is of a key is replaced"
        renewed = await keys.renew(provider, key) if step.renew else None
        if renewed is None and step.fault is not None:
            keys.trouble(provider, key, step.fault)
        return renewed

    async def _pause(self, pause_s: float) -> None:
        if pause_s > 0:
            self._caller.on_state(AgentState.WAITING, self._route.target.provider.name)
            await asyncio.sleep(pause_s)
            self._route.paused(pause_s)

    # --- an attempt --------------------------------------------------------------------------------------------------

    async def _attempt(self) -> Answer | Step:
        route, caller = self._route, self._caller
        closed = caller.benches.closed(route.backend, self._now())
        if closed is not None:
            return route.failed(closed, 0.0, self._instant())
        if self._is_shown and caller.on_event is not None:
            self._is_shown = False
            caller.on_event(BeganAgain())
        self._number += 1
        mends = self._mends if self._mends is not None else caller.benches.mends_for(route.backend)
        assert self._key is not None, "it was chosen"
        attempt = Attempt(
            request=self._request,
            target=route.target,
            key=self._key,
            backend=route.backend,
            mends=mends,
            work=self._work,
            number=self._number,
            left_s=route.left_s,
            park_s=route.park_wait_s(self._now()),
        )
        try:
            ended = await attempt.run(caller)
        except NoSlot as refused:
            return route.refused(refused.error, self._instant())
        if isinstance(ended.what, Answer):
            route.answered()
            caller.benches.remember(route.backend, mends)
            return ended.what
        return self._failed(ended, ended.what, mends)

    def _failed(self, ended: Ended, fault: Fault, mends: Mends) -> Step:
        route = self._route
        self._partial, self._is_shown = ended.partial, ended.has_output
        self._caller.unknowns.met(fault, route.target)
        better = mended(fault, mends, max_tokens=ended.max_tokens)
        if better is not None and better != mends:
            self._mends = better
            route.mended(ended.took_s)
            return Again(0.0)
        return route.failed(fault, ended.took_s, self._instant(), is_brokered=ended.is_brokered)

    def _instant(self) -> Instant:
        return Instant(self._now(), time.time(), self._caller.chance())

    # --- what others hear --------------------------------------------------------------------------------------------

    def _say_where(self) -> None:
        """Log that the call goes on to another target, and why. Of one that only rests it was said when it was left."""
        if not self._route.trail:
            return
        left, cause = self._route.trail[-1]
        if isinstance(cause, Fault) and self._number == self._told:
            return
        self._told = self._number
        log_event(
            log,
            "call_failed_over",
            level=logging.WARNING,
            **{"from": left.name},
            to=self._route.target.name,
            because=words(cause),
            session=self._request.session,
        )

    def _unanswered(self, cause: Fault | CoveyError) -> CallUnanswered:
        route = self._route
        return CallUnanswered(
            problem(cause, route.target, route.trail, attempts=route.attempts),
            fault=cause if isinstance(cause, Fault) else None,
            refusal=cause if isinstance(cause, CoveyError) else None,
            partial=self._partial,
        )


def _usable(key: Key, provider: str) -> Key:
    """The key, if it can stand in a header."""
    if key.secret is not None and not (key.secret.isascii() and key.secret.isprintable()):
        raise NoKey(provider, "the one there is holds characters that no key has")
    return key
