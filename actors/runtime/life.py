"""What is known of one actor's life, and its death watch. `ends`, `turns` and `cell` build on it, in this order.

Owned by the loop thread, but for `watch` and `on_loop`.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from .asking import Work
from .belongings import OwnedTasks, OwnedTimers
from .dispatch import Dispatcher, LoopClosed
from .errors import ActorDown
from .exits import DownReason, ExitReason, Lost, Stale
from .mailbox import Mailbox, Overflow
from .monitor import Down, Monitor
from .patience import Patience

if TYPE_CHECKING:
    from .ref import ActorRef


class Behaviour(Protocol):
    """What the runtime needs of an actor."""

    mailbox_limit: ClassVar[int]
    mailbox_bytes_limit: ClassVar[int]
    overflow: ClassVar[Overflow]
    throughput: ClassVar[int]
    stop_deadline_s: ClassVar[float]
    cancel_orphaned: ClassVar[bool]
    cancel_abandoned: ClassVar[bool]

    def on_start(self) -> object: ...
    def on_stop(self, reason: ExitReason) -> object: ...
    def on_failure(self, exc: BaseException) -> object: ...
    def coalesce_key(self, message: object) -> Hashable | None: ...
    def message_bytes(self, message: object) -> int: ...


class Life:
    """Who the actor is, what it does now, why it ended and whom that concerns."""

    __slots__ = (
        "_cancelled_for",
        "_context",
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
        "work",
    )

    ref: ActorRef

    def __init__(self, actor: Behaviour, receive: Callable[[object], object], *, home: Dispatcher, name: str | None):
        self.home = home
        self.incarnation = home.next_incarnation()
        self.name = name if name is not None else f"{type(actor).__name__}-{self.incarnation}"
        self.actor: Behaviour | None = actor
        self.mailbox = Mailbox(actor.mailbox_limit, actor.overflow, bytes_limit=actor.mailbox_bytes_limit)
        self.reason: ExitReason | None = None
        self.ready: asyncio.Future[object] | None = None
        self.task: asyncio.Task[None] | None = None
        """The actor's own work: the start, a turn or the end; None while it sleeps."""
        self.work: Work | None = None
        """What is done for the message it works on, or for its start."""
        self._receive: Callable[[object], object] | None = receive
        self._context: contextvars.Context | None = contextvars.copy_context()
        self._cancelled_for: Work | None = None
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

    def watch(self, monitor: Monitor) -> None:
        """Fire `monitor` once when the actor has ended, or soon if it has."""
        with self.home.monitors_lock:
            if not self.is_dead:
                if self._monitors is None:
                    self._monitors = []
                self._monitors = [known for known in self._monitors if known.is_open]
                self._monitors.append(monitor)
                return
        down = Down(self.ref, self.down_reason())
        try:
            self.home.post(partial(monitor.fire, down))
        except LoopClosed:
            monitor.fire(down)

    def down_reason(self) -> DownReason:
        """Why it takes no mail; `Stale` once a later life has its name."""
        ended = self.end_reason()
        successor = self.home.find(self.name)
        if successor is not None and successor.incarnation > self.incarnation:
            return Stale(successor=successor.incarnation, ended=ended)
        return ended

    def end_reason(self) -> ExitReason:
        """Why it ended or ends."""
        reason = self.reason or self.mailbox.closed_by
        assert reason is not None, "a closed mailbox knows why"
        return reason

    def down_error(self) -> ActorDown:
        """What a sender gets from now on."""
        return ActorDown(str(self), self.down_reason())

    def on_loop(self, action: Callable[[], None]) -> None:
        """Run `action` on the actor's loop: at once if this is its thread."""
        if self.home.is_current:
            action()
            return
        try:
            self.home.post(action)
        except LoopClosed:
            self.lose()

    def lose(self) -> None:
        """The loop is closed: nothing of the actor can run any more. On whatever thread found that out."""
        left = self.mailbox.close(Lost())
        if self.reason is None:
            self.reason = Lost()
        for envelope in left:
            if envelope.reply is not None:
                envelope.reply.fail(self.down_error())
        self._let_go()
        self._fire_monitors()

    def _let_go(self) -> None:
        with self.home.monitors_lock:
            self.actor = None
        self._receive = self._context = self.task = None
        self._tasks = self._timers = self._patience = None

    def _fire_monitors(self) -> None:
        with self.home.monitors_lock:
            monitors, self._monitors = self._monitors, None
        # One Down for all: the first to hear of the end may give the name to a successor, which makes nobody stale
        # who watched this life.
        down = Down(self.ref, self.end_reason())
        for monitor in monitors or ():
            monitor.fire(down)

    def _new_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # Made directly, not by the loop's factory: an eager one would run the receiver inside the sender's `tell`.
        return asyncio.Task(work, loop=self.home.loop, name=self.name, context=self._context)
