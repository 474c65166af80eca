"""A loop in a thread, for programs that have none."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from .interrupts import NAP_S, Interrupt, check
from .loops import new_loop

T = TypeVar("T")


class Portal:
    """A thread that runs a loop for callers that have none. One per blocking fleet."""

    def __init__(self) -> None:
        self._loop = new_loop()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._loop.run_forever, name="covey-fleet", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` over there and wait; an interrupted wait (Ctrl-C) cancels it, if it has not just ended."""
        assert os.getpid() == self._pid, "the thread of a portal does not survive a fork"
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call_until(self, interrupt: Interrupt | None, work: Coroutine[Any, Any, T], *, waiting_for: str) -> T:
        """As `call`, but given up at the interrupt; the result of work that ended at that moment is dropped."""
        if interrupt is None:
            return self.call(work)
        assert os.getpid() == self._pid, "the thread of a portal does not survive a fork"
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            is_done = False
            while not is_done:
                is_done = bool(concurrent.futures.wait([future], timeout=NAP_S).done)
                check(interrupt, waiting_for=waiting_for)
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def awaiting(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` over there and await it from another loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def soon(self, function: Callable[..., None], *args: Any) -> None:
        """Call `function` over there, in order, without waiting; nothing happens any more once it is closed."""
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def close(self) -> None:
        """Stop the loop and join the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5.0)
        self._loop.close()
