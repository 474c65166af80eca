"""The cell: one actor from outside, as refs and other actors see it.

    start ──> turns ──(stop, crash, kill)──> end: mailbox closed, tasks ended, on_failure, on_stop ──> Down

`life` says what is known of it, `turns` how it works, `ends` how it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from threading import get_ident
from typing import Any

from ...protocol.errors import MailboxFull
from .belongings import OwnedTasks, OwnedTimers
from .dead_letters import DeadReason
from .dispatch import LoopClosed
from .errors import ActorDown
from .exits import ExitReason, Normal, Shutdown, Stale, crashed
from .life import Behaviour
from .mailbox import Envelope, Put, Spill
from .monitor import Down
from .reply import Reply
from .turns import Turns

__all__ = ["Behaviour", "Cell"]


class Cell(Turns):
    """The runtime's side of one actor. It outlives the actor, small, as long as a ref is held.

    The first part is for any thread, what belongs to the actor is owned by the loop thread.
    """

    __slots__ = ()

    # --- from any thread ---------------------------------------------------------------------------------------------

    def send(self, message: object, reply: Reply | None = None) -> None:
        """Put mail into the box. Raises `MailboxFull` or `ActorDown`; then nothing was accepted."""
        actor = self.actor
        if actor is None:
            raise self._refusal(message)
        size = actor.message_bytes(message)
        assert size >= 0, f"{type(actor).__name__}.message_bytes said {size}"
        key = actor.coalesce_key(message) if reply is None and actor.overflow == "coalesce" else None
        put, spill = self.mailbox.put(Envelope(message, reply, key, size))
        if put is Put.WAKE:
            self._wake()
        elif put is Put.CLOSED:
            raise self._refusal(message)
        if spill is not None:
            self._turn_away(spill, put)

    def request_stop(self, reason: ExitReason) -> None:
        """End after the running message, ahead of all waiting ones. Without effect on an actor that ends already."""
        if self.mailbox.put_stop(reason) is Put.WAKE:
            self._wake()

    def stop(self) -> None:
        """End as somebody else's wish."""
        self.request_stop(Shutdown())

    def stop_self(self) -> None:
        """End as the actor's own wish."""
        self.request_stop(Normal())

    def request_kill(self) -> None:
        """End now: cancel the running message, or the end that is under way."""
        self.on_loop(self.kill)

    def deliver_down(self, down: Down) -> None:
        """Put a Down ahead of user mail."""
        if self.mailbox.put_down(down) is Put.WAKE:
            self._wake()

    def _wake(self) -> None:
        if get_ident() == self.home.thread:
            self._begin_turn()
            return
        try:
            self.home.post(self._begin_turn)
        except LoopClosed:
            self.lose()

    def _refusal(self, message: object) -> ActorDown:
        error = self.down_error()
        is_stale = isinstance(error.reason, Stale)
        self.home.dead_letters.add(self, message, DeadReason.STALE if is_stale else DeadReason.DOWN)
        return error

    def _turn_away(self, spill: Spill, put: Put) -> None:
        errors = [MailboxFull(str(self), spill.limit, e.message, unit=spill.unit) for e in spill.envelopes]
        reason = DeadReason.REFUSED if put is Put.FULL else DeadReason.DISPLACED
        self.home.dead_letters.add_all(self, [error.message for error in errors], reason)
        if put is Put.FULL:
            raise errors[0]
        for envelope, error in zip(spill.envelopes, errors, strict=True):
            if envelope.reply is not None:
                envelope.reply.fail(error)

    # --- what belongs to the actor -----------------------------------------------------------------------------------

    def own(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run `work` as a task that ends with the actor, and the actor with it if it raises."""
        if self.is_dead:
            work.close()
            raise self.down_error()
        if self._tasks is None:
            self._tasks = OwnedTasks(self, self.name, self._crash, loop=self.home.loop, meter=self.home.meter)
        return self._tasks.run(work, name)

    def after(self, delay_s: float, message: object) -> asyncio.TimerHandle:
        """Put `message` into the own mailbox later, whatever its bound."""
        if self.reason is not None:
            raise self.down_error()
        if self._timers is None:
            self._timers = OwnedTimers(self.home.loop)
        return self._timers.add(delay_s, partial(self._put_timed, message))

    def cancel_timer(self, handle: asyncio.TimerHandle) -> None:
        """The timer's message is not sent, unless it was."""
        if self._timers is not None:
            self._timers.cancel(handle)

    def _crash(self, error: BaseException, during: str) -> None:
        self.end(crashed(error, during), error)

    def _put_timed(self, message: object) -> None:
        actor = self.actor
        if actor is None:
            return
        if self.mailbox.put_unbounded(Envelope(message, size=actor.message_bytes(message))) is Put.WAKE:
            self._begin_turn()
