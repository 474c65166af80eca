"""A fixed pool of threads for short blocking work: a file, a stat, less than 50 ms of CPU.

The threads never end before the process does (a child process with PDEATHSIG dies with the *thread* that spawned it)
and are daemons: a call that hangs does not keep the process alive. Work that may hang belongs into another process.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from queue import SimpleQueue
from typing import ClassVar, Final, ParamSpec, TypeVar

from .actor import LoopActor
from .errors import PoolFull

P = ParamSpec("P")
Result = TypeVar("Result")

SIZE: Final = (os.cpu_count() or 1) + 4
WAITING_LIMIT: Final = 1_000


class BlockingPool:
    """At most `size` threads, started when first needed; usable from any thread."""

    def __init__(self, *, size: int = SIZE, waiting_limit: int = WAITING_LIMIT) -> None:
        self._size = size
        self._waiting_limit = waiting_limit
        self._lock = threading.Lock()
        self._threads = 0
        self._open = 0
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()

    @property
    def threads(self) -> int:
        """Threads started so far."""
        return self._threads

    async def run(self, call: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Run `call` on a thread, in the caller's context; raises `PoolFull` when too many wait.

        If the caller is cancelled, a call that has not begun is dropped; one that runs goes on unheard.
        """
        return await asyncio.wrap_future(self.submit(call, *args, **kwargs))

    def submit(self, call: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> ThreadFuture[Result]:
        """`run` for those who wait in their own way."""
        # Read without the lock: the bound protects memory, one more or less does not matter.
        if self._open >= self._size + self._waiting_limit:
            raise PoolFull(self._open - self._size)
        return self.submit_turn(call, *args, **kwargs)

    def submit_turn(self, call: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> ThreadFuture[Result]:
        """`submit` without the bound, for those who have one call at a time: they are their own bound."""
        answer: ThreadFuture[Result] = ThreadFuture()
        context = contextvars.copy_context()
        with self._lock:
            self._open += 1
            needs_thread = self._threads < min(self._size, self._open)
            if needs_thread:
                self._threads += 1
                number = self._threads
        if needs_thread:
            threading.Thread(target=self._serve, name=f"covey-pool-{number}", daemon=True).start()
        self._work.put(lambda: self._run(answer, context, lambda: call(*args, **kwargs)))
        return answer

    def _serve(self) -> None:
        while True:
            # Taken and run without a name: an idle thread must not keep the last call alive.
            self._work.get()()

    def _run(self, answer: ThreadFuture[Result], context: contextvars.Context, call: Callable[[], Result]) -> None:
        try:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                result = context.run(call)
            except StopIteration as error:
                # No asyncio future takes one, and whoever waits would wait for ever.
                answer.set_exception(RuntimeError(f"the call raised {error!r}"))
            except BaseException as error:  # noqa: BLE001 - a turn is a boundary: it reaches whoever waits
                answer.set_exception(error)
            else:
                answer.set_result(result)
        finally:
            with self._lock:
                self._open -= 1


_shared: Final = BlockingPool()


def shared_pool() -> BlockingPool:
    """The process's pool."""
    return _shared


class PoolActor(LoopActor):
    """An actor whose `def on_receive` may block for a moment: it runs on a thread of the pool.

    Everything else (mailbox, one message at a time, start, stop, asks) is a LoopActor's, and its hooks run on the loop.
    In `on_receive` only `actor_ref` and `ask_is_wanted` may be used, not `own` and `after`; it asks others by
    `ask_blocking`, never itself. A thread cannot be interrupted: kill waits for the running message up to
    `stop_deadline_s` and then leaves it behind. But an `ask_blocking` in it ends at once, with `WorkCancelled`.
    """

    pool: ClassVar[BlockingPool] = _shared

    def _receive(self, message: object) -> object:
        return self._on_thread(super()._receive, message)

    async def _on_thread(self, receive: Callable[[object], object], message: object) -> object:
        work = self.pool.submit_turn(receive, message)
        # Cancelled, it still waits: on_stop must not run beside the handler. The end's deadline bounds that.
        waiter = asyncio.wrap_future(work)
        cancelled: asyncio.CancelledError | None = None
        while not waiter.done():
            try:
                await asyncio.wait({waiter})
            except asyncio.CancelledError as error:
                cancelled = error
                work.cancel()
        if cancelled is not None:
            if not waiter.cancelled():
                waiter.exception()
            raise cancelled
        return waiter.result()
