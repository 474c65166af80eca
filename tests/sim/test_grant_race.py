"""A wait that is given up while the grant is on its way: every order of the two, and the broker's death between them.

One call holds the only slot and another waits for it. Between their real slots and the broker's real book lies a link
that carries a message when the schedule says so, and after the schedule the rest. All schedules of six steps run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from covey.actors.limits.actions import Asked, End, Event, GivenBack, Grant, Lose, Overdue, Refuse, Ticked
from covey.actors.limits.answers import granted, refused
from covey.actors.limits.book import CUT_LINGER_S, Book
from covey.actors.limits.claim import Claim
from covey.actors.limits.terms import Terms
from covey.protocol.ids import BudgetKey, CallId, Incarnation
from covey.protocol.messages.base import Done, Wire
from covey.protocol.messages.broker import Acquire, Destination, Policy, ProviderLimit, Release
from covey.protocol.peer import Owner, Peer
from covey.storage.leases import LeaseEnded, LeaseGranted, Outstanding
from covey.supervisor.handles import Seat, Slot
from covey.supervisor.slots import Slots

URL = "http://sim.test/v1"
ME = Peer(role="client", name="c", incarnation=Incarnation("c-1"), owner=Owner(pid=1, start_ticks=1, boot_id="b"))
POLICY = Policy(limits=(ProviderLimit(provider="sim", base_url=URL, max_concurrent=1),))
STEPS = 6
SETTING = ("turn", "turn", "up", "up", "down", "turn", "turn", "turn", "turn")
"""The first call is let in, the second one waits at the broker."""
TERMS = {"sim": Terms(limit=1)}

Way = Callable[["World", Acquire], AbstractAsyncContextManager[object]]


class World:
    """A broker and one process with two calls. As the real link does, ours repeats to a successor what has no answer.

    It stands in for `Link` (`ask`, `post`) and for `KnownPolicy` (`look`).
    """

    def __init__(self) -> None:
        self.slots = Slots(self, self)  # type: ignore[arg-type]
        self.inside: set[str] = set()
        self.most_inside = 0
        self._now = 0.0
        self._journal = Outstanding()
        self._book = Book(TERMS)
        self._numbers = iter(range(10_000))
        self._unanswered: dict[int, Wire] = {}
        self._futures: dict[int, asyncio.Future[Wire]] = {}
        self._asks: dict[CallId, int] = {}
        self._up: list[int] = []
        self._down: list[tuple[int, Wire]] = []

    # --- for the slots -----------------------------------------------------------------------------------------------

    latest = POLICY

    def look(self) -> Policy:
        return POLICY

    def record(self, record: object) -> None:
        """The ledger takes anything."""

    async def ask(self, message: Wire, *, timeout_s: float | None) -> Wire:
        number = self._say(message)
        self._futures[number] = asyncio.get_running_loop().create_future()
        try:
            return await self._futures[number]
        finally:
            del self._futures[number]
            self._unanswered.pop(number, None)

    def post(self, message: Wire) -> None:
        self._say(message)

    # --- for the schedule --------------------------------------------------------------------------------------------

    def up(self) -> None:
        """One message reaches the broker."""
        if not self._up:
            return
        number = self._up.pop(0)
        match message := self._unanswered.get(number):
            case Acquire(call=call):
                self._asks[call] = number
                self._decide(Asked(_claim(message)))
            case Release(call=call, was_cut=was_cut):
                self._decide(GivenBack(call, was_cut, asker=ME.incarnation))
                self._down.append((number, Done()))
            case None:
                pass  # given up before it left

    def down(self) -> None:
        """One message reaches us."""
        if not self._down:
            return
        number, reply = self._down.pop(0)
        self._unanswered.pop(number, None)
        future = self._futures.get(number)
        if future is not None and not future.done():
            future.set_result(reply)

    def kill(self) -> None:
        """The broker dies, with all that is under way; its successor has the journal."""
        self._book = Book(TERMS)
        self._book.restore(self._journal, self._now)
        self._down.clear()
        self._up = list(self._unanswered)

    async def settle(self, *calls: asyncio.Future[None]) -> None:
        """Carry what there is to carry, until nothing is left or nothing helps."""
        for _ in range(40):
            if not any(self.left()) and all(call.done() for call in calls):
                return
            self._now += CUT_LINGER_S
            self._decide(Ticked())
            self.up()
            self.down()
            await asyncio.sleep(0)

    def left(self) -> tuple[int, int, int, int]:
        """Slots, waiters, leases on file, and messages nobody answered."""
        account = self._book.accounts.get(BudgetKey("sim:none"))
        in_flight, queued = (account.budget.in_flight, account.queued) if account is not None else (0, 0)
        return in_flight, queued, len(self._journal.leases), len(self._unanswered)

    def has_granted(self, call: str) -> bool:
        """Whether the broker has given the call the slot, and not got it back."""
        return CallId(call) in self._journal.leases

    async def hold(self, name: str, slot: AbstractAsyncContextManager[object], until: asyncio.Event) -> None:
        """A call under a slot."""
        async with slot:
            self.inside.add(name)
            self.most_inside = max(self.most_inside, len(self.inside))
            try:
                await until.wait()
            finally:
                self.inside.discard(name)

    def _say(self, message: Wire) -> int:
        number = next(self._numbers)
        self._unanswered[number] = message
        self._up.append(number)
        return number

    def _decide(self, event: Event) -> None:
        for action in self._book.decide(event, self._now):
            match action:
                case Grant(lease=lease):
                    if action.is_new:
                        self._journal.apply(LeaseGranted(lease=lease, in_flight=action.in_flight))
                    self._down.append((self._asks[lease.call], granted(action)))
                case Refuse(call=call):
                    self._down.append((self._asks[call], refused(action)))
                case End(lease=lease) | Lose(lease=lease) | Overdue(lease=lease):
                    self._journal.apply(LeaseEnded(call=lease.call))


def _claim(ask: Acquire) -> Claim:
    return Claim(
        call=ask.call,
        budget=BudgetKey("sim:none"),
        provider="sim",
        base_url=URL,
        model="m",
        holder=ME,
        tree="t",
        priority=ask.priority,
        timeout_s=None,
        hold_s=1e9,
        asked_at_ms=0,
    )


def as_an_agent(world: World, ask: Acquire) -> AbstractAsyncContextManager[object]:
    return world.slots.slot(ask)


def as_a_program(world: World, ask: Acquire) -> AbstractAsyncContextManager[object]:
    fleet: Any = SimpleNamespace(slots=world.slots, records=world)
    return Slot(lambda: Seat(fleet, None), ask)


def as_a_program_with_a_question(world: World, ask: Acquire) -> AbstractAsyncContextManager[object]:
    fleet: Any = SimpleNamespace(slots=world.slots, records=world)
    return Slot(lambda: Seat(fleet, None), ask, interrupt=lambda: False)


def schedules() -> Iterator[tuple[str, ...]]:
    """Every order in which one wait is given up, one holder leaves, and the broker dies at most once."""
    for steps in product(("turn", "up", "down", "give up", "leave", "kill"), repeat=STEPS):
        if steps.count("give up") == steps.count("leave") == 1 and steps.count("kill") <= 1:
            yield steps


async def play(way: Way, steps: tuple[str, ...]) -> tuple[World, bool]:
    """Two calls under this schedule: the first is held until `leave`, the second given up; whether the broker had given
    that one the slot by then."""
    world, leave, never = World(), asyncio.Event(), asyncio.Event()
    first, second = (
        Acquire(call=CallId(name), destination=Destination(base_url=URL), model="m") for name in ("first", "second")
    )
    holder = asyncio.ensure_future(world.hold("first", way(world, first), leave))
    waiter = asyncio.ensure_future(world.hold("second", way(world, second), never))
    was_granted = False
    for step in (*SETTING, *steps):
        match step:
            case "turn":
                await asyncio.sleep(0)
            case "give up":
                was_granted = world.has_granted("second")
                waiter.cancel()
            case "leave":
                leave.set()
            case _:
                getattr(world, step)()
    await world.settle(holder, waiter)
    assert waiter.cancelled(), "whoever gives up hears that"
    assert holder.done(), "the other one was served"
    holder.result()
    return world, was_granted


@pytest.mark.slow
@pytest.mark.parametrize("way", [as_an_agent, as_a_program, as_a_program_with_a_question])
def test_a_grant_that_races_the_end_of_the_wait_leaves_nothing_behind(way: Way) -> None:
    async def play_all() -> int:
        raced = 0
        for steps in schedules():
            world, was_granted = await play(way, steps)
            assert world.left() == (0, 0, 0, 0), steps
            assert world.most_inside <= 1, steps
            raced += was_granted
        return raced

    assert asyncio.run(play_all()) > 100, "in many schedules the grant was made when the wait was given up"
