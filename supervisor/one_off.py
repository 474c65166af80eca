"""Blocking work beside a loop, once: in a thread that ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


async def in_thread(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """What `work` returns. Cancelled, it goes on by itself to its end.

    `asyncio.to_thread` would leave a thread behind for as long as the loop lives, and threads are counted here.
    """
    threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="once")
    try:
        return await asyncio.get_running_loop().run_in_executor(threads, partial(work, *args, **kwargs))
    finally:
        threads.shutdown(wait=False)
