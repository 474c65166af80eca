"""A hub: the listening end of a service, one session per peer. Owned by the loop thread.

What a peer asks reaches `on_request`; the service may also ask a peer (the root its workers). A peer that reconnects
keeps its session, and the asks it has not answered are repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import zmq

from ..actors.ports import PeerLeft, Request
from ..protocol.errors import AskTimeout, ProtocolError, RemoteError
from ..protocol.frames import BodyDecoder
from ..protocol.ids import Incarnation
from ..protocol.messages.base import Failed, Wire
from ..protocol.peer import Peer
from ..protocol.session import Answered, Asked, Heard, Left, Opened, Session, State, Told, body_of
from ..storage.logs import log_event
from .pump import Pump
from .sockets import make_router

log = logging.getLogger(__name__)

RETRY_S = 0.005
MAX_UNSENT = 50_000
MAX_STRANGERS = 10_000


@dataclass(slots=True)
class _Line:
    """One peer's end: its session and what a full pipe refused."""

    session: Session
    unsent: deque[bytes] = field(default_factory=deque)
    retry: asyncio.TimerHandle | None = None
    waiting: dict[int, asyncio.Future[Wire]] = field(default_factory=dict)


class Hub:
    """Serves one listening socket. `on_request` and `on_left` run on the loop thread and must not block."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        *,
        path: str,
        listener_fd: int,
        me: Peer,
        requests: Any,
        on_request: Callable[[Request[Any]], None],
        on_opened: Callable[[Peer], None] = lambda peer: None,
        on_left: Callable[[PeerLeft], None] = lambda left: None,
        replies: Any = None,
    ) -> None:
        self._me = me
        self._requests = BodyDecoder(requests)
        self._replies = BodyDecoder(replies) if replies is not None else None
        self._on_request = on_request
        self._on_opened = on_opened
        self._on_left = on_left
        self._lines: dict[bytes, _Line] = {}
        self._loop = asyncio.get_running_loop()
        self._socket = make_router(context, path=path, listener_fd=listener_fd)
        self._pump = Pump(self._socket, self._received)
        self.protocol_errors = 0

    def peers(self) -> list[Peer]:
        """Everybody with an open session."""
        return [
            line.session.peer for line in self._lines.values() if line.session.state is State.OPEN and line.session.peer
        ]

    async def ask(self, to: Peer, message: Wire, *, timeout_s: float) -> Wire:
        """The peer's answer; raises `AskTimeout` or `RemoteError`. Repeated if the peer reconnects meanwhile."""
        identity = _identity(to)
        line = self._lines.get(identity)
        if line is None or line.session.state is State.CLOSED:
            raise RemoteError("PeerGone", f"{to.name} has no session")
        ask_id, out = line.session.ask(body_of(message))
        future: asyncio.Future[Wire] = self._loop.create_future()
        line.waiting[ask_id] = future
        self._send(identity, line, out)
        try:
            async with asyncio.timeout(timeout_s):
                reply = await future
        except TimeoutError:
            raise AskTimeout(type(message).__name__, to.name, timeout_s) from None
        finally:
            if line.waiting.pop(ask_id, None) is not None:
                line.session.give_up(ask_id)
        if isinstance(reply, Failed):
            raise RemoteError(reply.kind, reply.message)
        return reply

    def forget(self, incarnation: Incarnation, role: str) -> None:
        """This life of a process is over: end its session and every ask to it."""
        identity = f"{role}:{incarnation}".encode()
        line = self._lines.pop(identity, None)
        if line is not None:
            self._end(line)

    def close(self) -> None:
        """Stop serving. Idempotent.

        Nobody is told goodbye: the listening socket is its owner's, and a successor may go on where we stopped.
        """
        if self._socket.closed:
            return
        for line in self._lines.values():
            self._end(line)
        self._lines.clear()
        self._pump.close()
        self._socket.close(linger=50)

    # --- the wire ------------------------------------------------------------------------------------------------

    def _received(self, parts: list[bytes]) -> None:
        identity, data = parts[0], parts[-1]
        line = self._lines.get(identity)
        if line is None:
            if len(self._lines) >= MAX_STRANGERS:
                self._sweep()
            line = self._lines[identity] = _Line(Session(self._me, opens=False))
        try:
            events, out = line.session.receive(data)
        except ProtocolError as exc:
            self.protocol_errors += 1
            log_event(
                log, "hub_protocol_error", level=logging.ERROR, peer=identity.decode(errors="replace"), error=str(exc)
            )
            return
        self._send(identity, line, out)
        for event in events:
            self._happened(identity, line, event)

    def _happened(self, identity: bytes, line: _Line, event: object) -> None:
        match event:
            case Asked(id=ask_id, body=body):
                self._asked(identity, line, ask_id, body)
            case Answered(id=ask_id, body=body):
                self._answered(line, ask_id, body)
            case Opened(peer=peer):
                self._on_opened(peer)
            case Told(body=body):
                self._told(line, body)
            case Left():
                self._lines.pop(identity, None)
                self._end(line)
                if line.session.peer is not None:
                    self._on_left(PeerLeft(line.session.peer))
            case Heard() | _:
                pass

    def _asked(self, identity: bytes, line: _Line, ask_id: int, body: bytes) -> None:
        peer = line.session.peer
        assert peer is not None, "an open session knows its peer"

        def reply(message: Wire) -> None:
            if not self._socket.closed and self._lines.get(identity) is line:
                self._send(identity, line, line.session.reply(ask_id, body_of(message)))

        try:
            request = self._requests.decode(body)
        except ProtocolError as exc:
            self.protocol_errors += 1
            reply(Failed(kind="ProtocolError", message=str(exc)))
            return
        self._on_request(Request(peer, request, reply))

    def _told(self, line: _Line, body: bytes) -> None:
        peer = line.session.peer
        assert peer is not None, "an open session knows its peer"
        try:
            request = self._requests.decode(body)
        except ProtocolError:
            self.protocol_errors += 1
            return
        self._on_request(Request(peer, request, _nobody_waits))

    def _answered(self, line: _Line, ask_id: int, body: bytes) -> None:
        future = line.waiting.pop(ask_id, None)
        if future is None or future.done():
            return
        assert self._replies is not None, "an answer to a hub that never asks"
        try:
            future.set_result(self._replies.decode(body))
        except ProtocolError as exc:
            future.set_exception(exc)

    def _send(self, identity: bytes, line: _Line, out: list[bytes]) -> None:
        if not out:
            return
        line.unsent.extend(out)
        if line.retry is None:
            self._flush(identity, line)

    def _flush(self, identity: bytes, line: _Line) -> None:
        line.retry = None
        while line.unsent:
            try:
                self._socket.send_multipart([identity, line.unsent[0]], zmq.NOBLOCK)
            except zmq.Again:
                self._hold_back(identity, line)
                break
            except zmq.ZMQError as exc:
                if exc.errno != zmq.EHOSTUNREACH:
                    raise
                # Not connected now. If it comes back it says hello, and both sides repeat what is unanswered.
                line.unsent.clear()
                break
            line.unsent.popleft()
        self._pump.after_send()

    def _hold_back(self, identity: bytes, line: _Line) -> None:
        """One full peer must not stall the others: its frames wait here, up to a bound."""
        if len(line.unsent) > MAX_UNSENT:
            log_event(log, "hub_peer_does_not_read", level=logging.ERROR, peer=identity.decode(errors="replace"))
            line.unsent.clear()
        else:
            line.retry = self._loop.call_later(RETRY_S, self._flush, identity, line)

    def _end(self, line: _Line) -> None:
        if line.retry is not None:
            line.retry.cancel()
        for future in line.waiting.values():
            if not future.done():
                future.set_exception(RemoteError("PeerGone", "the peer's session ended before it answered"))
        line.waiting.clear()

    def _sweep(self) -> None:
        """Forget everybody without an open session."""
        for identity in [key for key, line in self._lines.items() if line.session.state is not State.OPEN]:
            del self._lines[identity]


def _identity(peer: Peer) -> bytes:
    return f"{peer.role}:{peer.incarnation}".encode()


def _nobody_waits(message: Wire) -> None:
    """The reply of a request that was told, not asked."""
