"""Actors measured on one loop, beside bare queues and tasks in the same run.

Asks and their floor take turns in blocks, so that a machine that slows down slows both.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Final

import psutil

from ..actors.runtime.actor import LoopActor
from ..actors.runtime.dispatch import Dispatcher
from ..actors.runtime.monitor import Down
from ..actors.runtime.ref import ActorRef

BLOCKS: Final = 10
OVERTAKES: Final = 10
DEADLINE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What one run saw. Times per round trip are lists, in the order they were measured."""

    agents: int
    idle_kib: float
    threads: int
    tasks: int
    start_us: float
    stop_all_s: float
    task_start_us: float
    ask_us: list[float]
    ask_def_us: list[float]
    queue_us: list[float]
    tells_per_s: float
    queue_puts_per_s: float
    backlog: int
    backlog_handled_ms: float
    stop_idle_ms: list[float]
    stop_behind_ms: list[float]
    down_behind_ms: list[float]


class Echo(LoopActor):
    """Answers with what it was asked."""

    async def on_receive(self, message: object) -> object:
        return message


class EchoDef(LoopActor):
    """The same, without a coroutine."""

    def on_receive(self, message: object) -> object:
        return message


class Backlogged(LoopActor):
    """Takes any number of messages and does next to nothing with them."""

    mailbox_limit = 2**40
    mailbox_bytes_limit = 2**40

    def on_receive(self, message: object) -> object:
        return None


class Watcher(Backlogged):
    """The same; says when it hears of another one's end."""

    def __init__(self, other: ActorRef, heard: asyncio.Future[float]) -> None:
        self._other, self._heard = other, heard

    def on_start(self) -> None:
        self.watch(self._other)

    def on_receive(self, message: object) -> object:
        if isinstance(message, Down):
            self._heard.set_result(perf_counter())
        return None


async def measure(*, agents: int, rounds: int, backlog: int) -> Seen:
    """Measure all of it. Idle actors come first: memory that others have used and freed would hide theirs."""
    idle_kib, start_us, threads, tasks, stop_all_s = await _idle(agents)
    task_start_us = await _bare_tasks(agents)
    ask_us, ask_def_us, queue_us = await _round_trips(rounds)
    tells_per_s, queue_puts_per_s = await _throughput(rounds)
    return Seen(
        agents=agents,
        idle_kib=idle_kib,
        threads=threads,
        tasks=tasks,
        start_us=start_us,
        stop_all_s=stop_all_s,
        task_start_us=task_start_us,
        ask_us=ask_us,
        ask_def_us=ask_def_us,
        queue_us=queue_us,
        tells_per_s=tells_per_s,
        queue_puts_per_s=queue_puts_per_s,
        backlog=backlog,
        backlog_handled_ms=await _work_off(backlog),
        stop_idle_ms=[await _stop_behind(0) for _ in range(OVERTAKES)],
        stop_behind_ms=[await _stop_behind(backlog) for _ in range(OVERTAKES)],
        down_behind_ms=[await _down_behind(backlog) for _ in range(OVERTAKES)],
    )


async def _idle(agents: int) -> tuple[float, float, int, int, float]:
    process = psutil.Process()
    gc.collect()
    rss_before = process.memory_info().rss
    began = perf_counter()
    refs = [Echo.start() for _ in range(agents)]
    # The last to be started is the last to be ready, and answers after that.
    await refs[-1].ask(None, deadline_s=DEADLINE_S)
    start_us = (perf_counter() - began) / agents * 1e6
    for ref in refs:
        await ref.ask(None, deadline_s=DEADLINE_S)
    gc.collect()
    idle_kib = (process.memory_info().rss - rss_before) / agents / 1024
    threads, tasks = process.num_threads(), len(asyncio.all_tasks())
    began = perf_counter()
    await Dispatcher.here().stop_all(deadline_s=DEADLINE_S)
    return idle_kib, start_us, threads, tasks, perf_counter() - began


