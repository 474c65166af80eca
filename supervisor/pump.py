"""Reading a ZeroMQ socket from an asyncio loop without a thread of our own.

ZeroMQ's descriptor is edge triggered: it says that something changed, once. So after every burst of receives and after
every send the socket is asked again, and a tick once a second covers whatever was missed all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import zmq

BURST: Final = 256
"""Messages taken before the loop gets a turn: draining in batches of 256 costs 3 µs a message, one by one 16 µs."""

TICK_S: Final = 1.0

NOBLOCK: Final = int(zmq.NOBLOCK)
NOBLOCK_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
"""Flags as plain numbers: combining pyzmq's own costs as much as a send."""

_EVENTS: Final = int(zmq.EVENTS)
_POLLIN: Final = int(zmq.POLLIN)


class Pump:
    """Calls `take` for every message of `socket`, on the loop thread. Owns the socket's reader, not the socket.

    `take` receives one message without waiting and lets `zmq.Again` through when there is none. What else it raises
    is the loop's to report; the messages after it are taken all the same.
    """

    def __init__(self, socket: zmq.Socket[bytes], take: Callable[[], None]) -> None:
        self._socket = socket
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._scheduled = False
        self._draining = False
        self._closed = False
        self._fd = int(socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._fd, self._drain)
        self._ticker = self._loop.call_later(TICK_S, self._tick)
        self.kick()

    def kick(self) -> None:
        """Look at the socket in the loop's next turn."""
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._loop.call_soon(self._drain)

    def after_send(self, *, is_busy: bool) -> None:
        """A send may have swallowed the edge: look whether something is there to read.

        `is_busy` says that more sends are likely in this turn: then one look after all of them is cheaper.
        """
        if self._draining or self._scheduled:
            return  # it is looked at again anyway
        if is_busy or self._socket.getsockopt(_EVENTS) & _POLLIN:  # type: ignore[operator]  # pyzmq types it by option
            self.kick()

    def close(self) -> None:
        """Stop reading. Idempotent."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._fd)
            self._ticker.cancel()

    def _drain(self) -> None:
        self._scheduled = False
        self._draining = is_unfinished = True
        try:
            for _ in range(BURST):
                if self._closed:
                    break
                self._take()
        except zmq.Again:
            is_unfinished = False
        except zmq.ZMQError as exc:
            if exc.errno not in (zmq.ENOTSOCK, zmq.ETERM):
                raise
            is_unfinished = False  # closed by its owner between two turns
        finally:
            self._draining = False
            if is_unfinished:
                self.kick()

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(TICK_S, self._tick)
        self.kick()
