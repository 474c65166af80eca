"""What an actor owns beside its mailbox: tasks and timers. They end with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import Any

from .asking import Party, Work, at_work
from .reply import as_answer
from .steps import Meter, metered


class OwnedTasks:
    """The tasks of one actor; made when it first has one. Owned by the loop thread."""

    __slots__ = ("_crash", "_loop", "_meter", "_name", "_owner", "_tasks")

    def __init__(
        self,
        owner: Party,
        name: str,
        crash: Callable[[BaseException, str], None],
        *,
        loop: asyncio.AbstractEventLoop,
        meter: Meter,
    ) -> None:
        self._owner = owner
        self._name = name
        self._crash = crash
        self._loop = loop
        self._meter = meter
        self._tasks: dict[asyncio.Task[Any], Work] = {}

    def __len__(self) -> int:
        """Tasks that run."""
        return len(self._tasks)

    def run(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run `work` as a task; if it raises, the actor crashes."""
        context, beside = copy_context(), Work(self._owner)
        context.run(at_work.set, beside)
        owned = self._owned(work, name)
        task = asyncio.Task(owned, loop=self._loop, name=f"{self._name}.{name}", context=context)
        self._tasks[task] = beside
        task.add_done_callback(partial(self._disown, work))
        return task

    def cancel(self) -> set[asyncio.Task[Any]]:
        """Cancel them all; whoever calls this awaits them."""
        for task, beside in self._tasks.items():
            beside.give_up()
            task.cancel()
        return set(self._tasks)

    async def _owned(self, work: Coroutine[Any, Any, Any], name: str) -> object:
        try:
            return await metered(work, self._meter, self._name, name)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            self._crash(error, name)
            answer = as_answer(error, self._name, name)
            if answer is error:
                raise
            raise answer from None

    def _disown(self, work: Coroutine[Any, Any, Any], task: asyncio.Task[Any]) -> None:
        work.close()  # cancelled before its first step, it was never begun and would warn
        self._tasks.pop(task, None)
        if not task.cancelled():
            task.exception()  # seen: it is the actor's exit reason


class OwnedTimers:
    """The timers of one actor that are still to come; made when it first has one. Owned by the loop thread."""

    __slots__ = ("_handles", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handles: set[asyncio.TimerHandle] = set()

    def __len__(self) -> int:
        """Timers that are to come."""
        return len(self._handles)

    def add(self, delay_s: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        """Run `action` later, once."""
        slot: list[asyncio.TimerHandle] = []
        handle = self._loop.call_later(delay_s, self._due, slot, action)
        slot.append(handle)
        self._handles.add(handle)
        return handle

    def cancel(self, handle: asyncio.TimerHandle) -> None:
        """Its action is not run, unless it was."""
        handle.cancel()
        self._handles.discard(handle)

    def cancel_all(self) -> None:
        """No action is run any more."""
        for handle in self._handles:
            handle.cancel()
        self._handles.clear()

    def _due(self, slot: list[asyncio.TimerHandle], action: Callable[[], None]) -> None:
        self._handles.discard(slot[0])
        action()