async def _bare_tasks(count: int) -> float:
    async def serve(inbox: asyncio.Queue[None]) -> None:
        await inbox.get()

    queues: list[asyncio.Queue[None]] = []
    tasks: list[asyncio.Task[None]] = []
    began = perf_counter()
    for _ in range(count):
        queues.append(asyncio.Queue())
        tasks.append(asyncio.create_task(serve(queues[-1])))
    await asyncio.sleep(0)
    took = perf_counter() - began
    for queue in queues:
        queue.put_nowait(None)
    await asyncio.gather(*tasks)
    return took / count * 1e6


async def _round_trips(rounds: int) -> tuple[list[float], list[float], list[float]]:
    there: asyncio.Queue[int] = asyncio.Queue()
    back: asyncio.Queue[int] = asyncio.Queue()
    server = asyncio.create_task(_echo(there, back))
    echo, echo_def = await Echo.start_ready(), await EchoDef.start_ready()

    async def over_queues() -> object:
        there.put_nowait(1)
        return await back.get()

    ask_us: list[float] = []
    ask_def_us: list[float] = []
    queue_us: list[float] = []
    for _ in range(BLOCKS):
        block = max(1, rounds // BLOCKS)
        queue_us += await _timed(block, over_queues)
        ask_us += await _timed(block, lambda: echo.ask(1, deadline_s=DEADLINE_S))
        ask_def_us += await _timed(block, lambda: echo_def.ask(1, deadline_s=DEADLINE_S))
    server.cancel()
    await _ended(echo, echo_def)
    return ask_us, ask_def_us, queue_us


async def _echo(there: asyncio.Queue[int], back: asyncio.Queue[int]) -> None:
    while True:
        back.put_nowait(await there.get())


async def _timed(rounds: int, once: Callable[[], Awaitable[object]]) -> list[float]:
    times = []
    for _ in range(rounds):
        began = perf_counter()
        await once()
        times.append((perf_counter() - began) * 1e6)
    return times


async def _throughput(messages: int) -> tuple[float, float]:
    ref = await Backlogged.start_ready()
    began = perf_counter()
    for _ in range(messages):
        ref.tell(1)
    await ref.ask(1, deadline_s=DEADLINE_S)
    tells_s = perf_counter() - began
    await _ended(ref)

    queue: asyncio.Queue[int] = asyncio.Queue()

    async def drain() -> None:
        for _ in range(messages):
            await queue.get()

    began = perf_counter()
    for _ in range(messages):
        queue.put_nowait(1)
    await asyncio.create_task(drain())
    return messages / tells_s, messages / (perf_counter() - began)


async def _work_off(backlog: int) -> float:
    ref = await Backlogged.start_ready()
    for _ in range(backlog):
        ref.tell(1)
    began = perf_counter()
    await ref.ask(1, deadline_s=DEADLINE_S)
    took = perf_counter() - began
    await _ended(ref)
    return took * 1000


async def _stop_behind(backlog: int) -> float:
    """From the stop to the end of an actor that works on `backlog` messages."""
    ref = await Backlogged.start_ready()
    await _fill(ref, backlog)
    began = perf_counter()
    ref.stop()
    await ref.stopped(deadline_s=DEADLINE_S)
    return (perf_counter() - began) * 1000


async def _down_behind(backlog: int) -> float:
    """From the stop of one actor to the Down in the hands of another that works on `backlog` messages."""
    heard: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    other = await Echo.start_ready()
    ref = await Watcher.start_ready(other, heard)
    await _fill(ref, backlog)
    began = perf_counter()
    other.stop()
    took = await heard - began
    await _ended(ref)
    return took * 1000


async def _fill(ref: ActorRef, backlog: int) -> None:
    for _ in range(backlog):
        ref.tell(1)
    await asyncio.sleep(0)  # from here on it works on them


async def _ended(*refs: ActorRef) -> None:
    for ref in refs:
        ref.stop()
        await ref.stopped(deadline_s=DEADLINE_S)
