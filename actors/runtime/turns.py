"""Turns: the start, one message after the other, and what is asked meanwhile.

There is at most one task for the actor's own work, none while it sleeps. A raise anywhere in a turn becomes a typed
exit; what the asker of the running message may do to it is in `expire`, `abandon` and `orphan`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial

from ...protocol.errors import AskTimeout
from .asking import Work, at_work
from .dead_letters import DeadReason
from .ends import Ends
from .exits import ExitReason, Killed, StartPhase, crashed, start_failed
from .mailbox import Envelope, Stop
from .reply import Reply, as_answer
from .steps import is_outside_cancel, metered, uncancel


class Turns(Ends):
    """How an actor works. Owned by the loop thread, but for `orphan_soon`."""

    __slots__ = ()

    # --- start -------------------------------------------------------------------------------------------------------

    def start(self, *, deadline_s: float) -> None:
        """Schedule `on_start`; mail waits until it is over."""
        self._start_timer = self.home.loop.call_later(deadline_s, self._start_expired, deadline_s)
        self.task = self._new_task(self._start())

    def _start_expired(self, deadline_s: float) -> None:
        self.end(start_failed(StartPhase.ON_START, TimeoutError(f"not ready within {deadline_s:g} s")))

    async def _start(self) -> None:
        assert self.actor is not None, "a start comes before the end"
        self._has_begun = True
        self._begin_work(None)
        try:
            await self._call(self.actor.on_start, "on_start")
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - a turn is a boundary: it becomes a typed exit
            if is_outside_cancel(error):
                self._hand_over(Killed())
            else:
                self._hand_over(start_failed(StartPhase.ON_START, error), error)
            return
        finally:
            self._end_work()
        if self.reason is None:
            self._become_ready()
            await self._turn()

    def _become_ready(self) -> None:
        if self._start_timer is not None:
            self._start_timer.cancel()
            self._start_timer = None
        if self.ready is not None and not self.ready.done():
            self.ready.set_result(None)
        self.ready = None

    # --- turns -------------------------------------------------------------------------------------------------------

    def _begin_turn(self) -> None:
        if self.home.loop.is_closed():
            self.lose()
        elif self.reason is None:
            self.task = self._new_task(self._turn())

    async def _turn(self) -> None:
        actor = self.actor
        if actor is None:
            return
        left = actor.throughput
        try:
            while (mail := self.mailbox.take()) is not None:
                if type(mail) is Envelope:
                    await self._serve(mail.message, mail.reply)
                elif isinstance(mail, Stop):
                    self._hand_over(mail.reason)
                    return
                else:
                    await self._serve(mail, None)
                left -= 1
                if left <= 0:
                    await asyncio.sleep(0)
                    left = actor.throughput
        except asyncio.CancelledError:
            self._hand_over(Killed())
            return
        if self.reason is None:
            self.task = None

    async def _serve(self, message: object, reply: Reply | None) -> None:
        if reply is not None and not reply.is_wanted():
            self.home.dead_letters.add(self, message, DeadReason.UNWANTED)
            return
        receive = self._receive
        assert receive is not None, "turns end before the actor does"
        work = self._begin_work(reply)
        during = type(message).__name__
        meter = self.home.meter
        try:
            meter.begin(self.name, during)
            try:
                answer = receive(message)
            finally:
                meter.end()
            if isinstance(answer, Coroutine):
                answer = await metered(answer, meter, self.name, during)
            elif hasattr(type(answer), "__await__"):
                answer = await answer  # type: ignore[misc]  # it has __await__
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - a turn is a boundary: it becomes a typed exit
            self._failed(work, during, error)
        else:
            if reply is not None and not reply.deliver(answer):
                self.home.dead_letters.add(self, message, DeadReason.LATE_REPLY)
        finally:
            self._end_work()
            if self._cancelled_for is work:
                self._cancelled_for = None
                uncancel()

    def _begin_work(self, reply: Reply | None) -> Work:
        assert self.work is None, "one turn at a time"
        self.work = work = Work(self, reply)
        at_work.set(work)
        return work

    def _end_work(self) -> None:
        self.work = None
        at_work.set(None)  # the actor's context lives as long as the actor

    def _failed(self, work: Work, during: str, error: BaseException) -> None:
        if self.reason is not None:
            return
        if isinstance(error, asyncio.CancelledError) and self._cancelled_for is work:
            return
        if is_outside_cancel(error):
            self._hand_over(Killed())
            return
        if work.reply is not None:
            work.reply.fail(as_answer(error, str(self), during))
        self._hand_over(crashed(error, during), error)

    def _hand_over(self, reason: ExitReason, error: BaseException | None = None) -> None:
        # The calling turn returns without another await: the end need not wait for it.
        if self.reason is None:
            self.task = None
            self.end(reason, error)

    # --- asks whose asker is gone ------------------------------------------------------------------------------------

    def expire(self, reply: Reply, request: str, deadline_s: float) -> None:
        """The ask's deadline has come."""
        if reply.fail(AskTimeout(request, str(self), deadline_s)):
            self.abandon(reply)

    def abandon(self, reply: Reply) -> None:
        """The asker gave up at its deadline: if the ask still waits, it will not be handled."""
        actor = self.actor
        if actor is not None:
            self._release(reply, cancel=actor.cancel_abandoned)

    def orphan(self, reply: Reply) -> None:
        """The asker has ended or was cancelled: what is done for it is cancelled, too."""
        actor = self.actor
        if actor is not None:
            self._release(reply, cancel=actor.cancel_orphaned)

    def orphan_soon(self, reply: Reply) -> None:
        """`orphan`, from any thread."""
        self.on_loop(partial(self.orphan, reply))

    def abandon_soon(self, reply: Reply) -> None:
        """`abandon`, from any thread."""
        self.on_loop(partial(self.abandon, reply))

    def _release(self, reply: Reply, *, cancel: bool) -> None:
        self.mailbox.note_abandoned()
        work = self.work
        if work is None or work.reply is not reply or self.task is None or self.reason is not None:
            return
        if cancel and self._cancelled_for is None:
            self._cancelled_for = work
            work.give_up()
            self.task.cancel()

    def is_ask_wanted(self) -> bool:
        """Whether somebody waits for the answer to the running message; True for a tell."""
        reply = self.work.reply if self.work is not None else None
        return reply is None or reply.is_wanted()
