"""A link: this process's connection to one service of the fleet.

It reconnects by itself, says hello each time, and repeats what was asked and not answered; a service that was replaced
therefore answers as if it had never been away. Owned by the loop thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from ..actors.ports import Request
from ..protocol.errors import AskTimeout, CoveyError, ProtocolError, RemoteError
from ..protocol.frames import BodyDecoder
from ..protocol.messages.base import Failed, Wire
from ..protocol.peer import Peer
from ..protocol.session import Answered, Asked, Left, Opened, Session, State, Told, body_of
from ..storage.logs import log_event
from .pump import Pump
from .sockets import make_dealer

log = logging.getLogger(__name__)

PING_S = 1.0
"""A service that was replaced without our connection noticing is found by the answer (`stranger`) to a ping."""

RETRY_S = 0.005
MAX_UNSENT = 50_000


class Link:
    """Asks and tells one service. `on_request` serves what the service asks of us (a worker's link to the root)."""

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
    ) -> None:
        self._service = service
        self._session = Session(me, opens=True)
        self._replies = BodyDecoder(replies)
        self._requests = BodyDecoder(requests) if requests is not None else None
        self._on_request = on_request
        self._waiting: dict[int, asyncio.Future[Wire] | None] = {}
        self._unsent: deque[bytes] = deque()
        self._retry: asyncio.TimerHandle | None = None
        self._lost: CoveyError | None = None
        self._loop = asyncio.get_running_loop()
        self._open = asyncio.Event()
        self._socket = make_dealer(context, path=path, identity=f"{me.role}:{me.incarnation}")
        events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        self._monitor = self._socket.get_monitor_socket(events)
        self._monitor_pump = Pump(self._monitor, self._transport_changed)
        self._pump = Pump(self._socket, self._received)
        self._socket.connect(f"ipc://{path}")
        self._pinger = self._loop.call_later(PING_S, self._ping)

    @property
    def peer(self) -> Peer | None:
        """Who answered our hello last."""
        return self._session.peer

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
        the request is not repeated any more; whether it was carried out is not known.
        """
        if self._lost is not None:
            raise self._lost
        ask_id, out = self._session.ask(body_of(message))
        future: asyncio.Future[Wire] = self._loop.create_future()
        self._waiting[ask_id] = future
        self._send(out)
        try:
            if timeout_s is None:
                reply = await future
            else:
                async with asyncio.timeout(timeout_s):
                    reply = await future
        except TimeoutError:
            raise AskTimeout(type(message).__name__, self._service, timeout_s or 0.0) from None
        finally:
            if self._waiting.pop(ask_id, None) is not None:
                self._session.give_up(ask_id)
        if isinstance(reply, Failed):
            raise RemoteError(reply.kind, reply.message)
        return reply

    def post(self, message: Wire) -> None:
        """Ask without waiting for the answer; repeated like any ask until the service has answered."""
        if self._lost is None:
            ask_id, out = self._session.ask(body_of(message))
            self._waiting[ask_id] = None
            self._send(out)

    def tell(self, message: Wire) -> None:
        """Say something at most once: dropped while the service is away."""
        self._send(self._session.tell(body_of(message)))

    def fail(self, error: CoveyError) -> None:
        """The service will not come back: end every wait with `error`, and every later ask at once."""
        self._lost = error
        for future in list(self._waiting.values()):
            if future is not None and not future.done():
                future.set_exception(error)
        self._open.set()

    async def settle(self, *, timeout_s: float) -> bool:
        """Wait until everything posted was answered; False if the time was too short."""
        deadline = self._loop.time() + timeout_s
        while any(future is None for future in self._waiting.values()):
            if self._lost is not None or self._loop.time() >= deadline:
                return False
            await asyncio.sleep(0.002)
        return True

    def close(self) -> None:
        """Say goodbye and close the socket. Idempotent; open asks end with a cancellation."""
        if self._socket.closed:
            return
        self._send(self._session.close())
        self._pinger.cancel()
        if self._retry is not None:
            self._retry.cancel()
        for future in self._waiting.values():
            if future is not None and not future.done():
                future.cancel()
        self._pump.close()
        self._monitor_pump.close()
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        # A moment for the goodbye; nothing depends on its arrival.
        self._socket.close(linger=50)

    # --- the wire ------------------------------------------------------------------------------------------------

    def _send(self, out: list[bytes]) -> None:
        self._unsent.extend(out)
        if self._unsent:
            self._flush()

    def _flush(self) -> None:
        self._retry = None
        while self._unsent:
            try:
                self._socket.send(self._unsent[0], zmq.NOBLOCK)
            except zmq.Again:
                self._hold_back()
                return
            self._unsent.popleft()
        self._pump.after_send()

    def _hold_back(self) -> None:
        """The pipe is full, or nobody is connected. Without a connection the session repeats asks after its hello."""
        if not self._open.is_set():
            self._unsent.clear()
        elif len(self._unsent) > MAX_UNSENT:
            log_event(log, "link_overflow", level=logging.WARNING, service=self._service, unsent=len(self._unsent))
            self._unsent.clear()
            self._send(self._session.connected())
        elif self._retry is None:
            self._retry = self._loop.call_later(RETRY_S, self._flush)

    def _transport_changed(self, parts: list[bytes]) -> None:
        event = parse_monitor_message(parts)["event"]
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._unsent.clear()
            self._send(self._session.connected())
        elif event == zmq.EVENT_DISCONNECTED:
            self._open.clear()
            self._unsent.clear()

    def _received(self, parts: list[bytes]) -> None:
        try:
            events, out = self._session.receive(parts[-1])
        except ProtocolError as exc:
            log_event(log, "link_protocol_error", level=logging.ERROR, service=self._service, error=str(exc))
            return
        self._send(out)
        for event in events:
            match event:
                case Opened():
                    self._open.set()
                case Answered(id=ask_id, body=body):
                    self._answered(ask_id, body)
                case Asked(id=ask_id, body=body):
                    self._asked(ask_id, body)
                case Left():
                    self._open.clear()
                case Told() | _:
                    pass

    def _answered(self, ask_id: int, body: bytes) -> None:
        future = self._waiting.pop(ask_id, None)
        if future is None or future.done():
            return
        try:
            future.set_result(self._replies.decode(body))
        except ProtocolError as exc:
            future.set_exception(exc)

    def _asked(self, ask_id: int, body: bytes) -> None:
        assert self._requests is not None, "a request to a process that serves none"
        assert self._on_request is not None, "a request to a process that serves none"
        peer = self._session.peer
        assert peer is not None, "a request came before the welcome"

        def reply(message: Wire) -> None:
            if not self._socket.closed:
                self._send(self._session.reply(ask_id, body_of(message)))

        try:
            request = self._requests.decode(body)
        except ProtocolError as exc:
            reply(Failed(kind="ProtocolError", message=str(exc)))
            return
        self._on_request(Request(peer, request, reply))

    def _ping(self) -> None:
        self._pinger = self._loop.call_later(PING_S, self._ping)
        # A hello that got lost is repeated as well: its answer is what opens the session.
        greeting = self._session.state is State.GREETING
        self._send(self._session.connected() if greeting else self._session.ping())
