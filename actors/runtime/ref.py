"""Refs: how everybody else speaks to an actor. A ref means one life of it, never a later one of the same name.

Delivery: `tell` is at most once; messages of one sender arrive in the order they were sent. Stop, kill and Downs
overtake user mail. Every ask ends with the reply, the handler's exception, ActorDown or AskTimeout.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pykka

from ...protocol.errors import AskTimeout
from ._pykka import EdgeFuture, make_proxy, refuse_on_loop
from .cell import Cell
from .dispatch import Dispatcher
from .errors import ActorDown, WouldDeadlock
from .exits import ExitReason
from .mailbox import Envelope
from .monitor import Down, Monitor
from .reply import LoopReply, ThreadReply

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
        """Why it ended or ends; None while it lives."""
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

        Raises what the handler raised, `ActorDown`, `AskTimeout`, or `MailboxFull`. When the deadline passes or the
        caller is cancelled, a message that still waits is not handled; one that is being handled runs on, unless the
        actor's class says `cancel_abandoned`.
        """
        cell = self._cell
        loop = asyncio.get_running_loop()
        if loop is not cell.home.loop:
            return await self._ask_from_afar(message, deadline_s)
        if cell.task is not None and cell.task is asyncio.current_task():
            raise WouldDeadlock(f"an ask of {self} to itself", "call the method, or tell")
        reply = LoopReply(loop)
        envelope = cell.send(message, reply)
        timer = loop.call_later(deadline_s, cell.expire, envelope, deadline_s)
        try:
            return await reply.future
        except asyncio.CancelledError:
            if not reply.future.cancelled():
                reply.future.exception()  # answered in the same instant: nobody will look at it
            cell.abandon(envelope)
            raise
        finally:
            timer.cancel()

    def ask_blocking(self, message: object, *, deadline_s: float) -> object:
        """`ask` for threads without an event loop; on one with a loop it raises `WouldDeadlock` at once."""
        refuse_on_loop(f"ask_blocking({self})", "await ask(...)")
        reply = ThreadReply()
        envelope = self._cell.send(message, reply)
        done, _ = concurrent.futures.wait([reply.future], deadline_s)
        if not done:
            self._give_up(reply, envelope, deadline_s)
        return reply.future.result()

    async def _ask_from_afar(self, message: object, deadline_s: float) -> object:
        reply = ThreadReply()
        envelope = self._cell.send(message, reply)
        waiter = asyncio.wrap_future(reply.future)
        try:
            done, _ = await asyncio.wait({waiter}, timeout=deadline_s)
        except asyncio.CancelledError:
            waiter.cancel()
            self._cell.on_loop(partial(self._cell.abandon, envelope))
            raise
        if not done:
            self._give_up(reply, envelope, deadline_s)
        return await waiter

    def _give_up(self, reply: ThreadReply, envelope: Envelope, deadline_s: float) -> None:
        # If the answer came in this very moment, fail() is refused and the answer stands.
        if reply.fail(AskTimeout(type(envelope.message).__name__, str(self), deadline_s)):
            self._cell.on_loop(partial(self._cell.abandon, envelope))

    def stop(self) -> None:  # type: ignore[override]  # pykka's stop waits; here `stopped` does
        """Ask it to end after the message it works on, ahead of all that wait. Returns at once."""
        self._cell.stop()

    def kill(self) -> None:
        """Cancel what it works on and end it; if it ends already, cut that short. Returns at once."""
        self._cell.request_kill()

    async def stopped(self, *, deadline_s: float) -> ExitReason:
        """Wait until it has ended, `on_stop` included. Raises `AskTimeout`; the actor is not touched by that."""
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

        Called on the actor's loop; it must not block. On a loop that was closed, on the calling thread.
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


def whereis(name: str) -> ActorRef | None:
    """The living actor of that name on the running loop."""
    found = Dispatcher.here(name).find(name)
    return found.ref if isinstance(found, Cell) else None


def _resolve(ended: asyncio.Future[ExitReason], down: Down) -> None:
    loop = ended.get_loop()
    if loop.is_closed():
        return
    loop.call_soon_threadsafe(_set, ended, down.reason)


def _set(ended: asyncio.Future[ExitReason], reason: ExitReason) -> None:
    if not ended.done():
        ended.set_result(reason)
