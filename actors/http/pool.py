"""The pool: which connections are free, and who waits for one.

Everything here costs the same whatever the number of connections: free ones are found by what they lead to, the newest
first (so that the rest grow old and go), and a request looks at no other. A pool has no bound unless it is given one;
then those who wait get their turn in the order they came, and a free connection that leads elsewhere makes room.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

import httpx

from .connection import Connection

KEEPALIVE_S: Final = 4.0
"""Below the 5 s after which common servers close an idle connection: reusing one at that moment fails."""
MARGIN: Final = 0.8
"""Of the time a server says that it keeps a connection."""
SWEEP_S: Final = 1.0


class Pool:
    """Connections of one loop, and places for them. The `Home` of all of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, max_connections: int | None = None) -> None:
        self._loop = loop
        self._max = max_connections
        self._all: set[Connection] = set()
        self._free: dict[object, dict[Connection, None]] = {}
        self._places = 0
        """Given to somebody who makes a connection."""
        self._waiting: OrderedDict[asyncio.Future[Connection | None], object] = OrderedDict()
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def open_count(self) -> int:
        """Connections there are or are being made."""
        return len(self._all) + self._places

    @property
    def free_count(self) -> int:
        return sum(map(len, self._free.values()))

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def take(self, route: object) -> Connection | None:
        """A free connection to there, the one used last. While somebody waits, nothing is free."""
        free = self._free.get(route)
        if free is None:
            return None
        now = self._loop.time()
        while free:
            connection, _ = free.popitem()
            if connection.expires_at > now and connection.is_open:
                break
            connection.abort()
        else:
            connection = None
        if not free:
            self._free.pop(route, None)
        return connection

    async def place(self, route: object, within_s: float | None) -> Connection | None:
        """Room for one more connection; a free one to there instead, if that is what comes first.

        Whoever gets a place (None) says `made` or `not_made`. `httpx.PoolTimeout` gives the place in the queue up.
        """
        if self._max is None or (not self._waiting and self._has_room()):
            self._places += 1
            return None
        turn: asyncio.Future[Connection | None] = self._loop.create_future()
        self._waiting[turn] = route
        try:
            async with asyncio.timeout(within_s):
                return await turn
        except BaseException as error:
            self._waiting.pop(turn, None)
            if turn.done() and not turn.cancelled():
                self._give_back(turn.result())
            if not isinstance(error, TimeoutError):
                raise
            text = (
                f"no connection was free within {within_s:g} s ({self._max} at most, {self.waiting_count} others wait)"
            )
            raise httpx.PoolTimeout(text) from error

    def made(self, connection: Connection) -> None:
        """The place is taken by `connection`."""
        if connection.is_open:
            self._places -= 1
            self._all.add(connection)
        else:
            self.not_made()

    def not_made(self) -> None:
        """The place is free again."""
        self._places -= 1
        if self._waiting:
            self._next()

    def free(self, connection: Connection, keep_alive_s: float | None) -> None:
        """Keep a connection whose exchange is over, or hand it to who waits for one."""
        for turn, route in self._waiting.items():
            if turn.done():
                continue  # cancelled, and about to leave
            if route != connection.route:
                break
            del self._waiting[turn]
            turn.set_result(connection)
            return
        keep_s = KEEPALIVE_S if keep_alive_s is None else min(KEEPALIVE_S, MARGIN * keep_alive_s)
        if self._waiting or keep_s <= 0:
            connection.abort()
            return
        connection.expires_at = self._loop.time() + keep_s
        self._free.setdefault(connection.route, {})[connection] = None
        if self._sweep is None:
            self._sweep = self._loop.call_later(SWEEP_S, self._sweep_up)

    def gone(self, connection: Connection) -> None:
        """Forget a connection; the next who waits may make another."""
        self._all.discard(connection)
        free = self._free.get(connection.route)
        if free is not None:
            free.pop(connection, None)
            if not free:
                del self._free[connection.route]
        if self._waiting:
            self._next()

    async def close(self) -> None:
        """Close all connections, and return when their sockets are closed. Exchanges under way break."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        connections = tuple(self._all)
        for connection in connections:
            connection.abort()
        for connection in connections:
            await connection.until_lost()

    def _has_room(self) -> bool:
        """Whether one more fits in; a free connection is closed if that helps."""
        assert self._max is not None, "asked only where there is a bound"
        if self.open_count < self._max:
            return True
        for free in self._free.values():
            next(iter(free)).abort()  # the oldest one; it leaves `_all` and `_free` at once
            return True
        return False

    def _next(self) -> None:
        """Let those whose turn it is go on."""
        assert self._max is not None, "nobody waits where there is no bound"
        while self._waiting and self.open_count < self._max:  # nothing is free while somebody waits
            turn, _ = self._waiting.popitem(last=False)
            if not turn.done():
                self._places += 1
                turn.set_result(None)

    def _give_back(self, got: Connection | None) -> None:
        if got is None:
            self.not_made()
        elif got.is_open:
            self.free(got, None)

    def _sweep_up(self) -> None:
        """Close free connections that are past their time: the only walk over them, once a second."""
        self._sweep = None
        now = self._loop.time()
        past = [c for free in self._free.values() for c in free if c.expires_at <= now]
        for connection in past:
            connection.abort()
        if self._free:
            self._sweep = self._loop.call_later(SWEEP_S, self._sweep_up)
