"""Reading a ZeroMQ socket from an asyncio loop without a thread of our own, and writing to it once a turn.

ZeroMQ's descriptor is edge triggered: it says that something changed, once. So after every burst of receives and after
the sends of a turn the socket is asked again, and a tick once a second covers whatever was missed all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import zmq

BURST: Final = 256
"""Frames taken before the loop gets a turn: draining in batches of 256 costs 3 µs a message, one by one 16 µs."""

TICK_S: Final = 1.0

NOBLOCK: Final = int(zmq.NOBLOCK)
NOBLOCK_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
"""Flags as plain numbers: combining pyzmq's own costs as much as a send."""

_EVENTS: Final = int(zmq.EVENTS)
_POLLIN: Final = int(zmq.POLLIN)


class Pump:
    """Calls `take` for every message of `socket`, on the loop thread. Owns the socket's reader, not the socket.

    `take` receives one message without waiting and says how many frames it had; it lets `zmq.Again` through when there
    is none. What else it raises is the loop's to report; the messages after it are taken all the same.
    """

    def __init__(self, socket: zmq.Socket[bytes], take: Callable[[], int]) -> None:
        self._socket = socket
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._last_words: list[Callable[[], bool]] = []
        self._is_scheduled = False
        self._is_draining = False
        self._is_closed = False
        self._fd = int(socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._fd, self._drain)
        self._ticker = self._loop.call_later(TICK_S, self._tick)
        self._kick()

    def at_turn_end(self, send: Callable[[], bool]) -> None:
        """Call `send` when the present turn or burst is over; the socket is looked at again if it did send (True)."""
        self._last_words.append(send)
        if not self._is_draining:
            self._kick()

    def look(self) -> None:
        """Look at the socket now: what was just sent may have swallowed the edge."""
        if not self._is_scheduled and not self._is_draining and self._has_mail():
            self._kick()

    def close(self) -> None:
        """Stop reading. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._fd)
            self._ticker.cancel()

    def _kick(self) -> None:
        if not self._is_scheduled and not self._is_closed:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        if self._is_closed:
            return
        self._speak()
        if self._has_mail():
            self._drain()

    def _drain(self) -> None:
        if self._is_closed:
            return
        self._is_draining = is_unfinished = True
        try:
            taken = self._take()
            # The usual case is one message, and asking is cheaper than being refused.
            if is_unfinished := self._has_mail():
                while taken < BURST:
                    taken += self._take()
        except zmq.Again:
            is_unfinished = False
        except zmq.ZMQError as exc:
            if exc.errno not in (zmq.ENOTSOCK, zmq.ETERM):
                raise
            is_unfinished = False  # closed by its owner between two turns
        finally:
            self._is_draining = False
            if self._speak() or is_unfinished:
                self._kick()

    def _speak(self) -> bool:
        """Let those speak who have something to say; whether they did."""
        words, self._last_words = self._last_words, []
        return sum(send() for send in words) > 0

    def _has_mail(self) -> bool:
        return not self._socket.closed and bool(int(self._socket.getsockopt(_EVENTS)) & _POLLIN)

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(TICK_S, self._tick)
        self._kick()
