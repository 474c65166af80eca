"""One actor's life: start, turns, and the one way out.

    start ──> turns ──(stop, crash, kill)──> end: mailbox closed, tasks ended, on_failure, on_stop ──> Down

Owned by the loop thread, but for `send`, `request_stop`, `request_kill`, `watch`. There is at most one task for the
actor's own work: the start, a turn, or the end; none while it sleeps. Tasks are made directly, not by the loop's
factory: an eager one would run the receiver inside the sender's `tell`.

The first reason to end counts. Whatever comes later only hurries: a kill during `on_stop` cancels `on_stop`.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ...protocol.errors import AskTimeout, MailboxFull
from .belongings import OwnedTasks, OwnedTimers
from .dispatch import Dispatcher, LoopClosed
from .errors import ActorDown, StartFailedError
from .exits import Crashed, ExitReason, Killed, Lost, Normal, Shutdown, StartFailed, StartPhase, crashed, start_failed
from .mailbox import Envelope, Mailbox, Overflow, Put, Stop
from .monitor import Down, Monitor
from .patience import CANCEL_GRACE_S, Patience
from .reply import Reply, as_answer
from .steps import call_metered, is_outside_cancel, metered, uncancel

if TYPE_CHECKING:
    from .ref import ActorRef

log = logging.getLogger(__name__)


class Behaviour(Protocol):
    """What the cell needs of an actor."""

    mailbox_limit: ClassVar[int]
    overflow: ClassVar[Overflow]
    throughput: ClassVar[int]
    stop_deadline_s: ClassVar[float]
    cancel_abandoned: ClassVar[bool]

    def on_start(self) -> object: ...
    def on_stop(self, reason: ExitReason) -> object: ...
    def on_failure(self, exc: BaseException) -> object: ...
    def coalesce_key(self, message: object) -> Hashable | None: ...


class Cell:
    """The runtime's side of one actor. It outlives the actor, small, as long as a ref is held."""

    __slots__ = (
        "_cancelled_for",
        "_context",
        "_current",
        "_error",
        "_has_begun",
        "_monitors",
        "_patience",
        "_receive",
        "_start_timer",
        "_tasks",
        "_timers",
        "actor",
        "home",
        "incarnation",
        "mailbox",
        "name",
        "ready",
        "reason",
        "ref",
        "task",
    )

    ref: ActorRef

    def __init__(self, actor: Behaviour, receive: Callable[[object], object], *, home: Dispatcher, name: str | None):
        self.home = home
        self.incarnation = home.next_incarnation()
        self.name = name if name is not None else f"{type(actor).__name__}-{self.incarnation}"
        self.actor: Behaviour | None = actor
        self.mailbox = Mailbox(actor.mailbox_limit, actor.overflow)
        self.reason: ExitReason | None = None
        self.ready: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] | None = None
        self._receive: Callable[[object], object] | None = receive
        self._context: contextvars.Context | None = contextvars.copy_context()
        self._current: Envelope | None = None
        self._cancelled_for: Envelope | None = None
        self._error: BaseException | None = None
        self._has_begun = False
        self._patience: Patience | None = None
        self._start_timer: asyncio.TimerHandle | None = None
        self._monitors: list[Monitor] | None = None
        self._tasks: OwnedTasks | None = None
        self._timers: OwnedTimers | None = None

    def __str__(self) -> str:
        return f"{self.name}#{self.incarnation}"

    @property
    def is_dead(self) -> bool:
        """Whether the end is over."""
        return self.actor is None

    # --- from any thread ---------------------------------------------------------------------------------------------

    def send(self, message: object, reply: Reply | None = None) -> Envelope:
        """Put mail into the box. Raises `MailboxFull` or `ActorDown`; then nothing was accepted."""
        actor = self.actor
        if actor is None:
            raise self._down_error()
        key = actor.coalesce_key(message) if reply is None and actor.overflow == "coalesce" else None
        envelope = Envelope(message, reply, key)
        put, displaced = self.mailbox.put(envelope)
        if put is Put.WAKE:
            self._wake()
        elif put is Put.FULL:
            raise MailboxFull(str(self), self.mailbox.limit, message)
        elif put is Put.CLOSED:
            raise self._down_error()
        if displaced is not None and displaced.reply is not None:
            displaced.reply.fail(MailboxFull(str(self), self.mailbox.limit, displaced.message))
        return envelope

    def request_stop(self, reason: ExitReason) -> None:
        """End after the running message, ahead of all waiting ones. Without effect on an actor that ends already."""
        if self.mailbox.put_stop(reason) is Put.WAKE:
            self._wake()

    def request_kill(self) -> None:
        """End now: cancel the running message, or the end that is under way."""
        self.on_loop(self.kill)

    def on_loop(self, action: Callable[[], None]) -> None:
        """Run `action` on the actor's loop: at once if this is its thread."""
        if self.home.is_current:
            action()
            return
        try:
            self.home.post(action)
        except LoopClosed:
            self._lose()

    def watch(self, monitor: Monitor) -> None:
        """Fire `monitor` once when the actor has ended, or soon if it has."""
        with self.home.monitors_lock:
            if not self.is_dead:
                if self._monitors is None:
                    self._monitors = []
                self._monitors = [known for known in self._monitors if known.is_open]
                self._monitors.append(monitor)
                return
        try:
            self.home.post(partial(monitor.fire, self._down()))
        except LoopClosed:
            monitor.fire(self._down())

    def stop(self) -> None:
        """End as somebody else's wish."""
        self.request_stop(Shutdown())

    def stop_self(self) -> None:
        """End as the actor's own wish."""
        self.request_stop(Normal())

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
            self._lose()

    def _down_error(self) -> ActorDown:
        return ActorDown(str(self), self._down().reason)

    def _down(self) -> Down:
        reason = self.reason or self.mailbox.closed_by
        assert reason is not None, "a closed mailbox knows why"
        return Down(self.ref, reason)

    # --- start and turns ---------------------------------------------------------------------------------------------

    def start(self, *, deadline_s: float) -> None:
        """Schedule `on_start`; mail waits until it is over."""
        self._start_timer = self.home.loop.call_later(deadline_s, self._start_expired, deadline_s)
        self.task = self._new_task(self._start())

    def discard(self, reason: ExitReason) -> None:
        """Let go of an actor that was never started: its constructor raised."""
        self.reason = reason
        self.mailbox.close(reason)
        self._let_go()
        self.home.forget(self)
        self._fire_monitors()

    def _start_expired(self, deadline_s: float) -> None:
        self.end(start_failed(StartPhase.ON_START, TimeoutError(f"not ready within {deadline_s:g} s")))

    async def _start(self) -> None:
        assert self.actor is not None, "a start comes before the end"
        self._has_begun = True
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

    def _begin_turn(self) -> None:
        if self.home.loop.is_closed():
            self._lose()
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
                    await self._serve(mail)
                elif isinstance(mail, Stop):
                    self._hand_over(mail.reason)
                    return
                else:
                    await self._serve(Envelope(mail))
                left -= 1
                if left <= 0:
                    await asyncio.sleep(0)
                    left = actor.throughput
        except asyncio.CancelledError:
            self._hand_over(Killed())
            return
        if self.reason is None:
            self.task = None

    async def _serve(self, envelope: Envelope) -> None:
        reply, message = envelope.reply, envelope.message
        if reply is not None and not reply.is_wanted():
            self.home.counts.unwanted += 1
            return
        receive = self._receive
        assert receive is not None, "turns end before the actor does"
        assert self._current is None, "one turn at a time"
        self._current = envelope
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
            self._failed(envelope, during, error)
        else:
            if reply is not None and not reply.deliver(answer):
                self.home.counts.late_replies += 1
        finally:
            self._current = None
            if self._cancelled_for is envelope:
                self._cancelled_for = None
                uncancel()

    def _failed(self, envelope: Envelope, during: str, error: BaseException) -> None:
        if self.reason is not None:
            return
        if isinstance(error, asyncio.CancelledError) and self._cancelled_for is envelope:
            return
        if is_outside_cancel(error):
            self._hand_over(Killed())
            return
        if envelope.reply is not None:
            envelope.reply.fail(as_answer(error, str(self), during))
        self._hand_over(crashed(error, during), error)

    async def _call(self, hook: Callable[..., object], during: str, *args: object) -> None:
        await call_metered(hook, *args, meter=self.home.meter, owner=self.name, during=during)

    def _hand_over(self, reason: ExitReason, error: BaseException | None = None) -> None:
        # The calling turn returns without another await: the end need not wait for it.
        if self.reason is None:
            self.task = None
            self.end(reason, error)

    # --- asks whose asker gave up ------------------------------------------------------------------------------------

    def expire(self, envelope: Envelope, deadline_s: float) -> None:
        """The ask's deadline has come."""
        error = AskTimeout(type(envelope.message).__name__, str(self), deadline_s)
        if envelope.reply is not None and envelope.reply.fail(error):
            self.abandon(envelope)

    def abandon(self, envelope: Envelope) -> None:
        """Nobody waits for the answer any more; waiting, it will not be handled, running, it may be cancelled."""
        self.mailbox.note_abandoned()
        actor = self.actor
        if actor is None or self._current is not envelope or self.task is None or self.reason is not None:
            return
        if actor.cancel_abandoned and self._cancelled_for is None:
            self._cancelled_for = envelope
            self.task.cancel()

    def is_ask_wanted(self) -> bool:
        """Whether somebody waits for the answer to the running message; True for a tell."""
        reply = self._current.reply if self._current is not None else None
        return reply is None or reply.is_wanted()

    # --- what belongs to the actor -----------------------------------------------------------------------------------

    def own(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run `work` as a task that ends with the actor, and the actor with it if it raises."""
        if self.is_dead:
            work.close()
            raise self._down_error()
        if self._tasks is None:
            self._tasks = OwnedTasks(self.name, self._crash, loop=self.home.loop, meter=self.home.meter)
        return self._tasks.run(work, name)

    def after(self, delay_s: float, message: object) -> asyncio.TimerHandle:
        """Put `message` into the own mailbox later, whatever its bound."""
        if self.reason is not None:
            raise self._down_error()
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
        if self.mailbox.put_unbounded(Envelope(message)) is Put.WAKE:
            self._begin_turn()

    # --- the one way out ---------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """End now; an end under way is hurried: what it waits for is cancelled."""
        if self.reason is None:
            self.end(Killed())
        elif self.task is not None and self._patience is not None:
            self._patience.hurry()
            self.task.cancel()

    def end(self, reason: ExitReason, error: BaseException | None = None) -> None:
        """Begin the end; without effect if it has begun. What waits, or runs, is told that the actor is down."""
        if self.reason is not None:
            return
        self.reason, self._error = reason, error
        left = self.mailbox.close(reason)
        self.home.counts.dropped += len(left)
        if self._current is not None:
            left.append(self._current)
        for envelope in left:
            if envelope.reply is not None:
                envelope.reply.fail(self._down_error())
        if self._timers is not None:
            self._timers.cancel_all()
        turn = self.task
        if turn is not None:
            turn.cancel()
        self._patience = Patience(str(self))
        self._begin_end(turn)

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
            failure = StartFailedError(self.name, self._down().reason)
            failure.__cause__ = error if isinstance(self.reason, StartFailed) else None
            ready.set_exception(failure)
        elif isinstance(self.reason, StartFailed):
            log.error("start_failed actor=%s phase=%s\n%s", self, self.reason.phase, self.reason.trace)

    def _let_go(self) -> None:
        with self.home.monitors_lock:
            self.actor = None
        self._receive = self._context = self.task = None
        self._tasks = self._timers = self._patience = None

    def _fire_monitors(self) -> None:
        with self.home.monitors_lock:
            monitors, self._monitors = self._monitors, None
        for monitor in monitors or ():
            monitor.fire(self._down())

    def _lose(self) -> None:
        # On whatever thread found the loop closed: nothing of the actor can run any more.
        left = self.mailbox.close(Lost())
        if self.reason is None:
            self.reason = Lost()
        for envelope in left:
            if envelope.reply is not None:
                envelope.reply.fail(self._down_error())
        self._let_go()
        self._fire_monitors()

    def _new_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.Task(work, loop=self.home.loop, name=self.name, context=self._context)
