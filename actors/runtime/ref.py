"""Refs: how everybody else speaks to an actor. A ref means one life of it, never a later one of the same name.

Delivery: `tell` is at most once; messages of one sender arrive in the order they were sent. Stop, kill and Downs
overtake user mail. Every ask ends with the reply, the handler's exception, ActorDown or AskTimeout; one that closes a
circle of asks is refused at once. Once a later life has the name, a ref of an earlier one says `Stale`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pykka

from ...protocol.errors import AskTimeout
from ._pykka import EdgeFuture, make_proxy, refuse_on_loop
from .asking import note_wait, noted_wait
from .cell import Cell
from .dispatch import Dispatcher
from .errors import ActorDown, WorkCancelled
from .exits import ExitReason, Stale
from .monitor import Down, Monitor
from .reply import LoopReply, ThreadReply, forget_outcome

if TYPE_CHECKING:
    from .actor import LoopActor

__all__ = ["ActorDown", "ActorRef", "Down", "Monitor", "whereis"]

PROXY_DEADLINE_S: Final = 30.0


class ActorRef(pykka.ActorRef["LoopActor"]):
    """One life of one actor. Usable from any thread, but for what is awaited; hashable, equal only to itself.

    After the end it holds no more than the name, the incarnation and the reason.
    """

    def __init__(self, actor: LoopActor, cell: Cell) -> None:
        super().__init__(actor)
        self._cell = cell

    @property
    def name(self) -> str:
        """Unique among the living actors of the loop; a successor may have it later."""
        return self._cell.name

    @property
    def incarnation(self) -> int:
        """Unique among all actors this process ever had."""
        return self._cell.incarnation

    @property
    def reason(self) -> ExitReason | None:
        """Why it ended or ends; None while it lives. Never `Stale`."""
        return self._cell.reason

    def __str__(self) -> str:
        return str(self._cell)

    def __repr__(self) -> str:
        return f"<ActorRef {self} {'alive' if self.is_alive() else 'down'}>"

    def is_alive(self) -> bool:
        """Whether it takes mail: False from the moment its end begins."""
        return self._cell.mailbox.closed_by is None

    def tell(self, message: object) -> None:
        """Send without an answer. Raises `MailboxFull` or `ActorDown`; then it was not accepted."""
        self._cell.send(message)

    async def ask(  # type: ignore[override]  # pykka's ask blocks; its proxies get an EdgeRef
        self, message: object, *, deadline_s: float
    ) -> object:
        """Send and wait for the answer.

        Raises what the handler raised, `ActorDown`, `AskTimeout`, `MailboxFull`, or `WouldDeadlock` if the actor
        waits, itself or through others, for the one that asks. When the deadline passes or the caller is cancelled, a
        message that still waits is not handled; what becomes of one that is being handled is the class's choice, see
        `cancel_orphaned` and `cancel_abandoned`.
        """
        cell = self._cell
        loop = asyncio.get_running_loop()
        if loop is not cell.home.loop:
            return await self._ask_from_afar(message, deadline_s)
        reply = LoopReply(loop)
        work = note_wait(cell, reply)
        try:
            cell.send(message, reply)
            timer = loop.call_later(deadline_s, cell.expire, reply, type(message).__name__, deadline_s)
            try:
                return await reply.future
            except asyncio.CancelledError:
                forget_outcome(reply.future)
                cell.orphan(reply)
                raise
            finally:
                timer.cancel()
        finally:
            if work is not None:
                work.done(reply)

    def ask_blocking(self, message: object, *, deadline_s: float) -> object:
        """`ask` for threads without an event loop; on one with a loop it raises `WouldDeadlock` at once.

        On a thread that works for an actor (its `PoolActor` handler, or a call it gave to the pool) the ask is that
        actor's: it may close a circle, and ends with `WorkCancelled` when the actor ends or its asker does.
        """
        refuse_on_loop(f"ask_blocking({self})", "await ask(...)")
        reply = ThreadReply()
        with noted_wait(self._cell, reply) as work:
            # Looked at after it was noted: a work that is given up from here on finds this ask and wakes it.
            if work is not None and work.is_given_up:
                raise WorkCancelled(str(work.owner))
            self._cell.send(message, reply)
            done, _ = concurrent.futures.wait([reply.future], deadline_s)
            if not done:
                self._give_up(reply, message, deadline_s)
            try:
                return reply.future.result()
            except concurrent.futures.CancelledError:
                assert work is not None, "only a work that is given up withdraws its asks"
                raise WorkCancelled(str(work.owner)) from None

    async def _ask_from_afar(self, message: object, deadline_s: float) -> object:
        reply = ThreadReply()
        with noted_wait(self._cell, reply):
            self._cell.send(message, reply)
            waiter = asyncio.wrap_future(reply.future)
            try:
                done, _ = await asyncio.wait({waiter}, timeout=deadline_s)
            except asyncio.CancelledError:
                waiter.cancel()
                forget_outcome(waiter)
                self._cell.orphan_soon(reply)
                raise
            if not done:
                self._give_up(reply, message, deadline_s)
            return await waiter

    def _give_up(self, reply: ThreadReply, message: object, deadline_s: float) -> None:
        # If the answer came in this very moment, fail() is refused and the answer stands.
        if reply.fail(AskTimeout(type(message).__name__, str(self), deadline_s)):
            self._cell.abandon_soon(reply)

    def stop(self) -> None:  # type: ignore[override]  # pykka's stop waits; here `stopped` does
        """Ask it to end after the message it works on, ahead of all that wait. Returns at once."""
        self._cell.stop()

    def kill(self) -> None:
        """Cancel what it works on and end it; if it ends already, cut that short. Returns at once."""
        self._cell.request_kill()

    async def stopped(self, *, deadline_s: float) -> ExitReason:
        """Wait until it has ended, `on_stop` included; why it ended. Raises `AskTimeout`, the actor is not touched.

        In the actor's own handler it can only time out.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[ExitReason] = loop.create_future()
        monitor = self.watch(lambda down: _resolve(ended, down))
        try:
            await asyncio.wait({ended}, timeout=deadline_s)
        finally:
            monitor.cancel()
        if not ended.done():
            raise AskTimeout("stop", str(self), deadline_s)
        return ended.result()

    def watch(self, notify: Callable[[Down], None]) -> Monitor:
        """Have `notify` called with one Down when it has ended, or soon if it has.

        Called on the actor's loop; it must not block. On a loop that was closed, on the calling thread. The reason is
        `Stale` if the actor had ended before and a later life has its name.
        """
        monitor = Monitor(notify)
        self._cell.watch(monitor)
        return monitor

    def proxy(self) -> pykka.ActorProxy[Any]:
        """pykka's proxy, for the edge: it costs 100 us to make and holds the actor until dropped."""
        return make_proxy(self, self.tell, self._ask_for_proxy)

    def _ask_for_proxy(self, message: object) -> EdgeFuture:
        reply = ThreadReply()
        try:
            self._cell.send(message, reply)
        except ActorDown as down:
            reply.fail(down)
        return EdgeFuture(reply.future, PROXY_DEADLINE_S)


def whereis(name: str, incarnation: int | None = None) -> ActorRef | None:
    """The living actor of that name on the running loop; with `incarnation` that life of it, never another one."""
    found = Dispatcher.here(name).find(name)
    if not isinstance(found, Cell) or incarnation not in (None, found.incarnation):
        return None
    return found.ref


def _resolve(ended: asyncio.Future[ExitReason], down: Down) -> None:
    loop = ended.get_loop()
    if loop.is_closed():
        return
    reason = down.reason.ended if isinstance(down.reason, Stale) else down.reason
    loop.call_soon_threadsafe(_set, ended, reason)


def _set(ended: asyncio.Future[ExitReason], reason: ExitReason) -> None:
    if not ended.done():
        ended.set_result(reason)
