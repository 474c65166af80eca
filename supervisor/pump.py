"""Reading a ZeroMQ socket from an asyncio loop without a thread of our own, and writing to it once a turn.

ZeroMQ's descriptor is edge triggered: it says that something changed, once. So after every burst of receives and after
the sends of a turn the socket is asked again, and a tick once a second covers whatever was missed all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import zmq

BURST: Final = 256
"""Frames taken before the loop gets a turn: draining in batches of 256 costs 3 µs a message, one by one 16 µs."""

TICK_S: Final = 1.0

NOBLOCK: Final = int(zmq.NOBLOCK)
NOBLOCK_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
"""Flags as plain numbers: combining pyzmq's own costs as much as a send."""

_EVENTS: Final = int(zmq.EVENTS)
_POLLIN: Final = int(zmq.POLLIN)


EARLY_S: Final = 0.002
"""libuv counts in milliseconds: its timers may come this much too early, and what was due is not due again."""


def next_beat(now: float, every_s: float) -> float:
    """The next moment on the clock that is a multiple of `every_s`.

    Who does something every second does it then: a process that has nothing else to do wakes up once and not for each
    of its sockets, and what it says meets the others awake.
    """
    return ((now + EARLY_S) // every_s + 1.0) * every_s


class Sends(Protocol):
    """What a message can be sent with: a socket, or what stands in for one."""

    def send(self, data: bytes, flags: int, /) -> object:
        """As `zmq.Socket.send`."""
        ...


def sender(socket: Sends) -> Callable[[bytes, int], object]:
    """The socket's `send(message, flags)`, past the checks of options we never give: they cost more than the send."""
    return partial(zmq.backend.Socket.send, socket) if isinstance(socket, zmq.Socket) else socket.send


class Pump:
    """Calls `take` for every message of `socket`, on the loop thread. Owns the socket's reader, not the socket.

    `take` receives one message without waiting and says how many frames it had; it lets `zmq.Again` through when there
    is none. What else it raises is the loop's to report; the messages after it are taken all the same.
    """

    def __init__(self, socket: zmq.Socket[bytes], take: Callable[[], int]) -> None:
        self._socket = socket
        self._take = take
        self._loop = asyncio.get_running_loop()
        self.turn = 0
        """Rises with every turn or burst: what happens at one number happens together."""
        self._last_words: list[Callable[[], bool]] = []
        self._is_scheduled = False
        self._is_draining = False
        self._is_closed = False
        self._has_sent = False
        self._fd = int(socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._fd, self._woken)
        self._ticker = self._loop.call_at(next_beat(self._loop.time(), TICK_S), self._tick)
        self._kick()

    def at_turn_end(self, send: Callable[[], bool]) -> None:
        """Call `send` when the present turn or burst is over; the socket is looked at again if it did send (True)."""
        self._last_words.append(send)
        if not self._is_draining:
            self._kick()

    def sent(self, *, is_alone: bool) -> None:
        """A message was sent, which may have swallowed the edge: the socket is looked at again.

        What is done after a send delays it, because ZeroMQ's thread waits for the processor that we are using. So after
        one that is alone the look comes at once, and nothing is put off to another turn of the loop.
        """
        self._has_sent = True
        if self._is_draining:
            return
        if not is_alone:
            self._kick()
            return
        self.turn += 1
        if not self._is_scheduled and self._has_mail():
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
            self._loop.call_soon(self._turn_ended)

    def _turn_ended(self) -> None:
        self._is_scheduled = False
        if self._is_closed:
            return
        self._speak()
        if self._has_mail():
            self._drain(BURST)

    def _woken(self) -> None:
        if not self._is_closed:
            self._drain(1)

    def _drain(self, most: int) -> None:
        self._is_draining = is_unfinished = True
        self._has_sent = False
        try:
            taken = self._take()
            # One message is the usual case. If it was answered, look for more now. If not, somebody here waits for it
            # and comes first: the look would take longer than the message did.
            if self._has_sent:
                is_unfinished = self._has_mail()
            while is_unfinished and taken < most:
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
        """The turn is over: let those speak who have something to say; whether they did."""
        self.turn += 1
        if not self._last_words:
            return False
        words, self._last_words = self._last_words, []
        has_spoken = False
        for send in words:
            has_spoken |= send()
        return has_spoken

    def _has_mail(self) -> bool:
        return not self._socket.closed and bool(int(self._socket.getsockopt(_EVENTS)) & _POLLIN)

    def _tick(self) -> None:
        self._ticker = self._loop.call_at(next_beat(self._loop.time(), TICK_S), self._tick)
        self._kick()
