"""Actors on an event loop: pykka's shape, many to a loop, `async def` or `def` handlers.

One message at a time: while a handler is suspended the actor takes no other, and other actors run. An actor that
sleeps costs memory, no task and no thread. A handler that raises ends its actor, asked or told: state that is half
changed must not serve the next message. Answer with a value where a refusal is expected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Hashable
from typing import Any, ClassVar, TypeVar

from ...protocol.errors import UsageError
from ._pykka import PykkaShape, attach, dress, is_proxy_message, run_proxy_message
from .asking import note_wait
from .cell import Cell
from .dispatch import Dispatcher
from .errors import StartFailedError
from .exits import ExitReason, StartPhase, start_failed
from .mailbox import Overflow
from .monitor import Monitor
from .ref import ActorRef
from .reply import LoopReply, forget_outcome
from .sizes import estimate

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class Timer:
    """A message to come. Owned by the loop thread; it ends with its actor."""

    __slots__ = ("_cell", "_handle")

    def __init__(self, cell: Cell, handle: asyncio.TimerHandle) -> None:
        self._cell = cell
        self._handle = handle

    def cancel(self) -> None:
        """The message is not sent, unless it was."""
        self._cell.cancel_timer(self._handle)


class LoopActor(PykkaShape):
    """Base of actors that live on an event loop. All methods run on the loop's thread.

    The constructor is the user's: cheap, no I/O; `actor_ref` is known in it. Class attributes are the contract with
    the senders and are read, never set on an instance.
    """

    mailbox_limit: ClassVar[int] = 10_000
    """Messages that may wait."""
    mailbox_bytes_limit: ClassVar[int] = 64 * 2**20
    """Bytes that may wait, by `message_bytes`; a larger message is refused whatever `overflow` says."""
    overflow: ClassVar[Overflow] = "reject"
    """At either bound: refuse the newest, drop the oldest, or replace a waiting tell of the same `coalesce_key`.

    A dropped ask is answered with `MailboxFull`. Asks are never replaced; without an equal key, coalesce refuses.
    """
    throughput: ClassVar[int] = 16
    """Messages in a row before other actors get the loop."""
    start_deadline_s: ClassVar[float] = 5.0
    """For `start`; `start_ready` takes its own."""
    stop_deadline_s: ClassVar[float] = 5.0
    """What the end may take: this long for the turn and the tasks, `on_failure` and `on_stop` each."""
    cancel_orphaned: ClassVar[bool] = True
    """Cancel the running handler at its next await when its asker has ended or was cancelled; the actor lives on.

    So nobody pays for an answer nobody reads, down the whole line of asks. Set it to False where a handler that was
    begun has to be finished: where its state is not sound at every await. An asker is a task, an actor (whatever it
    asked from: handler, `own`, a thread of the pool) or a loop; one on a thread of its own can only reach its deadline.
    """
    cancel_abandoned: ClassVar[bool] = False
    """The same when the asker lives but its deadline has passed.

    Off, the handler runs to its end and may look at `ask_is_wanted` where it can stop; its reply is a late one.
    """

    _cell: Cell

    def __init__(self) -> None:
        """Nothing to do: the runtime has set everything up before."""

    # --- start -------------------------------------------------------------------------------------------------------

    @classmethod
    async def start_ready(cls, *args: Any, name: str | None = None, deadline_s: float = 5.0, **kwargs: Any) -> ActorRef:
        """Start it and return once `on_start` is over.

        Raises `StartFailedError` when the name is taken by a living actor, when the constructor or `on_start` raises,
        or when the deadline passes; then nothing of it is left. So it is when the caller is cancelled, soon after.
        """
        home = Dispatcher.here(cls.__name__)
        try:
            cell = cls._make(home, name, args, kwargs)
        except StartFailedError:
            raise
        except Exception as error:
            raise StartFailedError(name or cls.__name__, start_failed(StartPhase.INIT, error)) from error
        reply = LoopReply(home.loop)
        cell.ready = reply.future
        # Noted like an ask: a child whose `on_start` asks the parent that waits for it is told so.
        work = note_wait(cell, reply)
        cell.start(deadline_s=deadline_s)
        try:
            await reply.future
        except asyncio.CancelledError:
            forget_outcome(reply.future)
            cell.kill()
            raise
        finally:
            if work is not None:
                work.done(reply)
        return cell.ref

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> ActorRef:
        """Start it and return at once; mail waits for `on_start`, a failed start shows as `ActorDown`.

        Raises what the constructor raises, and `UsageError` where no event loop runs.
        """
        cell = cls._make(Dispatcher.here(cls.__name__), None, args, kwargs)
        cell.start(deadline_s=cls.start_deadline_s)
        return cell.ref

    @classmethod
    def _make(cls, home: Dispatcher, name: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Cell:
        actor = cls.__new__(cls)
        cell = Cell(actor, actor._receive, home=home, name=name)
        actor._cell = cell
        dress(actor, urn=str(cell), is_alive=cell.mailbox.is_open)
        cell.ref = ActorRef(actor, cell)
        attach(actor, cell.ref)
        if not home.admit(cell):
            error = UsageError(f"an actor named {cell.name} is alive")
            raise StartFailedError(cell.name, start_failed(StartPhase.NAME, error))
        try:
            cls.__init__(actor, *args, **kwargs)
        except BaseException as error:
            cell.discard(start_failed(StartPhase.INIT, error))
            raise
        return cell

    # --- for the actor itself ----------------------------------------------------------------------------------------

    @property
    def actor_ref(self) -> ActorRef:
        """Its own ref."""
        return self._cell.ref

    def stop(self) -> None:
        """End normally after the running message."""
        self._cell.stop_self()

    def own(self, coro: Coroutine[Any, Any, Result], *, name: str) -> asyncio.Task[Result]:
        """Run `coro` beside the mailbox, as a task of this actor.

        If it raises, the actor crashes. At the actor's end it is cancelled and awaited, before `on_stop`. Its asks do
        not count as the handler's: it may ask this actor, and whoever waits for it.
        """
        return self._cell.own(coro, name)

    def after(self, delay_s: float, message: object) -> Timer:
        """Tell itself `message` in `delay_s` seconds, even if the mailbox is full by then."""
        return Timer(self._cell, self._cell.after(delay_s, message))

    def watch(self, ref: ActorRef) -> Monitor:
        """Have one `Down` put into the own mailbox, ahead of user mail, when `ref` has ended or if it has."""
        return ref.watch(self._cell.deliver_down)

    def ask_is_wanted(self) -> bool:
        """Whether somebody still waits for the answer to the running message; True for a tell."""
        return self._cell.is_ask_wanted()

    # --- for the user to define --------------------------------------------------------------------------------------

    def on_start(self) -> object:  # type: ignore[override]  # may be `async def`, too
        """Make ready; `def` or `async def`. If it raises, the start has failed and `on_stop` runs."""
        return None

    def on_receive(self, message: object) -> object:
        """Handle one message; `def` or `async def`. What it returns answers an ask."""
        log.warning("message_unexpected actor=%s message=%s", self, type(message).__name__)
        return None

    def on_failure(self, exc: BaseException) -> object:  # type: ignore[override]  # pykka passes the triple
        """See what crashed the actor, before `on_stop`; `def` or `async def`."""
        return None

    def on_stop(self, reason: ExitReason) -> object:  # type: ignore[override]  # pykka's knows no reason
        """Clean up; `def` or `async def`. Runs once, however the actor ends, if `on_start` had begun.

        Mail is refused and the actor's tasks have ended by now. Cut short after `stop_deadline_s`.
        """
        return None

    def coalesce_key(self, message: object) -> Hashable | None:
        """Which waiting tells `message` may replace; None: none. Called by the sender: pure, on any thread."""
        return None

    def message_bytes(self, message: object) -> int:
        """What `message` adds to the mailbox. Called by the sender for every message: pure, cheap, on any thread."""
        return estimate(message)

    def _receive(self, message: object) -> object:
        if is_proxy_message(message):
            return run_proxy_message(self, message)
        return self.on_receive(message)

    def __str__(self) -> str:
        return str(self._cell)
