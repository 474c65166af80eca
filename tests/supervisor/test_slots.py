"""A caller's slots: which destination has a budget is worked out once for each policy, and anew with the next."""

from __future__ import annotations

import asyncio
from typing import cast

from covey.protocol.ids import BudgetKey, CallId
from covey.protocol.messages.base import Wire
from covey.protocol.messages.broker import Acquire, Destination, Granted, Policy, ProviderLimit, Unlimited
from covey.supervisor.known_policy import KnownPolicy
from covey.supervisor.link import Link
from covey.supervisor.slots import REMEMBERED, Slots

URL = "https://api.example.org/v1"
LIMITED = Policy(limits=(ProviderLimit(provider="example", base_url=URL, max_concurrent=1),))


class Broker:
    """Grants everything."""

    def __init__(self) -> None:
        self.asked: list[CallId] = []

    async def ask(self, message: Acquire, *, timeout_s: float | None) -> Wire:
        self.asked.append(message.call)
        return Granted(call=message.call, budget=BudgetKey("example:none"), limit=1, in_flight=1, waited_s=0.0)


class Known:
    """A policy that changes when a test says so."""

    def __init__(self, policy: Policy) -> None:
        self.latest = policy

    def look(self) -> Policy:
        return self.latest

    async def fresh(self) -> Policy:
        return self.latest


def slots(broker: Broker, known: Known) -> Slots:
    return Slots(cast(Link, broker), cast(KnownPolicy, known))


def acquire(call: str, url: str = URL) -> Acquire:
    return Acquire(call=CallId(call), destination=Destination(base_url=url), model="m")


def told(ours: Slots, *asked: Acquire) -> list[type]:
    """What comes of each, one after the other."""

    async def ask_all() -> list[type]:
        return [type(await ours.acquire(request)) for request in asked]

    return asyncio.run(ask_all())


def test_a_limit_that_is_new_counts_from_the_next_look_on() -> None:
    broker, known = Broker(), Known(Policy())
    ours = slots(broker, known)

    before = told(ours, acquire("a"))
    known.latest = LIMITED
    after = told(ours, acquire("b"))

    assert (before, after, broker.asked) == ([Unlimited], [Granted], ["b"])


def test_a_limit_that_was_taken_away_counts_no_more() -> None:
    broker, known = Broker(), Known(LIMITED)
    ours = slots(broker, known)

    before = told(ours, acquire("a"))
    known.latest = Policy()
    after = told(ours, acquire("b"))

    assert (before, after, broker.asked) == ([Granted], [Unlimited], ["a"])


def test_more_destinations_than_are_remembered_are_told_apart_all_the_same() -> None:
    broker = Broker()
    numbers = range(REMEMBERED + 10)
    asked = [
        request
        for number in numbers
        for request in (acquire(f"other-{number}", f"https://host-{number}.example.net/v1"), acquire(f"ours-{number}"))
    ]

    told(slots(broker, Known(LIMITED)), *asked)

    assert broker.asked == [f"ours-{number}" for number in numbers]
