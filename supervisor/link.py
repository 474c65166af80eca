"""A link: this process's connection to one service of the fleet.

It reconnects by itself, says hello each time, and repeats what was asked and not answered; a service that was replaced
therefore answers as if it had never been away. Owned by the loop thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
import zmq
from zmq.utils.monitor import parse_monitor_message

from ..actors.ports import Request
from ..protocol.errors import AskTimeout, CoveyError, KeyRefused, LinkClosed, ProtocolError, RemoteError
from ..protocol.frames import BodyDecoder, unbundle
from ..protocol.messages.base import Failed, Wire
from ..protocol.peer import Peer
from ..protocol.session import Session, body_of
from ..protocol.session_events import Answered, Asked, Left, Opened, Told
from ..protocol.session_states import State
from ..storage.logs import log_event
from .deadlines import Deadlines
from .outflow import Outflow
from .pump import NOBLOCK, Pump, next_beat, sender
from .sockets import ClientCurve, make_dealer, make_network_dealer

log = logging.getLogger(__name__)

PING_S = 1.0
"""A service that was replaced without our connection noticing is found by the answer (`stranger`) to a ping."""


REFUSED: Final = 400
"""What a ZAP handler answers for a key it does not know. Any other answer says something about the handler."""


_WATCHED: Final = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH


class Link:
    """Asks and tells one service. `on_request` serves what the service asks of us (a worker's link to the root).

    `path` is the service's socket, or with `curve` its address on another host.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        *,
        path: str,
        service: str,
        me: Peer,
        replies: Any,
        requests: Any = None,
        on_request: Callable[[Request[Any]], None] | None = None,
        curve: ClientCurve | None = None,
    ) -> None:
        self._service = service
        # Two links of one process to one service, one after the other, have one name: the clock tells them apart.
        self._session = Session(me, opens=True, link=time.monotonic_ns())
        self._replies = BodyDecoder(replies)
        self._requests = BodyDecoder(requests) if requests is not None else None
        self._on_request = on_request
        self._waiting: dict[int, asyncio.Future[Wire] | None] = {}
        self._posted = 0
        self._settlers: list[asyncio.Future[None]] = []
        self._lost: CoveyError | None = None
        self._loop = asyncio.get_running_loop()
        self._open = asyncio.Event()
        self._path = path
        identity = f"{me.role}:{me.incarnation}"
        if curve is None:
            self._socket = make_dealer(context, path=path, identity=identity)
        else:
            self._socket = make_network_dealer(context, identity=identity, curve=curve)
        self._monitor = self._socket.get_monitor_socket(_WATCHED)
        self._monitor_pump = Pump(self._monitor, self._take_event)
        self._pump = Pump(self._socket, self._take)
        self._socket_send = sender(self._socket)
        self._out = Outflow(self._put, pump=self._pump, loop=self._loop, on_overflow=self._overflowed)
        self._deadlines = Deadlines(self._loop, self._expired)
        self._socket.connect(path if curve is not None else f"ipc://{path}")
        self._pinger = self._loop.call_at(next_beat(self._loop.time(), PING_S), self._ping)

    @property
    def peer(self) -> Peer | None:
        """Who answered our hello last."""
        return self._session.peer

    @property
    def lost(self) -> CoveyError | None:
        """Why the service will not come back, once `fail` was told."""
        return self._lost

    async def opened(self, *, timeout_s: float) -> None:
        """Wait until the service has welcomed us; raises `AskTimeout`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._open.wait()
        except TimeoutError:
            raise AskTimeout("hello", self._service, timeout_s) from None
        if self._lost is not None:
            raise self._lost

    async def ask(self, message: Wire, *, timeout_s: float | None) -> Wire:
        """The service's answer; None waits as long as the service (or its successor) takes.

        Raises `AskTimeout`, `RemoteError` for a `Failed` answer, or the error given to `fail`. When this is cancelled
        the request is not repeated any more; whether it was carried out is not known. `LinkFull`, `LinkClosed` and
        `MessageTooLarge` are raised at once, and nothing was asked.
        """
        if self._lost is not None:
            raise self._lost
        ask_id, out = self._session.ask(body_of(message))
        future: asyncio.Future[Wire] = self._loop.create_future()
        self._waiting[ask_id] = future
        if timeout_s is not None:
            self._deadlines.set(ask_id, timeout_s)
        if out:
            self._out.put(out, is_alone=len(self._waiting) == 1)
        try:
            reply = await future
        except TimeoutError:
            raise AskTimeout(type(message).__name__, self._service, timeout_s or 0.0) from None
        finally:
            if timeout_s is not None:
                self._deadlines.drop(ask_id)
            if self._waiting.pop(ask_id, None) is not None:
                self._send(self._session.give_up(ask_id))
                if self._settlers:
                    self._wake()
        if isinstance(reply, Failed):
            raise RemoteError(reply.kind, reply.message)
        return reply

    def post(self, message: Wire) -> None:
        """Ask without waiting for the answer; repeated like any ask until the service has answered.

        For giving back: it may use the room that asks have to leave, and raises `LinkFull` only beyond that. On a link
        that is lost or closing it does nothing, because the goodbye gives back everything.
        """
        if self._lost is not None:
            return
        try:
            ask_id, out = self._session.ask(body_of(message), may_use_reserve=True)
        except LinkClosed:
            return
        self._waiting[ask_id] = None
        self._posted += 1
        self._send(out)

    def tell(self, message: Wire) -> None:
        """Say something at most once: dropped while the service is away, or too far behind."""
        self._send(self._session.tell(body_of(message)))

    def fail(self, error: CoveyError) -> None:
        """The service will not come back: end every wait with `error`, and every later ask at once."""
        self._lost = error
        for future in list(self._waiting.values()):
            if future is not None and not future.done():
                future.set_exception(error)
        self._open.set()
        self._wake()

    async def settle(self, *, timeout_s: float) -> bool:
        """Wait until everything posted was answered; False if the time was too short."""
        await self._until(lambda: not self._posted, timeout_s)
        return not self._posted

    async def drain(self, *, timeout_s: float) -> bool:
        """Take no more asks, finish those of either side, say goodbye and close; False if the time was too short."""
        if self._socket.closed:
            return True
        self._send(self._session.drain())
        await self._until(lambda: self._session.state is State.CLOSED, timeout_s)
        is_finished = self._session.state is State.CLOSED
        self.close()
        return is_finished

    def close(self) -> None:
        """Say goodbye and close the socket. Idempotent; open asks end with a cancellation."""
        if self._socket.closed:
            return
        self._send(self._session.close())
        self._pinger.cancel()
        self._out.flush()
        self._out.clear()
        self._deadlines.close()
        for future in self._waiting.values():
            if future is not None and not future.done():
                future.cancel()
        self._pump.close()
        self._monitor_pump.close()
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._wake()
        # A moment for the goodbye; nothing depends on its arrival.
        self._socket.close(linger=50)

    # --- the wire ------------------------------------------------------------------------------------------------

    def _send(self, out: list[bytes]) -> None:
        if out:
            self._out.put(out)

    def _put(self, frame: bytes) -> None:
        try:
            self._socket_send(frame, NOBLOCK)
        except zmq.Again:
            if self._open.is_set():
                raise
            # Nobody is connected: after its hello the session repeats what matters.

    def _overflowed(self, dropped: int) -> None:
        log_event(log, "link_overflow", level=logging.WARNING, service=self._service, dropped=dropped)

    def _take_event(self) -> int:
        said = parse_monitor_message(self._monitor.recv_multipart(NOBLOCK))
        event = said["event"]
        # What waited was for the connection that is gone.
        self._out.clear()
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._send(self._session.connected())
        else:
            self._open.clear()
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH and said["value"] == REFUSED:
            self.fail(KeyRefused(self._path))
        return 1

    def _take(self) -> int:
        message = self._socket.recv(NOBLOCK)
        try:
            parts = unbundle(message)
        except ProtocolError as exc:
            self._complain(exc)
            return 1
        for frame in parts:
            self._received(frame)
        if self._settlers:
            self._wake()
        return len(parts)

    def _received(self, frame: bytes | msgspec.Raw) -> None:
        try:
            events, out = self._session.receive(frame, self._loop.time())
        except ProtocolError as exc:
            self._complain(exc)
            return
        if out:
            self._out.put(out)
        for event in events:
            match event:
                case Answered(id=ask_id, body=body):
                    self._answered(ask_id, body)
                case Asked(id=ask_id, body=body):
                    self._asked(ask_id, body)
                case Opened():
                    self._open.set()
                case Left():
                    self._open.clear()
                    self.fail(LinkClosed(self._service))
                case Told():
                    pass

    def _complain(self, error: ProtocolError) -> None:
        log_event(log, "link_protocol_error", level=logging.ERROR, service=self._service, error=str(error))

    def _expired(self, ask_id: int) -> None:
        future = self._waiting.get(ask_id)
        if future is not None and not future.done():
            future.set_exception(TimeoutError())

    def _answered(self, ask_id: int, body: bytes) -> None:
        future = self._waiting.pop(ask_id, None)
        if future is None:
            self._posted -= 1
        elif not future.done():
            try:
                future.set_result(self._replies.decode(body))
            except ProtocolError as exc:
                future.set_exception(exc)

    async def _until(self, holds: Callable[[], bool], timeout_s: float) -> None:
        """Wait for a condition that a message can make true, or the loss of the service, or the end of the time."""
        try:
            async with asyncio.timeout(timeout_s):
                while not holds() and self._lost is None and not self._socket.closed:
                    settler: asyncio.Future[None] = self._loop.create_future()
                    self._settlers.append(settler)
                    await settler
        except TimeoutError:
            return

    def _wake(self) -> None:
        settlers, self._settlers = self._settlers, []
        for settler in settlers:
            if not settler.done():
                settler.set_result(None)

    def _asked(self, ask_id: int, body: bytes) -> None:
        assert self._requests is not None, "a request to a process that serves none"
        assert self._on_request is not None, "a request to a process that serves none"
        peer = self._session.peer
        assert peer is not None, "a request came before the welcome"

        generation = self._session.generation

        def reply(message: Wire) -> None:
            if not self._socket.closed and self._session.generation == generation:
                self._send(self._session.reply(ask_id, body_of(message)))
                if self._settlers:
                    self._wake()

        try:
            request = self._requests.decode(body)
        except ProtocolError as exc:
            reply(Failed(kind="ProtocolError", message=str(exc)))
            return
        self._on_request(Request(peer, request, reply))

    def _ping(self) -> None:
        self._pinger = self._loop.call_at(next_beat(self._loop.time(), PING_S), self._ping)
        # Never behind what a full pipe holds back: beats would pile up for a service that does not read.
        if not self._out.is_held_back:
            self._send(self._session.beat())
