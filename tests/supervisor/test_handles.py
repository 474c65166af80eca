"""Slot handles: used once, and given back even when the wait is interrupted at the moment of the grant."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from covey.protocol.errors import SlotReused
from covey.protocol.ids import BudgetKey, CallId
from covey.protocol.messages.broker import Acquire, Destination, Granted
from covey.supervisor.handles import Slot
from covey.supervisor.portal import Portal


class Doors:
    """A broker that always grants, and a ledger that keeps what it is told."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.accounts: list[Any] = []
        self.slots = self
        self.records = self

    async def acquire(self, request: Acquire) -> Granted:
        self.held.add(request.call)
        return Granted(call=request.call, budget=BudgetKey("sim:1"), limit=1, in_flight=1, waited_s=0.0)

    def release(self, request: Acquire, granted: Granted, *, was_cut: bool = False) -> None:
        self.held.remove(request.call)

    def record(self, record: Any) -> None:
        self.accounts.append(record)


class InterruptedPortal(Portal):
    """The interrupt comes when the answer is there and the caller has not looked yet."""

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        super().call(work)
        raise KeyboardInterrupt


@pytest.fixture
def portal() -> Iterator[Portal]:
    found = Portal()
    yield found
    found.close()


@pytest.fixture
def interrupted() -> Iterator[InterruptedPortal]:
    found = InterruptedPortal()
    yield found
    found.close()


def slot(doors: Doors, portal: Portal) -> Slot:
    destination = Destination(base_url="http://x/v1")
    return Slot(doors, portal, Acquire(call=CallId("call_1"), destination=destination, model="m"))  # type: ignore[arg-type]


async def settled() -> None:
    """What was put off to the portal's loop before has run."""


def test_a_slot_is_held_inside_and_its_call_accounted_with_unknown_usage(portal: Portal) -> None:
    doors = Doors()

    with slot(doors, portal) as held:
        assert doors.held == {held.call}

    portal.call(settled())
    assert doors.held == set()
    assert [(record.call, record.usage) for record in doors.accounts] == [("call_1", None)]


def test_a_grant_that_races_an_interrupt_is_given_back_and_not_accounted(interrupted: InterruptedPortal) -> None:
    doors = Doors()

    with pytest.raises(KeyboardInterrupt), slot(doors, interrupted):
        pytest.fail("the wait was interrupted")

    Portal.call(interrupted, settled())
    assert doors.held == set()
    assert doors.accounts == []


def test_an_unused_handle_holds_nothing(portal: Portal) -> None:
    doors = Doors()

    slot(doors, portal)

    portal.call(settled())
    assert doors.held == set()


def test_a_handle_is_used_once(portal: Portal) -> None:
    doors = Doors()
    once = slot(doors, portal)
    with once:
        with pytest.raises(SlotReused), once:
            pytest.fail("it was entered twice")
        portal.call(settled())
        assert doors.held == {"call_1"}
