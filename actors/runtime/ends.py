"""The one way out of an actor's life, for stop, crash and kill alike.

    reason known ──> mailbox closed, askers told ──> turn and tasks ended ──> on_failure ──> on_stop ──> Down

The first reason counts. Whatever comes later only hurries: a kill during `on_stop` cancels `on_stop`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from .dead_letters import DeadReason
from .errors import StartFailedError
from .exits import Crashed, ExitReason, Killed, StartFailed
from .life import Life
from .patience import CANCEL_GRACE_S, Patience
from .steps import call_metered

log = logging.getLogger(__name__)


class Ends(Life):
    """How a life ends. Owned by the loop thread."""

    __slots__ = ()

    def kill(self) -> None:
        """End now; an end under way is hurried: what it waits for is cancelled."""
        if self.reason is None:
            self.end(Killed())
        elif self.task is not None and self._patience is not None:
            self._patience.hurry()
            self.task.cancel()

    def discard(self, reason: ExitReason) -> None:
        """Let go of an actor that was never started: its constructor raised."""
        self.reason = reason
        self.mailbox.close(reason)
        self._let_go()
        self.home.forget(self)
        self._fire_monitors()

    def end(self, reason: ExitReason, error: BaseException | None = None) -> None:
        """Begin the end; without effect if it has begun. What waits, or runs, is told that the actor is down."""
        if self.reason is not None:
            return
        self.reason, self._error = reason, error
        self._tell_askers(reason)
        if self._timers is not None:
            self._timers.cancel_all()
        turn = self.task
        if turn is not None:
            turn.cancel()
        self._patience = Patience(str(self))
        self._begin_end(turn)

    def _tell_askers(self, reason: ExitReason) -> None:
        left = self.mailbox.close(reason)
        if left:
            self.home.dead_letters.add_all(self, [envelope.message for envelope in left], DeadReason.DROPPED)
        replies = [envelope.reply for envelope in left]
        if self.work is not None:
            replies.append(self.work.reply)
            self.work.give_up()
        for reply in replies:
            if reply is not None:
                reply.fail(self.down_error())

    def _begin_end(self, turn: asyncio.Task[None] | None) -> None:
        self.task = self._new_task(self._end(turn))
        self.task.add_done_callback(partial(self._end_again, turn))

    def _end_again(self, turn: asyncio.Task[None] | None, end: asyncio.Task[None]) -> None:
        # Cancelled before its first step, a task never runs: a kill in the same instant, or the end of the loop.
        if end.cancelled() and not self.is_dead and not self.home.loop.is_closed():
            self._begin_end(turn)

    async def _end(self, turn: asyncio.Task[None] | None) -> None:
        actor, reason = self.actor, self.reason
        assert actor is not None, "the end runs once"
        assert reason is not None, "the end has a reason"
        if isinstance(reason, Crashed):
            # The text, not exc_info: a record that is kept somewhere would keep the frames, and they the actor.
            log.error("actor_crashed actor=%s during=%s\n%s", self, reason.during, reason.trace)
        await self._join(turn, actor.stop_deadline_s)
        if isinstance(reason, Crashed) and self._error is not None:
            await self._run_hook(actor.on_failure, "on_failure", self._error, deadline_s=actor.stop_deadline_s)
        if self._has_begun:
            await self._run_hook(actor.on_stop, "on_stop", reason, deadline_s=actor.stop_deadline_s)
            await self._join(None, CANCEL_GRACE_S)
        self._finish()

    async def _join(self, turn: asyncio.Task[None] | None, deadline_s: float) -> None:
        assert self._patience is not None, "an end has patience"
        tasks = self._tasks.cancel() if self._tasks is not None else set()
        if turn is not None:
            tasks.add(turn)
        await self._patience.join(tasks, deadline_s)

    async def _run_hook(self, hook: Callable[..., object], name: str, *args: object, deadline_s: float) -> None:
        assert self._patience is not None, "an end has patience"
        await self._patience.finish(self._new_task(self._contained(hook, name, *args)), name, deadline_s)

    async def _contained(self, hook: Callable[..., object], name: str, *args: object) -> None:
        try:
            await self._call(hook, name, *args)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:
            log.exception("hook_failed actor=%s hook=%s", self, name)

    async def _call(self, hook: Callable[..., object], during: str, *args: object) -> None:
        await call_metered(hook, *args, meter=self.home.meter, owner=self.name, during=during)

    def _finish(self) -> None:
        error, self._error = self._error, None
        if self._start_timer is not None:
            self._start_timer.cancel()
            self._start_timer = None
        ready, self.ready = self.ready, None
        self._let_go()
        self.home.forget(self)
        self._fire_monitors()
        if ready is not None and not ready.done():
            failure = StartFailedError(self.name, self.end_reason())
            failure.__cause__ = error if isinstance(self.reason, StartFailed) else None
            ready.set_exception(failure)
        elif isinstance(self.reason, StartFailed):
            log.error("start_failed actor=%s phase=%s\n%s", self, self.reason.phase, self.reason.trace)
