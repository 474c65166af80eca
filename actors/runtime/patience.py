"""The waits of an actor's end: each has a deadline, and all are cut short once the end is hurried."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

log = logging.getLogger(__name__)

CANCEL_GRACE_S: Final = 1.0
"""How long a cancelled task may take to end before it is left behind."""


class Patience:
    """How long one end waits. Used by its one task; a cancel of that task hurries it and is not passed on."""

    __slots__ = ("_is_hurried", "_owner")

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._is_hurried = False

    def hurry(self) -> None:
        """From here on nothing gets more than the grace of a cancelled task."""
        self._is_hurried = True

    async def join(self, tasks: set[asyncio.Task[Any]], deadline_s: float) -> None:
        """Wait for tasks that were cancelled; what is not over by the deadline is left behind."""
        for task in await self._pending(tasks, deadline_s):
            log.error("task_left_behind actor=%s task=%s", self._owner, task.get_name())

    async def finish(self, task: asyncio.Task[None], what: str, deadline_s: float) -> None:
        """Wait for a hook; at the deadline it is cancelled, and left behind if it does not mind."""
        if not await self._pending({task}, deadline_s):
            return
        task.cancel()
        log.warning("hook_cut_short actor=%s hook=%s", self._owner, what)
        await self.join({task}, CANCEL_GRACE_S)

    async def _pending(self, tasks: set[asyncio.Task[Any]], deadline_s: float) -> set[asyncio.Task[Any]]:
        waiting = {task for task in tasks if not task.done()}
        if not waiting:
            return waiting
        try:
            await asyncio.wait(waiting, timeout=min(deadline_s, CANCEL_GRACE_S) if self._is_hurried else deadline_s)
        except asyncio.CancelledError:
            self._is_hurried = True
        return {task for task in waiting if not task.done()}
