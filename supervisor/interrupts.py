"""A person or a program that gives up a wait: an event or a question, looked at between short naps and after a grant.

Looking costs no thread; it happens where the caller waits, in its own thread or loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

Interrupt = threading.Event | Callable[[], bool]
"""Set, or answering True: who waits gives up with `InterruptedError`."""

NAP_S: Final = 0.05


def check(interrupt: Interrupt | None, *, waiting_for: str) -> None:
    """Raise `InterruptedError` if the wait is given up; whatever a question raises goes through."""
    if interrupt is None:
        return
    if interrupt.is_set() if isinstance(interrupt, threading.Event) else interrupt():
        raise InterruptedError(f"interrupted while waiting for {waiting_for}")


async def until_interrupted(work: Coroutine[Any, Any, T], interrupt: Interrupt | None, *, waiting_for: str) -> T:
    """Await `work`, but no longer than until the interrupt; `work` has ended when this raises.

    The interrupt counts also when `work` has just ended: its result is dropped then.
    """
    if interrupt is None:
        return await work
    task = asyncio.ensure_future(work)
    try:
        is_done = False
        while not is_done:
            is_done = bool((await asyncio.wait({task}, timeout=NAP_S))[0])
            check(interrupt, waiting_for=waiting_for)
        return task.result()
    except BaseException:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
