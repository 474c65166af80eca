"""Watching the processes that hold something of ours."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator

import msgspec
import pytest

from covey.actors.holders import Holders
from covey.protocol.peer import Owner
from covey.storage.owners import me, owner_of

SOON_S = 5.0


class Gone:
    """Collects notifications; `wait(n)` returns once n have come."""

    def __init__(self) -> None:
        self.owners: list[Owner] = []
        self._came = asyncio.Event()

    def __call__(self, owner: Owner) -> None:
        self.owners.append(owner)
        self._came.set()

    async def wait(self, count: int) -> None:
        async with asyncio.timeout(SOON_S):
            while len(self.owners) < count:
                self._came.clear()
                await self._came.wait()


class Child:
    """A process that lives until it is killed."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        owner = owner_of(self.process.pid)
        assert owner is not None
        self.owner = owner

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)

    def kill_and_leave(self) -> None:
        """Kill it and wait until it is a zombie."""
        self.kill()
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def children() -> Iterator[list[Child]]:
    made = [Child() for _ in range(5)]
    yield made
    for child in made:
        child.end()


def fds() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.kill
def test_a_killed_process_is_told_once_and_fast(children: list[Child]) -> None:
    async def run() -> list[float]:
        gone, lags = Gone(), []
        holders = Holders(gone)
        for child in children:
            holders.watch(child.owner)
            holders.watch(child.owner)
        for n, child in enumerate(children, start=1):
            killed_at = time.perf_counter()
            child.kill()
            await gone.wait(n)
            lags.append(time.perf_counter() - killed_at)
        assert gone.owners == [child.owner for child in children]
        assert len(holders) == 0
        return lags

    lags = asyncio.run(run())

    print("killed to told, ms:", [round(lag * 1000, 2) for lag in lags])
    assert min(lags) < 0.1


@pytest.mark.kill
def test_a_process_dead_before_the_watch_is_told_too(children: list[Child]) -> None:
    async def run() -> None:
        zombie, reaped = children[:2]
        zombie.kill_and_leave()
        reaped.end()
        gone = Gone()
        holders = Holders(gone)

        holders.watch(reaped.owner)
        holders.watch(zombie.owner)

        assert gone.owners == []
        await gone.wait(2)
        assert set(gone.owners) == {zombie.owner, reaped.owner}

    asyncio.run(run())


def test_one_of_another_boot_or_with_a_reused_pid_is_told_at_once() -> None:
    async def run() -> None:
        gone = Gone()
        holders = Holders(gone)
        holders.watch(msgspec.structs.replace(me(), boot_id="earlier"))
        holders.watch(msgspec.structs.replace(me(), start_ticks=1))
        await gone.wait(2)

    asyncio.run(run())


@pytest.mark.kill
def test_an_unwatched_process_is_not_told(children: list[Child]) -> None:
    async def run() -> None:
        gone = Gone()
        holders = Holders(gone)
        for child in children[:2]:
            holders.watch(child.owner)
        holders.unwatch(children[0].owner)
        holders.unwatch(children[0].owner)

        children[0].kill_and_leave()
        children[1].kill()

        await gone.wait(1)
        assert gone.owners == [children[1].owner]

    asyncio.run(run())


@pytest.mark.kill
def test_no_descriptor_is_left(children: list[Child]) -> None:
    async def run() -> None:
        before = fds()
        gone = Gone()
        holders = Holders(gone)
        for child in children:
            holders.watch(child.owner)
        assert fds() == before + len(children)
        children[0].kill()
        await gone.wait(1)

        holders.close()

        assert fds() == before

    asyncio.run(run())
