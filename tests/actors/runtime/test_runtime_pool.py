"""The pool of threads and the actors on it, in real time."""

from __future__ import annotations

import asyncio
import threading

import pytest

from covey.actors.runtime.actor import LoopActor
from covey.actors.runtime.errors import ActorDown, PoolFull, WorkCancelled
from covey.actors.runtime.exits import Crashed, ExitReason, Killed
from covey.actors.runtime.pool import BlockingPool, PoolActor


def test_calls_run_on_threads_of_a_fixed_number() -> None:
    async def main() -> None:
        pool = BlockingPool(size=2)
        names = await asyncio.gather(*(pool.run(lambda: threading.current_thread().name) for _ in range(50)))
        assert {name.rpartition("-")[0] for name in names} == {"covey-pool"}
        assert pool.threads <= 2

    asyncio.run(main())


@pytest.mark.parametrize("error", [ValueError("broken"), StopIteration()], ids=lambda error: type(error).__name__)
def test_what_a_call_raises_reaches_the_caller(error: Exception) -> None:
    def call() -> None:
        raise error

    async def main() -> None:
        pool = BlockingPool(size=1)
        with pytest.raises((ValueError, RuntimeError)):
            await pool.run(call)
        assert await pool.run(lambda: "lives") == "lives"

    asyncio.run(main())


def test_too_many_waiting_calls_are_refused_and_there_is_room_afterwards() -> None:
    async def main() -> None:
        pool = BlockingPool(size=1, waiting_limit=1)
        gate = threading.Event()
        running = asyncio.ensure_future(pool.run(gate.wait, 5))
        waiting = asyncio.ensure_future(pool.run(lambda: "waited"))
        await asyncio.sleep(0)
        with pytest.raises(PoolFull):
            await pool.run(lambda: None)
        gate.set()
        assert (await running, await waiting) == (True, "waited")
        assert await pool.run(lambda: "room") == "room"

    asyncio.run(main())


def test_a_call_given_up_before_it_begins_is_dropped() -> None:
    async def main() -> None:
        pool = BlockingPool(size=1)
        gate, ran = threading.Event(), list[str]()
        running = asyncio.ensure_future(pool.run(gate.wait, 5))
        waiting = asyncio.ensure_future(pool.run(ran.append, "given up"))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        gate.set()
        await running
        await pool.run(lambda: None)
        assert ran == []

    asyncio.run(main())


class Blocking(PoolActor):
    pool = BlockingPool(size=4)
    stop_deadline_s = 0.05

    def __init__(self) -> None:
        self.log: list[object] = []
        self.inside = 0

    def on_receive(self, message: object) -> object:
        self.inside += 1
        assert self.inside == 1, "one message at a time"
        self.log.append(threading.current_thread().name.rpartition("-")[0])
        answer = message() if callable(message) else message
        self.inside -= 1
        return answer

    def on_stop(self, reason: ExitReason) -> None:  # type: ignore[override]  # pykka's knows no reason
        self.log.append(reason)


class Patient(Blocking):
    stop_deadline_s = 60.0


def test_a_pool_actor_handles_one_message_at_a_time_off_the_loop() -> None:
    async def main() -> None:
        ref = await Blocking.start_ready()
        answers = await asyncio.gather(*(ref.ask(n, deadline_s=5) for n in range(50)))
        assert answers == list(range(50))
        assert await ref.ask(lambda: threading.current_thread() is threading.main_thread(), deadline_s=5) is False

    asyncio.run(main())


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(3)], ids=lambda error: type(error).__name__)
def test_a_raise_on_the_thread_crashes_the_actor_and_answers_the_asker(error: BaseException) -> None:
    def handler() -> None:
        raise error

    async def main() -> None:
        ref = await Blocking.start_ready()
        with pytest.raises((ValueError, ActorDown)):
            await ref.ask(handler, deadline_s=5)
        assert isinstance(await ref.stopped(deadline_s=5), Crashed)

    asyncio.run(main())


def test_a_kill_waits_for_the_thread_up_to_the_deadline_before_on_stop() -> None:
    async def main() -> None:
        gate, begun = threading.Event(), threading.Event()

        def handler() -> None:
            begun.set()
            gate.wait(5)

        ref = await Patient.start_ready()
        actor = ref._cell.actor
        assert isinstance(actor, Patient)
        log = actor.log
        ref.tell(handler)
        assert await asyncio.to_thread(begun.wait, 5)
        ref.kill()
        await asyncio.sleep(0.01)
        assert log == ["covey-pool"]
        gate.set()
        assert await ref.stopped(deadline_s=5) == Killed()
        assert log == ["covey-pool", Killed()]

    asyncio.run(main())


@pytest.mark.parametrize("ends", ["killed", "its asker cancelled"])
def test_a_thread_that_waits_for_an_answer_nobody_needs_is_told_and_the_work_cancelled(ends: str) -> None:
    is_busy = threading.Event()
    outcomes: list[object] = []

    class Bottom(LoopActor):
        def __init__(self) -> None:
            self.log: list[str] = []

        async def on_receive(self, message: object) -> object:
            if message == "work":
                is_busy.set()
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    self.log.append("cancelled")
                    raise
            return list(self.log)

    async def main() -> None:
        bottom = await Bottom.start_ready()
        ref = await Patient.start_ready()

        def handler() -> None:
            for message in ("work", "more"):
                try:
                    bottom.ask_blocking(message, deadline_s=60)
                except WorkCancelled as told:
                    outcomes.append(told)

        asked = asyncio.ensure_future(ref.ask(handler, deadline_s=60))
        assert await asyncio.to_thread(is_busy.wait, 5)
        if ends == "killed":
            ref.kill()
            assert await ref.stopped(deadline_s=5) == Killed()
        else:
            asked.cancel()
            assert await ref.ask("next", deadline_s=5) == "next"
        await asyncio.wait({asked})
        assert await bottom.ask("after", deadline_s=5) == ["cancelled"]
        assert [type(outcome) for outcome in outcomes] == [WorkCancelled] * 2

    asyncio.run(main())


def test_a_thread_that_hangs_is_left_behind() -> None:
    async def main() -> None:
        gate, begun = threading.Event(), threading.Event()

        def handler() -> None:
            begun.set()
            gate.wait(5)

        ref = await Blocking.start_ready()
        ref.tell(handler)
        assert await asyncio.to_thread(begun.wait, 5)
        ref.kill()
        assert await ref.stopped(deadline_s=2) == Killed()
        gate.set()

    asyncio.run(main())
