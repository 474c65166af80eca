"""Slot handles: used once, and given back even when the wait is interrupted at the moment of the grant."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import httpx
import pytest

from covey.protocol.errors import SlotReused
from covey.protocol.fault_kinds import FaultKind
from covey.protocol.ids import BudgetKey, CallId
from covey.protocol.messages.broker import Acquire, Destination, Granted, Outcome
from covey.protocol.messages.ledger import CallStatus
from covey.protocol.usage import Usage
from covey.supervisor.handles import Seat, Slot
from covey.supervisor.interrupts import Interrupt
from covey.supervisor.portal import Portal

TOO_MANY = b'{"error":{"code":"1302","message":"High concurrency usage of this API"}}'
CHAT = {"prompt_tokens": 7, "completion_tokens": 2}


class Doors:
    """A broker that grants when `free` is set (from the beginning, unless told), and a ledger that keeps all."""

    def __init__(self, *, is_free: bool = True, on_grant: Callable[[], object] = lambda: None) -> None:
        self.held: set[str] = set()
        self.asked = threading.Event()
        self.released: list[tuple[bool, Outcome | None]] = []
        self.accounts: list[Any] = []
        self.slots = self
        self.records = self
        self._is_free, self._on_grant = is_free, on_grant

    async def acquire(self, request: Acquire) -> Granted:
        self.asked.set()
        if not self._is_free:
            await asyncio.get_running_loop().create_future()
        self.held.add(request.call)
        self._on_grant()
        return Granted(call=request.call, budget=BudgetKey("sim:1"), limit=1, in_flight=1, waited_s=0.0)

    def release(
        self, request: Acquire, granted: Granted, *, was_cut: bool = False, outcome: Outcome | None = None
    ) -> None:
        self.held.remove(request.call)
        self.released.append((was_cut, outcome))

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


def slot(doors: Doors, portal: Portal | None, interrupt: Interrupt | None = None, key: str | None = None) -> Slot:
    destination = Destination(base_url="http://x/v1")
    request = Acquire(call=CallId("call_1"), destination=destination, model="m")
    return Slot(lambda: Seat(doors, portal), request, interrupt=interrupt, key=key)  # type: ignore[arg-type]


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


# --- interrupts ------------------------------------------------------------------------------------------------------


def as_event(event: threading.Event) -> Interrupt:
    return event


def as_question(event: threading.Event) -> Interrupt:
    return event.is_set


def set_when_asked(doors: Doors, stop: threading.Event) -> None:
    doors.asked.wait(10)
    stop.set()


WAYS = pytest.mark.parametrize("way", [as_event, as_question])
Way = Callable[[threading.Event], Interrupt]


@WAYS
def test_an_interrupt_before_the_wait_asks_for_nothing(portal: Portal, way: Way) -> None:
    doors, stop = Doors(), threading.Event()
    stop.set()

    with pytest.raises(InterruptedError), slot(doors, portal, way(stop)):
        pytest.fail("it was interrupted")

    portal.call(settled())
    assert not doors.asked.is_set()


@WAYS
def test_an_interrupt_ends_the_wait_and_says_what_for(portal: Portal, way: Way) -> None:
    doors, stop = Doors(is_free=False), threading.Event()
    threading.Thread(target=set_when_asked, args=(doors, stop)).start()

    with pytest.raises(InterruptedError, match="waiting for a slot for a call to http://x/v1"):
        slot(doors, portal, way(stop)).__enter__()

    portal.call(settled())
    assert (doors.held, doors.accounts) == (set(), [])


@WAYS
def test_an_interrupt_in_the_moment_of_the_grant_gives_the_slot_back(portal: Portal, way: Way) -> None:
    stop = threading.Event()
    doors = Doors(on_grant=stop.set)

    with pytest.raises(InterruptedError), slot(doors, portal, way(stop)):
        pytest.fail("it was interrupted")

    portal.call(settled())
    assert (doors.held, doors.accounts) == (set(), [])
    assert doors.released == [(False, None)]


@WAYS
@pytest.mark.parametrize("in_own_loop", [True, False], ids=["own loop", "portal"])
def test_in_asyncio_an_interrupt_in_the_moment_of_the_grant_gives_it_back(
    portal: Portal, way: Way, in_own_loop: bool
) -> None:
    stop = threading.Event()
    doors = Doors(on_grant=stop.set)

    async def enter() -> None:
        async with slot(doors, None if in_own_loop else portal, way(stop)):
            pytest.fail("it was interrupted")

    with pytest.raises(InterruptedError):
        asyncio.run(enter())

    portal.call(settled())
    assert (doors.held, doors.released) == (set(), [(False, None)])


@pytest.mark.parametrize("in_own_loop", [True, False], ids=["own loop", "portal"])
def test_in_asyncio_an_interrupt_ends_the_wait(portal: Portal, in_own_loop: bool) -> None:
    doors, stop = Doors(is_free=False), threading.Event()
    threading.Thread(target=set_when_asked, args=(doors, stop)).start()

    with pytest.raises(InterruptedError):
        asyncio.run(slot(doors, None if in_own_loop else portal, stop).__aenter__())

    portal.call(settled())
    assert doors.held == set()


@pytest.mark.parametrize("with_question", [True, False], ids=["asked too", "not asked"])
def test_a_task_cancelled_in_the_moment_of_the_grant_gives_it_back(with_question: bool) -> None:
    def never() -> bool:
        return False

    async def scenario() -> Doors:
        doors = Doors(on_grant=lambda: task.cancel())  # noqa: PLW0108 - it is made below

        async def call() -> None:
            async with slot(doors, None, never if with_question else None):
                await asyncio.sleep(30)

        task = asyncio.ensure_future(call())
        with pytest.raises(asyncio.CancelledError):
            await task
        return doors

    assert asyncio.run(scenario()).held == set()


class DeafPortal(Portal):
    """The interrupt comes after the wait was started and before anybody could take it back."""

    def call_until(self, interrupt: Any, work: Coroutine[Any, Any, Any], *, waiting_for: str) -> Any:
        self.started = asyncio.run_coroutine_threadsafe(work, self._loop)
        raise KeyboardInterrupt


def test_a_wait_that_an_interrupt_left_running_gives_its_slot_back_at_the_grant() -> None:
    portal = DeafPortal()
    doors = Doors()

    with pytest.raises(KeyboardInterrupt), slot(doors, portal):
        pytest.fail("it was interrupted")

    portal.started.result(timeout=5)
    portal.call(settled())
    assert (doors.held, doors.accounts) == (set(), [])
    portal.close()


def test_a_question_that_fails_ends_the_wait_with_its_error_and_nothing_held(portal: Portal) -> None:
    doors = Doors(is_free=False)

    def question() -> bool:
        if doors.asked.is_set():
            raise ZeroDivisionError
        return False

    with pytest.raises(ZeroDivisionError):
        slot(doors, portal, question).__enter__()

    portal.call(settled())
    assert doors.held == set()


# --- reports ---------------------------------------------------------------------------------------------------------


def left(doors: Doors, portal: Portal) -> tuple[bool, Outcome | None]:
    portal.call(settled())
    (release,) = doors.released
    return release


def test_what_is_reported_travels_with_the_slot_s_return(portal: Portal) -> None:
    doors = Doors()

    with slot(doors, portal) as held:
        held.report(httpx.Response(429, content=TOO_MANY))

    was_cut, outcome = left(doors, portal)
    assert not was_cut
    assert outcome is not None
    assert outcome.fault is not None
    assert (outcome.fault.kind, outcome.tokens) == (FaultKind.CONCURRENCY, None)
    assert doors.accounts[0].status is CallStatus.REFUSED
    assert doors.accounts[0].fault == "concurrency (1302): High concurrency usage of this API"


@pytest.mark.parametrize("says", ["report", "record_usage"])
def test_usage_tells_the_budget_that_the_provider_answered(portal: Portal, says: str) -> None:
    doors = Doors()

    with slot(doors, portal) as held:
        getattr(held, says)(CHAT)

    assert left(doors, portal) == (False, Outcome(usage=Usage(input=7, output=2)))
    assert doors.accounts[0].usage == Usage(input=7, output=2)


def test_an_answered_retry_takes_the_place_of_the_fault_reported_before(portal: Portal) -> None:
    doors = Doors()

    with slot(doors, portal) as held:
        held.report((429, TOO_MANY))
        held.report(CHAT)

    assert left(doors, portal) == (False, Outcome(usage=Usage(input=7, output=2)))


def test_a_provider_s_error_that_leaves_the_with_is_named_by_itself(portal: Portal) -> None:
    doors = Doors()
    response = httpx.Response(429, content=TOO_MANY, request=httpx.Request("POST", "http://x/v1"))

    with pytest.raises(httpx.HTTPStatusError), slot(doors, portal):
        response.raise_for_status()

    was_cut, outcome = left(doors, portal)
    assert not was_cut, "it was answered"
    assert outcome is not None
    assert outcome.fault is not None
    assert outcome.fault.kind is FaultKind.CONCURRENCY


def test_a_mistake_of_the_program_says_nothing_about_the_provider(portal: Portal) -> None:
    doors = Doors()

    with pytest.raises(ValueError, match="ours"), slot(doors, portal):
        raise ValueError("ours")

    assert left(doors, portal) == (True, None)
    assert (doors.accounts[0].status, doors.accounts[0].fault) == (CallStatus.FAILED, "ValueError")


def test_a_key_that_the_provider_quotes_is_not_stored(portal: Portal) -> None:
    doors = Doors()

    with slot(doors, portal, key="sk-secret") as held:
        held.report((401, '{"error":{"message":"Incorrect API key: sk-secret"}}'))

    portal.call(settled())
    assert "sk-secret" not in repr(doors.accounts) + repr(doors.released)


# --- forks -----------------------------------------------------------------------------------------------------------


def test_a_slot_is_not_given_back_by_a_process_that_does_not_have_it(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    doors = Doors()
    held = slot(doors, portal).__enter__()

    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        held.leave()

    portal.call(settled())
    assert doors.held == {"call_1"}
