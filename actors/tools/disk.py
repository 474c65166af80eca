"""Blocking file work, off the loop: the loop's own few threads do it, whatever the number of agents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

DEADLINE_S: Final = 60.0


async def on_disk(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` returns; raises TimeoutError when the disk does not answer within a minute.

    A cancelled or late call is not interrupted in its thread: it finishes there and its result is dropped.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(DEADLINE_S):
        # The default executor: a process bounds all its threads by bounding that one.
        return await loop.run_in_executor(None, lambda: work(*args, **kwargs))
