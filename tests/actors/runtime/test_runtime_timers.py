"""The periodic scheduler, in virtual time."""

from __future__ import annotations

import asyncio
import threading

import pytest

from covey.actors.runtime.errors import WouldDeadlock
from covey.actors.runtime.timers import Periodic, Scheduler
from covey.actors.runtime.virtual_time import VirtualTimeLoop, run_virtual
from covey.protocol.errors import AskTimeout, UsageError


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_job_runs_every_interval_until_it_is_cancelled() -> None:
    async def main() -> list[float]:
        runs: list[float] = []
        job = Scheduler.here().every(10, lambda: runs.append(now()), name="tick")
        await asyncio.sleep(35)
        job.cancel()
        await asyncio.sleep(100)
        return runs

    assert run_virtual(main()) == pytest.approx([10, 20, 30])


def test_jobs_keep_their_own_intervals_and_first_runs() -> None:
    async def main() -> list[str]:
        runs: list[str] = []
        scheduler = Scheduler.here()
        scheduler.every(10, lambda: runs.append("slow"), name="slow")
        scheduler.every(4, lambda: runs.append("fast"), name="fast", first_s=1)
        await asyncio.sleep(10.5)
        return runs

    assert run_virtual(main()) == ["fast", "fast", "fast", "slow"]


@pytest.mark.parametrize("shape", ["def", "async def"])
def test_a_callback_that_returns_false_ends_its_job(shape: str) -> None:
    async def main() -> int:
        runs: list[float] = []

        def run() -> bool:
            runs.append(now())
            return len(runs) < 3

        async def run_async() -> bool:
            return run()

        Scheduler.here().every(1, run if shape == "def" else run_async, name="thrice")
        await asyncio.sleep(100)
        return len(runs)

    assert run_virtual(main()) == 3


@pytest.mark.parametrize("shape", ["def", "async def"])
def test_a_callback_that_raises_is_logged_and_called_again(shape: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> int:
        runs: list[float] = []

        def run() -> None:
            runs.append(now())
            raise ValueError("broken")

        async def run_async() -> None:
            run()

        Scheduler.here().every(1, run if shape == "def" else run_async, name="broken")
        await asyncio.sleep(3.5)
        return len(runs)

    assert run_virtual(main()) == 3
    assert caplog.text.count("job_failed job=broken") == 3


def test_runs_of_one_job_do_not_overlap_and_missed_ones_are_not_made_up_for() -> None:
    async def main() -> list[float]:
        runs: list[float] = []

        async def run() -> None:
            runs.append(now())
            await asyncio.sleep(25)

        Scheduler.here().every(10, run, name="long")
        await asyncio.sleep(100)
        return runs

    assert run_virtual(main()) == pytest.approx([10, 45, 80])


def test_a_blocked_loop_does_not_cause_a_burst() -> None:
    async def main() -> list[float]:
        runs: list[float] = []
        Scheduler.here().every(1, lambda: runs.append(now()), name="tick")
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.advance(10)
        await asyncio.sleep(1.5)
        return runs

    assert run_virtual(main()) == pytest.approx([10, 11])


def test_the_end_of_a_job_can_be_awaited() -> None:
    async def main() -> None:
        done: list[str] = []

        async def run() -> None:
            await asyncio.sleep(5)
            done.append("done")

        job = Scheduler.here().every(10, run, name="long")
        await asyncio.sleep(11)
        with pytest.raises(AskTimeout):
            await job.ended(deadline_s=1)
        await job.ended(deadline_s=10)
        assert (done, round(now(), 3)) == (["done"], 15)
        await asyncio.sleep(100)
        assert done == ["done"]

    run_virtual(main())


def test_a_job_that_waits_for_its_own_end_is_refused() -> None:
    async def main() -> None:
        jobs: list[Periodic] = []
        refused: list[bool] = []

        async def run() -> None:
            with pytest.raises(WouldDeadlock):
                await jobs[0].ended(deadline_s=60)
            refused.append(True)

        jobs.append(Scheduler.here().every(1, run, name="selfish"))
        await asyncio.sleep(10)
        assert refused == [True]

    run_virtual(main())


def test_a_thousand_jobs_need_no_thread_and_one_wakeup() -> None:
    async def main() -> None:
        before = threading.active_count()
        jobs = [Scheduler.here().every(n + 1, lambda: None, name=str(n)) for n in range(1_000)]
        await asyncio.sleep(100)
        assert threading.active_count() == before
        for job in jobs:
            job.cancel()

    run_virtual(main())


def test_an_interval_of_nothing_is_refused() -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="interval of spin"):
            Scheduler.here().every(0, lambda: None, name="spin")

    run_virtual(main())
