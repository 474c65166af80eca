"""The policy as a process knows it: a look never waits, and an old one has it asked for anew, once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from covey.protocol.errors import AskTimeout
from covey.protocol.messages.broker import Acquire, Destination, Policy, Unlimited
from covey.supervisor.known_policy import KnownPolicy
from covey.supervisor.link import Link
from covey.supervisor.slots import Slots

OLD, NEW = Policy(), Policy(counts_all=True)


class Broker:
    """A link whose answers are given by the test."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answers: asyncio.Queue[Any] = asyncio.Queue()

    async def ask(self, body: Any, *, timeout_s: float | None) -> Any:
        self.asked.append(body)
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer


def known(broker: Broker, *, fresh_s: float) -> KnownPolicy:
    return KnownPolicy(cast(Link, broker), OLD, fresh_s=fresh_s)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_fresh_policy_asks_nobody() -> None:
    async def body() -> None:
        broker = Broker()
        policy = known(broker, fresh_s=60.0)
        assert policy.look() is OLD
        await turns()
        assert broker.asked == []

    asyncio.run(body())


def test_an_old_one_is_asked_for_once_however_often_it_is_looked_at() -> None:
    async def body() -> None:
        broker = Broker()
        policy = known(broker, fresh_s=0.0)
        for _ in range(3):
            assert policy.look() is OLD
            await turns()
        assert len(broker.asked) == 1
        broker.answers.put_nowait(NEW)
        await turns()
        assert policy.latest is NEW

    asyncio.run(body())


def test_a_broker_that_does_not_answer_is_asked_again_at_the_next_look() -> None:
    async def body() -> None:
        broker = Broker()
        policy = known(broker, fresh_s=0.0)
        policy.look()
        broker.answers.put_nowait(AskTimeout("PolicyQuery", "broker", 5.0))
        await turns()
        assert policy.look() is OLD
        broker.answers.put_nowait(NEW)
        await turns()
        assert policy.latest is NEW

    asyncio.run(body())


def test_who_would_pass_without_asking_waits_for_what_may_have_changed() -> None:
    async def body() -> None:
        broker = Broker()
        request = Acquire(call="c", destination=Destination(base_url="http://x/v1"), model="m")  # type: ignore[arg-type]
        slots = Slots(cast(Link, broker), known(broker, fresh_s=0.0))
        acquiring = asyncio.create_task(slots.acquire(request))
        await turns()
        assert not acquiring.done()

        broker.answers.put_nowait(NEW)
        broker.answers.put_nowait("the broker's own word")
        assert await acquiring == "the broker's own word"
        assert broker.asked[-1] is request

    asyncio.run(body())


def test_a_broker_that_is_away_keeps_nobody_who_is_not_counted_for_long() -> None:
    async def body() -> None:
        broker = Broker()
        request = Acquire(call="c", destination=Destination(base_url="http://x/v1"), model="m")  # type: ignore[arg-type]
        policy = known(broker, fresh_s=0.0)
        slots = Slots(cast(Link, broker), policy)
        broker.answers.put_nowait(AskTimeout("PolicyQuery", "broker", 5.0))
        policy._fresh_s = 60.0  # from the failure on

        assert await slots.acquire(request) == Unlimited(call=request.call)
        assert await slots.acquire(request) == Unlimited(call=request.call)
        assert len(broker.asked) == 1

    asyncio.run(body())


@pytest.mark.parametrize(
    ("policy", "cap", "asks"),
    [
        pytest.param(Policy(), None, False, id="nobody counts"),
        pytest.param(Policy(counts_all=True), None, True, id="the fleet has a budget"),
        pytest.param(Policy(), "swarm", True, id="the call has a cap"),
    ],
)
def test_a_destination_without_a_budget_passes_unless_a_cap_is_to_be_kept(
    policy: Policy, cap: str | None, asks: bool
) -> None:
    async def body() -> None:
        broker = Broker()
        slots = Slots(cast(Link, broker), KnownPolicy(cast(Link, broker), policy))
        request = Acquire(call="c", destination=Destination(base_url="http://x/v1"), model="m", cap=cap)  # type: ignore[arg-type]
        broker.answers.put_nowait(Unlimited(call=request.call))
        assert await slots.acquire(request) == Unlimited(call=request.call)
        assert broker.asked == ([request] if asks else [])

    asyncio.run(body())
