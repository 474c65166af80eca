"""One dispatcher per event loop: the actors that live there, their names, and the way in for other threads.

It needs no thread and no task of its own. Other threads hand over actions; however many, the loop is woken once per
batch. When `asyncio.run` ends, actors that were forgotten are killed, so that their `on_stop` runs; a loop that is
closed without that loses them (`Lost`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, Callable
from threading import Lock, get_ident
from typing import Final, Protocol

import msgspec

from ...protocol.errors import UsageError
from .dead_letters import DeadLetters, DeadLettersView
from .errors import StartFailedError
from .exits import Lost
from .steps import Meter, StepsView

log = logging.getLogger(__name__)

_incarnations = itertools.count(1)
_dispatchers: Final[dict[asyncio.AbstractEventLoop, Dispatcher]] = {}


class LoopClosed(Exception):
    """Internal: the loop takes no more actions."""


class Named(Protocol):
    """One life of a name."""

    name: str
    incarnation: int


class Resident(Named, Protocol):
    """What the dispatcher needs of an actor's cell."""

    def stop(self) -> None: ...
    def kill(self) -> None: ...


class LoopView(msgspec.Struct, frozen=True, kw_only=True):
    """What status shows of one loop and its actors."""

    actors: int
    dead_letters: DeadLettersView
    steps: StepsView


class Dispatcher:
    """The actors of one loop. Owned by the loop thread, but for `post`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.thread = get_ident()
        self.meter = Meter(loop.time)
        self.dead_letters = DeadLetters(loop.time)
        self.monitors_lock = Lock()
        self._residents: dict[str, Resident] = {}
        self._emptied: asyncio.Future[None] | None = None
        self._is_closing = False
        self._lock = Lock()
        self._incoming: list[Callable[[], None]] = []
        self._guard = self._until_the_loop_ends()
        _step_once(self._guard)

    @classmethod
    def here(cls, what: str = "an actor") -> Dispatcher:
        """The running loop's dispatcher. Raises `UsageError` where no loop runs."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError(f"{what} must be started where an event loop runs") from None
        found = _dispatchers.get(loop)
        if found is None:
            for closed in [known for known in _dispatchers if known.is_closed()]:
                del _dispatchers[closed]
            found = _dispatchers[loop] = cls(loop)
        return found

    @property
    def is_current(self) -> bool:
        """Whether this is the loop's own thread."""
        return get_ident() == self.thread

    # --- who lives here ----------------------------------------------------------------------------------------------

    def next_incarnation(self) -> int:
        """A number no other actor of this process has or had."""
        return next(_incarnations)

    def admit(self, resident: Resident) -> bool:
        """Keep the actor alive under its name until `forget`; False if the name is taken."""
        if self._is_closing:
            raise StartFailedError(resident.name, Lost())
        return self._residents.setdefault(resident.name, resident) is resident

    def forget(self, resident: Named) -> None:
        """The actor has ended; its name is free."""
        if self._residents.get(resident.name) is resident:
            del self._residents[resident.name]
        if not self._residents and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def find(self, name: str) -> Resident | None:
        """The living actor of that name."""
        return self._residents.get(name)

    def __len__(self) -> int:
        """Actors alive."""
        return len(self._residents)

    def view(self) -> LoopView:
        """What status shows."""
        return LoopView(actors=len(self), dead_letters=self.dead_letters.view(), steps=self.meter.view())

    async def stop_all(self, *, deadline_s: float) -> None:
        """Stop every actor of this loop; what has not ended by the deadline is killed. Returns when none is left."""
        for resident in reversed(list(self._residents.values())):
            resident.stop()
        if not await self._are_gone(deadline_s):
            await self._kill_all()

    async def _kill_all(self) -> None:
        for resident in reversed(list(self._residents.values())):
            resident.kill()
        # No deadline here: every end has its own (`stop_deadline_s` of the class).
        await self._are_gone(None)

    async def _are_gone(self, deadline_s: float | None) -> bool:
        if not self._residents:
            return True
        if self._emptied is None or self._emptied.done():
            self._emptied = self.loop.create_future()
        await asyncio.wait({self._emptied}, timeout=deadline_s)
        return not self._residents

    async def _until_the_loop_ends(self) -> AsyncGenerator[None, None]:
        # asyncio.run closes the loop's async generators after it has cancelled all tasks and before it closes the
        # loop. An idle actor has no task, so this is the one place where it can learn that its loop ends.
        try:
            yield
        finally:
            self._is_closing = True
            if self._residents:
                log.info("loop_ends actors=%d", len(self._residents))
            await self._kill_all()
            _dispatchers.pop(self.loop, None)

    # --- other threads -----------------------------------------------------------------------------------------------

    def post(self, action: Callable[[], None]) -> None:
        """Run `action` on the loop, in the order of the posts. Raises `LoopClosed`; actions must not raise."""
        with self._lock:
            self._incoming.append(action)
            if len(self._incoming) > 1:
                return
        try:
            self.loop.call_soon_threadsafe(self._run_incoming)
        except RuntimeError:
            with self._lock:
                self._incoming.clear()
            raise LoopClosed from None

    def _run_incoming(self) -> None:
        with self._lock:
            batch, self._incoming = self._incoming, []
        for action in batch:
            action()


def _step_once(generator: AsyncGenerator[None, None]) -> None:
    # Runs it up to its `yield`: the loop learns of an async generator when it is first stepped.
    try:
        generator.asend(None).send(None)
    except StopIteration:
        return
    raise AssertionError("the guard has nothing to await before its yield")
