"""Asks that wait for each other: refused at once, over any number of actors, loops and threads, and only then."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from covey.actors.runtime.actor import LoopActor
from covey.actors.runtime.asking import Work, at_work, find_circle
from covey.actors.runtime.errors import StartFailedError, WouldDeadlock
from covey.actors.runtime.exits import Crashed, Shutdown
from covey.actors.runtime.pool import BlockingPool, PoolActor
from covey.actors.runtime.ref import ActorRef
from covey.actors.runtime.reply import Reply, ThreadReply
from covey.actors.runtime.virtual_time import run_virtual
from covey.protocol.errors import AskTimeout

Handler = Callable[["Node"], Awaitable[object]]


class Node(LoopActor):
    """Runs what it is sent."""

    async def on_receive(self, message: Handler) -> object:  # type: ignore[override]  # nothing else is sent here
        return await message(self)


def asks(*refs: ActorRef) -> Handler:
    """Ask the first to ask the second and so on; the last answers."""

    async def handler(_: Node) -> object:
        return await refs[0].ask(asks(*refs[1:]), deadline_s=60) if refs else "answer"

    return handler


async def nodes(count: int) -> list[ActorRef]:
    return [await Node.start_ready(name=name) for name in "abcdef"[:count]]


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_a_circle_of_asks_is_refused_at_once_and_says_who_waits_for_whom(length: int) -> None:
    async def main() -> None:
        refs = await nodes(length)
        with pytest.raises(WouldDeadlock) as told:
            await refs[0].ask(asks(*refs[1:], refs[0]), deadline_s=60)
        circle = " → ".join(map(str, [refs[-1], *refs]))
        assert str(told.value).startswith(f"the asks {circle} would never end")
        assert asyncio.get_running_loop().time() == 0

    run_virtual(main())


def test_an_actor_that_closes_a_circle_may_catch_the_error_and_all_live_on() -> None:
    async def careful(node: Node) -> object:
        with pytest.raises(WouldDeadlock):
            await first(node).ask(asks(), deadline_s=60)
        return "caught"

    def first(node: Node) -> ActorRef:
        return refs[0] if node.actor_ref is refs[1] else refs[1]

    refs: list[ActorRef] = []

    async def main() -> None:
        refs.extend(await nodes(2))

        async def start(_: Node) -> object:
            return await refs[1].ask(careful, deadline_s=60)

        assert await refs[0].ask(start, deadline_s=60) == "caught"
        assert [await ref.ask(asks(), deadline_s=60) for ref in refs] == ["answer"] * 2

    run_virtual(main())


def test_two_actors_that_ask_each_other_at_the_same_time_are_told_though_no_chain_joins_them() -> None:
    async def main() -> None:
        a, b = await nodes(2)

        def wait_then_ask(other: ActorRef) -> Handler:
            async def handler(_: Node) -> object:
                await asyncio.sleep(1)
                return await other.ask(asks(), deadline_s=60)

            return handler

        outcomes = await asyncio.gather(
            a.ask(wait_then_ask(b), deadline_s=60), b.ask(wait_then_ask(a), deadline_s=60), return_exceptions=True
        )
        # The second one is refused and crashes on it, and what waited for it hears so.
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["ActorDown", "WouldDeadlock"]
        assert asyncio.get_running_loop().time() == 1

    run_virtual(main())


@pytest.mark.parametrize("how", ["gather", "task group", "wait_for", "create_task"])
def test_tasks_a_handler_waits_for_ask_in_its_name(how: str) -> None:
    async def main() -> None:
        a, b = await nodes(2)

        async def handler(_: Node) -> object:
            ask = b.ask(asks(a), deadline_s=60)
            match how:
                case "gather":
                    return await asyncio.gather(ask)
                case "wait_for":
                    return await asyncio.wait_for(ask, 60)
                case "create_task":
                    return await asyncio.create_task(ask)
            async with asyncio.TaskGroup() as group:
                return group.create_task(ask)

        with pytest.raises((WouldDeadlock, ExceptionGroup)):
            await a.ask(handler, deadline_s=60)
        assert asyncio.get_running_loop().time() == 0

    run_virtual(main())


def test_a_task_it_owns_may_ask_around_in_circles_while_a_handler_runs() -> None:
    async def main() -> None:
        a, b = await nodes(2)
        answers: list[object] = []

        async def beside() -> None:
            answers.append(await b.ask(asks(a), deadline_s=60))

        async def handler(node: Node) -> object:
            node.own(beside(), name="beside")
            await asyncio.sleep(5)
            return "handled"

        assert await a.ask(handler, deadline_s=60) == "handled"
        await asyncio.sleep(1)
        assert answers == ["answer"]

    run_virtual(main())


def test_a_task_it_owns_may_ask_the_actor_itself_while_a_handler_runs() -> None:
    async def main() -> None:
        (a,) = await nodes(1)
        answers: list[object] = []

        async def beside() -> None:
            answers.append(await a.ask(asks(), deadline_s=60))

        async def handler(node: Node) -> object:
            node.own(beside(), name="beside")
            return await asyncio.sleep(5, "handled")

        await a.ask(handler, deadline_s=60)
        await asyncio.sleep(1)
        assert answers == ["answer"]

    run_virtual(main())


def test_an_actor_may_be_asked_back_once_it_no_longer_waits() -> None:
    async def main() -> None:
        a, b = await nodes(2)

        async def slow(_: Node) -> object:
            await asyncio.sleep(5)
            return await a.ask(asks(), deadline_s=60)

        async def impatient(_: Node) -> object:
            with pytest.raises(AskTimeout):
                await b.ask(slow, deadline_s=1)
            await asyncio.sleep(10)
            return "finished"

        assert await a.ask(impatient, deadline_s=60) == "finished"
        await asyncio.sleep(1)
        assert b.is_alive()

    run_virtual(main())


def test_two_actors_may_wait_for_a_third() -> None:
    async def main() -> None:
        a, b, c = await nodes(3)

        async def slow(_: Node) -> object:
            await asyncio.sleep(5)
            return "slow"

        def ask_slow(_: Node) -> Awaitable[object]:
            return c.ask(slow, deadline_s=60)

        outcomes = tuple(await asyncio.gather(*(ref.ask(ask_slow, deadline_s=60) for ref in (a, b))))
        assert outcomes == ("slow", "slow")

    run_virtual(main())


def test_a_child_that_asks_its_waiting_parent_in_on_start_fails_to_start_at_once() -> None:
    class Child(LoopActor):
        def __init__(self, parent: ActorRef) -> None:
            self.parent = parent

        async def on_start(self) -> None:  # type: ignore[override]  # may be `async def`, too
            await self.parent.ask(asks(), deadline_s=60)

    async def main() -> None:
        (parent,) = await nodes(1)

        async def waits(node: Node) -> object:
            with pytest.raises(StartFailedError) as told:
                await Child.start_ready(node.actor_ref)
            return told.value.__cause__

        async def does_not_wait(node: Node) -> object:
            return Child.start(node.actor_ref)

        assert isinstance(await parent.ask(waits, deadline_s=60), WouldDeadlock)
        assert asyncio.get_running_loop().time() == 0
        child = await parent.ask(does_not_wait, deadline_s=60)
        assert isinstance(child, ActorRef)
        child.stop()
        assert await child.stopped(deadline_s=60) == Shutdown()

    run_virtual(main())


def test_an_actor_whose_on_start_waits_for_somebody_may_not_be_asked_by_that_one() -> None:
    class Starting(LoopActor):
        def __init__(self, other: ActorRef) -> None:
            self.other = other

        async def on_start(self) -> None:  # type: ignore[override]  # may be `async def`, too
            await self.other.ask(asks(self.actor_ref), deadline_s=60)

    async def main() -> None:
        (other,) = await nodes(1)
        with pytest.raises(StartFailedError) as told:
            await Starting.start_ready(other)
        assert isinstance(told.value.__cause__, WouldDeadlock)
        assert asyncio.get_running_loop().time() == 0

    run_virtual(main())


class Bystander:
    """A party of asks in flight, without an actor."""

    def __init__(self) -> None:
        self.work: Work | None = Work(self)

    def orphan_soon(self, reply: Reply) -> None:
        """Nothing is done for anybody."""


def test_an_ask_that_has_its_answer_holds_nobody_up_though_its_asker_has_not_woken() -> None:
    one, other, third = Bystander(), Bystander(), Bystander()
    reply = ThreadReply()
    for waiting, target in ((one, other), (other, third)):
        assert waiting.work is not None
        waiting.work.wait(target, reply if waiting is one else ThreadReply())
    assert third.work is not None

    assert find_circle(third.work, one) == [third, one, other, third]
    reply.deliver("answer")
    assert find_circle(third.work, one) == []


def test_an_actor_at_rest_belongs_to_no_work_and_an_ask_that_ended_is_forgotten() -> None:
    async def main() -> None:
        ref, other = await nodes(2)
        seen: list[Work | None] = []

        async def handler(node: Node) -> object:
            seen.append(at_work.get())
            for _ in range(3):
                await other.ask(asks(), deadline_s=1)
            return None

        await ref.ask(handler, deadline_s=1)
        context = ref._cell._context
        assert context is not None
        assert seen[0] is not None
        assert seen[0].asks == {}
        assert context.run(at_work.get) is None
        assert at_work.get() is None

    run_virtual(main())


# --- threads and other loops, in real time ---------------------------------------------------------------------------


class Blocking(PoolActor):
    pool = BlockingPool(size=4)

    def on_receive(self, message: object) -> object:
        return message() if callable(message) else message


def test_a_pool_actor_that_asks_itself_is_refused_at_once() -> None:
    async def main() -> None:
        ref = await Blocking.start_ready()
        with pytest.raises(WouldDeadlock):
            await ref.ask(lambda: ref.ask_blocking("me", deadline_s=60), deadline_s=5)
        assert isinstance(await ref.stopped(deadline_s=5), Crashed)

    asyncio.run(main())


def test_a_circle_over_a_thread_and_a_loop_is_refused_at_once() -> None:
    async def main() -> None:
        pool_actor = await Blocking.start_ready()
        (node,) = await nodes(1)
        with pytest.raises(WouldDeadlock):
            await pool_actor.ask(lambda: node.ask_blocking(asks(pool_actor), deadline_s=60), deadline_s=5)

    asyncio.run(main())


def test_two_threads_that_close_a_circle_from_both_ends_are_told() -> None:
    async def main() -> None:
        refs = [await Blocking.start_ready() for _ in range(2)]
        both = threading.Barrier(2, timeout=5)

        def ask_other(other: ActorRef) -> object:
            both.wait()
            return other.ask_blocking("you", deadline_s=60)

        outcomes = await asyncio.gather(
            refs[0].ask(lambda: ask_other(refs[1]), deadline_s=5),
            refs[1].ask(lambda: ask_other(refs[0]), deadline_s=5),
            return_exceptions=True,
        )
        kinds = {type(outcome).__name__ for outcome in outcomes}
        assert "WouldDeadlock" in kinds
        assert kinds <= {"WouldDeadlock", "ActorDown"}

    asyncio.run(main())


def test_a_circle_over_two_loops_is_refused_at_once() -> None:
    async def main() -> None:
        (near,) = await nodes(1)
        ready, is_over = threading.Event(), threading.Event()
        far: list[ActorRef] = []

        async def elsewhere() -> None:
            far.append(await Node.start_ready(name="far"))
            ready.set()
            await asyncio.to_thread(is_over.wait, 10)

        thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
        thread.start()
        try:
            assert await asyncio.to_thread(ready.wait, 5)
            with pytest.raises(WouldDeadlock):
                await near.ask(asks(far[0], near), deadline_s=5)
        finally:
            is_over.set()
            await asyncio.to_thread(thread.join)

    asyncio.run(main())
