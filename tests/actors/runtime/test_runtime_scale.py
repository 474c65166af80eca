"""Many actors: memory and threads."""

from __future__ import annotations

import asyncio
import gc
import threading

import psutil

from covey.actors.runtime.actor import LoopActor
from covey.actors.runtime.dispatch import Dispatcher


class Idle(LoopActor):
    async def on_receive(self, message: object) -> object:
        return message


def test_twenty_thousand_idle_actors_take_under_5_kib_each_and_no_thread_and_no_task() -> None:
    count = 20_000

    async def main() -> None:
        process, threads = psutil.Process(), threading.active_count()
        gc.collect()
        before = process.memory_info().rss
        refs = [Idle.start() for _ in range(count)]
        for ref in refs:
            await ref.ask("once", deadline_s=5)
        gc.collect()

        per_actor = (process.memory_info().rss - before) / count
        tasks = len(asyncio.all_tasks())
        still_threads = threading.active_count()
        for ref in refs:
            ref.kill()
        await Dispatcher.here().stop_all(deadline_s=5)

        assert per_actor < 5 * 1024
        assert still_threads == threads
        assert tasks == 1

    asyncio.run(main())
