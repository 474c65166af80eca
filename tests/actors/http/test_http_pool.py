"""The pool on a clock of its own: what is found, when it grows too old, and that a walk over all of it is rare."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from covey.actors.http.pool import KEEPALIVE_S, MARGIN, SWEEP_S, Pool


class Loop:
    """A clock, and timers that run when it is moved."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> object:
        self.timers.append((self.now + delay, callback))
        return callback

    def move(self, seconds: float) -> None:
        until = self.now + seconds
        while due := sorted((at, n) for n, (at, _) in enumerate(self.timers) if at <= until):
            self.now, number = due[0]
            self.timers.pop(number)[1]()
        self.now = until


class Line:
    """A connection as the pool sees it."""

    def __init__(self, pool: Pool, route: str) -> None:
        self.pool, self.route = pool, route
        self.is_open, self.expires_at = True, 0.0

    def abort(self) -> None:
        if self.is_open:
            self.is_open = False
            self.pool.gone(self)  # type: ignore[arg-type]


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def pool(loop: Loop) -> Pool:
    return Pool(loop)  # type: ignore[arg-type]


def made(pool: Pool, route: str = "a") -> Any:
    line = Line(pool, route)
    with pytest.raises(StopIteration):  # there is room, so nothing is waited for
        pool.place(route, None).send(None)
    pool.made(line)  # type: ignore[arg-type]
    return line


def taken(pool: Pool, route: str = "a") -> Any:
    return pool.take(route)


def test_the_one_used_last_comes_first(pool: Pool) -> None:
    one, two, other = made(pool), made(pool), made(pool, "b")
    for line in (one, other, two):
        pool.free(line, None)

    assert [taken(pool) for _ in range(3)] == [two, one, None]
    assert taken(pool, "b") is other
    assert pool.open_count == 3


@pytest.mark.parametrize(
    ("server_keeps_s", "kept_s"),
    [
        pytest.param(None, KEEPALIVE_S, id="says nothing"),
        pytest.param(2.0, 2.0 * MARGIN, id="shorter than ours"),
        pytest.param(60.0, KEEPALIVE_S, id="longer than ours"),
    ],
)
def test_a_free_one_grows_too_old(server_keeps_s: float | None, kept_s: float, pool: Pool, loop: Loop) -> None:
    line = made(pool)
    pool.free(line, server_keeps_s)
    loop.now += kept_s - 0.01
    assert taken(pool) is line

    pool.free(line, server_keeps_s)
    loop.now += kept_s
    assert taken(pool) is None
    assert not line.is_open
    assert pool.open_count == 0


def test_old_ones_are_closed_though_nobody_asks(pool: Pool, loop: Loop) -> None:
    lines = [made(pool) for _ in range(3)]
    for line in lines:
        pool.free(line, None)
    loop.move(KEEPALIVE_S + SWEEP_S)

    assert not any(line.is_open for line in lines)
    assert (pool.open_count, pool.free_count) == (0, 0)
    assert loop.timers == []


def test_a_closed_one_is_not_found(pool: Pool) -> None:
    line = made(pool)
    pool.free(line, None)
    line.abort()

    assert taken(pool) is None
    assert (pool.open_count, pool.free_count) == (0, 0)


def test_one_timer_serves_all(pool: Pool, loop: Loop) -> None:
    for _ in range(100):
        pool.free(made(pool), None)

    assert len(loop.timers) == 1


# --- with a bound ----------------------------------------------------------------------------------------------------


async def test_a_connection_goes_past_one_who_has_just_left() -> None:
    pool = Pool(asyncio.get_running_loop(), max_connections=1)
    line = made(pool)
    leaving, staying = (asyncio.create_task(pool.place("a", None)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    pool.free(line, None)

    assert await staying is line
    await asyncio.wait([leaving])
    assert leaving.cancelled()
    assert (pool.open_count, pool.waiting_count) == (1, 0)


async def test_a_connection_got_in_the_moment_of_leaving_goes_to_the_next() -> None:
    pool = Pool(asyncio.get_running_loop(), max_connections=1)
    line = made(pool)
    leaving, staying = (asyncio.create_task(pool.place("a", None)) for _ in range(2))
    await asyncio.sleep(0)
    pool.free(line, None)
    leaving.cancel()

    assert await staying is line
    assert leaving.cancelled()


async def test_a_connection_that_leads_elsewhere_makes_way_for_who_waits() -> None:
    pool = Pool(asyncio.get_running_loop(), max_connections=1)
    line = made(pool)
    waiting = asyncio.create_task(pool.place("b", None))
    await asyncio.sleep(0)
    pool.free(line, None)

    assert await waiting is None
    assert not line.is_open
    assert pool.open_count == 1


async def test_who_comes_later_does_not_overtake_who_waits() -> None:
    pool = Pool(asyncio.get_running_loop(), max_connections=1)
    line = made(pool)
    first = asyncio.create_task(pool.place("b", None))
    await asyncio.sleep(0)
    second = asyncio.create_task(pool.place("a", None))
    await asyncio.sleep(0)
    pool.free(line, None)
    await first

    assert not second.done()
    pool.not_made()
    assert await second is None
