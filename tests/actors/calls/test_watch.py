"""The one timer of an attempt: it asks the vigil, and its cancel is never mistaken for another one."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from covey.actors.calls.clocks import Clocks
from covey.actors.calls.vigil import Clock, Vigil
from covey.actors.calls.watch import LATE_S, RanOut, Watch

SOON = 0.02


def vigil(*, connect_s: float = 60.0, headers_s: float = 60.0, total_s: float = 60.0) -> Vigil:
    clocks = Clocks(connect_s=connect_s, headers_s=headers_s, total_s=total_s)
    return Vigil(clocks, asyncio.get_running_loop().time())


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def ended(watching: Vigil, *, moves: bool = False, looks: bool = False) -> RanOut | None:
    """What ends a wait under watch; it `moves` on to the next phase first, and the watch `looks` again or not."""
    try:
        with Watch(watching) as watch:
            if moves:
                watching.sent(asyncio.get_running_loop().time())
            if looks:
                watch.look()
            await for_ever()
    except RanOut as late:
        return late
    return None


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"], autouse=True)
def new_loop(request: pytest.FixtureRequest) -> Any:
    """Workers run on libuv's loop, which keeps time in milliseconds and has timers of its own."""
    return request.param


async def test_an_attempt_that_has_no_time_left_ends_as_one_that_was_late() -> None:
    late = await ended(vigil(total_s=0.0), moves=True, looks=True)

    assert late is not None
    assert late.clock.clock is Clock.TOTAL


async def test_what_takes_too_long_ends_with_the_clock_that_ran_out() -> None:
    late = await ended(vigil(connect_s=SOON))

    assert late is not None
    assert late.clock.clock is Clock.CONNECT
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_deadline_that_moved_on_is_asked_for_again() -> None:
    began = asyncio.get_running_loop().time()

    late = await ended(vigil(connect_s=SOON, headers_s=4 * SOON), moves=True)

    assert late is not None
    assert late.clock.clock is Clock.HEAD
    assert asyncio.get_running_loop().time() - began >= 4 * SOON


async def test_what_came_while_our_own_process_stood_still_is_heard_before_a_clock_is() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    watching = vigil(connect_s=SOON)

    with theirs, Watch(watching):
        theirs.send(b"x")
        time.sleep(1.5 * LATE_S)  # noqa: ASYNC251 - as a process that was stopped
        assert await reader.read(1) == b"x"
        watching.sent(asyncio.get_running_loop().time())
        await asyncio.sleep(2 * LATE_S)
    writer.close()
    await writer.wait_closed()


async def test_a_silence_that_goes_on_after_our_standstill_ends_all_the_same() -> None:
    watching = vigil(connect_s=SOON)
    asyncio.get_running_loop().call_soon(time.sleep, 1.5 * LATE_S)

    late = await ended(watching)

    assert late is not None


async def test_a_deadline_that_came_nearer_is_met_after_a_look() -> None:
    async with asyncio.timeout(2):
        late = await ended(vigil(connect_s=60, headers_s=SOON), moves=True, looks=True)

    assert late is not None


async def test_what_is_over_in_time_is_left_alone() -> None:
    with Watch(vigil(connect_s=SOON)):
        await asyncio.sleep(0)

    await asyncio.sleep(2 * SOON)


async def test_an_error_inside_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), Watch(vigil()):
        raise ZeroDivisionError


@pytest.mark.parametrize("is_first", [True, False], ids=["before the clock", "after the clock"])
async def test_a_cancel_from_outside_in_the_same_turn_goes_first(is_first: bool) -> None:
    watching = vigil(connect_s=SOON)
    came_out: list[BaseException] = []

    async def attempt() -> None:
        try:
            with Watch(watching) as watch:
                ring: Callable[[], object] = watch._ring
                task = asyncio.current_task()
                assert task is not None
                cancel: Callable[[], object] = task.cancel
                for act in [cancel, ring] if is_first else [ring, cancel]:
                    asyncio.get_running_loop().call_later(2 * SOON, act)
                if watch._timer is not None:
                    watch._timer.cancel()
                await for_ever()
        except BaseException as error:
            came_out.append(error)
            raise

    task = asyncio.create_task(attempt())
    await asyncio.wait([task])

    assert task.cancelled()
    assert isinstance(came_out[0], asyncio.CancelledError)
