"""The way back of an ask: one answer, once. A late answer is refused, so that it can be counted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import InvalidStateError
from threading import get_ident
from typing import Protocol

from .errors import ActorDown
from .exits import crashed


class Reply(Protocol):
    """Where an answer goes. All methods may be called from any thread."""

    def is_wanted(self) -> bool:
        """Whether somebody still waits."""
        ...

    def deliver(self, value: object) -> bool:
        """Answer; False if nobody waits any more."""
        ...

    def fail(self, error: Exception) -> bool:
        """Answer with an error; False if nobody waits any more."""
        ...

    def withdraw(self) -> bool:
        """Cancel the wait for the answer; False if nobody waits any more."""
        ...


class LoopReply:
    """For an asker on the actor's own loop: the future is set directly, a wake-up over the loop costs 10 us more."""

    __slots__ = ("_loop", "_thread", "future")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[object] = loop.create_future()
        self._loop = loop
        self._thread = get_ident()

    def is_wanted(self) -> bool:
        return not self.future.done()

    def deliver(self, value: object) -> bool:
        return self._settle(self.future.set_result, value)

    def fail(self, error: Exception) -> bool:
        return self._settle(self.future.set_exception, error)

    def withdraw(self) -> bool:
        if self.future.done():
            return False
        if get_ident() == self._thread:
            self.future.cancel()
        else:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.future.cancel)
        return True

    def _settle(self, setter: Callable[..., None], outcome: object) -> bool:
        if self.future.done():
            return False
        if get_ident() == self._thread:
            setter(outcome)
        else:
            # A foreign thread displaced this ask from a full mailbox. The loop may be gone: then nobody waits.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._settle, setter, outcome)
        return True


class ThreadReply:
    """For an asker on another thread, blocked or on a loop of its own."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: ThreadFuture[object] = ThreadFuture()

    def is_wanted(self) -> bool:
        return not self.future.done()

    def deliver(self, value: object) -> bool:
        try:
            self.future.set_result(value)
        except InvalidStateError:
            return False
        return True

    def fail(self, error: Exception) -> bool:
        try:
            self.future.set_exception(error)
        except InvalidStateError:
            return False
        return True

    def withdraw(self) -> bool:
        if self.future.done() or not self.future.cancel():
            return False
        self.future.set_running_or_notify_cancel()  # without it a blocked thread would not wake
        return True


def forget_outcome(future: asyncio.Future[object]) -> None:
    """Nobody will look at it: an error that came in the same instant is not reported as overlooked."""
    if future.done() and not future.cancelled():
        future.exception()


def as_answer(error: BaseException, ref: str, during: str) -> Exception:
    """What the asker is told when the handler raised `error`.

    SystemExit, KeyboardInterrupt and a stray CancelledError would end or cancel the asker as well (and asyncio lets
    the first two out of the loop), StopIteration cannot be set on a future: they become an ActorDown.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return ActorDown(ref, crashed(error, during))
