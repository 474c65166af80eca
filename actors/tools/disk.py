"""Blocking file work, off the loop: two threads for the whole process, whatever the number of agents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

THREADS: Final = 2
DEADLINE_S: Final = 60.0


async def on_disk(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` returns; raises TimeoutError when the disk does not answer within a minute.

    A cancelled or late call is not interrupted in its thread: it finishes there and its result is dropped.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(DEADLINE_S):
        return await loop.run_in_executor(_threads(), lambda: work(*args, **kwargs))


@cache
def _threads() -> ThreadPoolExecutor:
    # Made at the first use: a process that was forked warm must not inherit an executor without its threads.
    return ThreadPoolExecutor(THREADS, thread_name_prefix="covey-disk")
