"""A hub: the listening end of a service, one session per peer. Owned by the loop thread.

What a peer asks reaches `on_request`; the service may also ask a peer (the root its workers). A peer that reconnects
keeps its session, and the asks it has not answered are repeated.

ZeroMQ takes from its peers in turn, each peer sends no more than it was granted, and what a full pipe refuses waits in
that peer's own queue: one peer that sends or reads badly does not hold up the others.

Processes of the tree are asked for a sign of life while they say nothing by themselves. ZeroMQ's own heartbeat cannot
tell that: its thread goes on while the loop stands still.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import zmq

from ..actors.ports import PeerLeft, Request
from ..protocol.errors import AskTimeout, CoveyError, ProtocolError, RemoteError
from ..protocol.frames import BodyDecoder, unbundle
from ..protocol.ids import Incarnation
from ..protocol.messages.base import Failed, Wire
from ..protocol.peer import Peer
from ..protocol.session import Session, body_of
from ..protocol.session_events import Answered, Asked, Event, Left, Opened, Told
from ..protocol.session_states import State
from ..storage.logs import log_event
from .outflow import Outflow
from .pump import NOBLOCK, NOBLOCK_MORE, Pump, next_beat, sender
from .sockets import make_router

log = logging.getLogger(__name__)

MAX_STRANGERS: Final = 10_000
SILENCE_S: Final = 30.0
BEATS: Final = 10
"""Beats in one silence: so finely is it measured."""

CLIENT: Final = "client"
"""The role of programs outside the tree: how long their loops stand still is their own affair."""

_RCVMORE: Final = int(zmq.RCVMORE)


class _Line:
    """One peer's end: its session, its frames on the way, and whom it owes answers to."""

    __slots__ = ("beat", "is_blamed", "out", "session", "waiting")

    def __init__(self, session: Session, out: Outflow) -> None:
        self.session = session
        self.out = out
        self.waiting: dict[int, asyncio.Future[Wire]] = {}
        self.beat: asyncio.TimerHandle | None = None
        self.is_blamed = False


class Hub:
    """Serves one listening socket: `listener_fd` at `path`, or a `socket` that is made already and becomes the hub's.

    The callbacks run on the loop thread and must not block.

    What `on_request` raises of our own errors is the answer to the request. `on_silent(peer, silent_s)` is called once
    when nothing was heard of a process of the tree for `silence_s`, and again only after it was heard.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        *,
        path: str = "",
        listener_fd: int = -1,
        socket: zmq.Socket[bytes] | None = None,
        me: Peer,
        requests: Any,
        on_request: Callable[[Request[Any]], None],
        on_opened: Callable[[Peer], None] = lambda peer: None,
        on_left: Callable[[PeerLeft], None] = lambda left: None,
        replies: Any = None,
        silence_s: float = SILENCE_S,
        on_silent: Callable[[Peer, float], None] | None = None,
    ) -> None:
        self._me = me
        self._requests = BodyDecoder(requests)
        self._replies = BodyDecoder(replies) if replies is not None else None
        self._on_request = on_request
        self._on_opened = on_opened
        self._on_left = on_left
        self._silence_s = silence_s
        self._beat_s = silence_s / BEATS
        self._on_silent = on_silent
        self._lines: dict[bytes, _Line] = {}
        self._loop = asyncio.get_running_loop()
        self._socket = socket or make_router(context, path=path, listener_fd=listener_fd)
        self._pump = Pump(self._socket, self._take)
        self._socket_send = sender(self._socket)
        self.protocol_errors = 0

    def peers(self) -> list[Peer]:
        """Everybody with an open session."""
        return [line.session.peer for line in self._lines.values() if line.session.is_open and line.session.peer]

    async def ask(self, to: Peer, message: Wire, *, timeout_s: float) -> Wire:
        """The peer's answer; repeated if the peer reconnects meanwhile.

        Raises `AskTimeout` or `RemoteError`, which is also what a peer without a session or with a goodbye is; at once
        `LinkFull` or `MessageTooLarge`.
        """
        line = self._lines.get(_identity(to))
        if line is None or line.session.state is State.CLOSED:
            raise RemoteError("PeerGone", f"{to.name} has no session")
        ask_id, out = line.session.ask(body_of(message))
        future: asyncio.Future[Wire] = self._loop.create_future()
        line.waiting[ask_id] = future
        timer = self._loop.call_later(
            timeout_s, _expired, future, AskTimeout(type(message).__name__, to.name, timeout_s)
        )
        _send(line, out)
        try:
            reply = await future
        finally:
            timer.cancel()
            if line.waiting.pop(ask_id, None) is not None:
                _send(line, line.session.give_up(ask_id))
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
            line.out.flush()
            self._end(line)
        self._lines.clear()
        self._pump.close()
        self._socket.close(linger=50)

    # --- the wire ------------------------------------------------------------------------------------------------

    def _take(self) -> int:
        identity, message = self._socket.recv(NOBLOCK), self._socket.recv(NOBLOCK)
        if self._socket.getsockopt(_RCVMORE):
            self._refuse_rest(identity)
            return 1
        try:
            parts = unbundle(message)
        except ProtocolError as exc:
            self._complain(identity, str(exc))
            return 1
        for frame in parts:
            self._received(identity, frame)
        return len(parts)

    def _received(self, identity: bytes, frame: bytes | msgspec.Raw) -> None:
        line = self._lines.get(identity) or self._new_line(identity)
        try:
            events, out = line.session.receive(frame, self._loop.time())
        except ProtocolError as exc:
            self._complain(identity, str(exc))
            return
        if out:
            line.out.put(out)
        for event in events:
            self._happened(identity, line, event)

    def _refuse_rest(self, identity: bytes) -> None:
        """A message of several parts: none of ours. Take it off whole, or its rest would be somebody's message."""
        while self._socket.getsockopt(_RCVMORE):
            self._socket.recv(NOBLOCK)
        self._complain(identity, "a message of several parts")

    def _complain(self, identity: bytes, error: str) -> None:
        self.protocol_errors += 1
        log_event(log, "hub_protocol_error", level=logging.ERROR, peer=_text(identity), error=error)

    def _new_line(self, identity: bytes) -> _Line:
        if len(self._lines) >= MAX_STRANGERS:
            self._sweep()

        send = self._socket_send

        def put(message: bytes) -> None:
            try:
                send(identity, NOBLOCK_MORE)
                send(message, NOBLOCK)
            except zmq.Again:
                raise
            except zmq.ZMQError as exc:
                # Not connected now: when it comes back it says hello, and both sides repeat what is unanswered.
                if exc.errno != zmq.EHOSTUNREACH:
                    raise

        def overflowed(dropped: int) -> None:
            log_event(log, "hub_peer_does_not_read", level=logging.ERROR, peer=_text(identity), dropped=dropped)

        out = Outflow(put, pump=self._pump, loop=self._loop, on_overflow=overflowed)
        line = _Line(Session(self._me, opens=False), out)
        self._lines[identity] = line
        return line

    def _happened(self, identity: bytes, line: _Line, event: Event) -> None:
        match event:
            case Asked(id=ask_id, body=body):
                self._asked(identity, line, ask_id, body)
            case Answered(id=ask_id, body=body):
                self._answered(line, ask_id, body)
            case Opened(peer=peer):
                self._watch(line, peer)
                self._on_opened(peer)
            case Told(body=body):
                self._told(line, body)
            case Left():
                self._lines.pop(identity, None)
                self._end(line)
                if line.session.peer is not None:
                    self._on_left(PeerLeft(line.session.peer))

    def _asked(self, identity: bytes, line: _Line, ask_id: int, body: bytes) -> None:
        peer = line.session.peer
        assert peer is not None, "an open session knows its peer"
        reply = _Reply(self, identity, line, line.session.generation, ask_id)
        try:
            self._on_request(Request(peer, self._requests.decode(body), reply))
        except CoveyError as exc:
            self.protocol_errors += isinstance(exc, ProtocolError)
            reply(Failed(kind=type(exc).__name__, message=str(exc)))

    def _reply(self, to: _Reply, message: Wire) -> None:
        is_theirs = self._lines.get(to.identity) is to.line and to.line.session.generation == to.generation
        if is_theirs and not self._socket.closed:
            _send(to.line, to.line.session.reply(to.ask_id, body_of(message)))

    def _told(self, line: _Line, body: bytes) -> None:
        peer = line.session.peer
        assert peer is not None, "an open session knows its peer"
        try:
            self._on_request(Request(peer, self._requests.decode(body), _nobody_waits))
        except CoveyError as exc:
            self.protocol_errors += isinstance(exc, ProtocolError)

    def _answered(self, line: _Line, ask_id: int, body: bytes) -> None:
        future = line.waiting.pop(ask_id, None)
        if future is None or future.done():
            return
        assert self._replies is not None, "an answer to a hub that never asks"
        try:
            future.set_result(self._replies.decode(body))
        except ProtocolError as exc:
            future.set_exception(exc)

    # --- signs of life -------------------------------------------------------------------------------------------

    def _watch(self, line: _Line, peer: Peer) -> None:
        if self._on_silent is not None and line.beat is None and peer.role != CLIENT:
            self._set_beat(line, peer, self._loop.time())

    def _set_beat(self, line: _Line, peer: Peer, now: float) -> None:
        at = next_beat(now, self._beat_s)
        line.beat = self._loop.call_at(at, self._listen, line, peer, at)

    def _listen(self, line: _Line, peer: Peer, due: float) -> None:
        """Once a beat: ask a peer that says nothing, and tell when it has been silent for too long."""
        assert self._on_silent is not None, "nobody is watched for nobody"
        now = self._loop.time()
        self._set_beat(line, peer, now)
        if now - due > self._beat_s:
            # We stood still ourselves: what it said meanwhile is in the socket, unread.
            line.session.excuse(now)
        silent_s = line.session.silent_s(now)
        if silent_s >= self._beat_s and not line.out.is_held_back:
            _send(line, line.session.beat())
        is_too_long = silent_s >= self._silence_s
        if is_too_long and not line.is_blamed:
            self._on_silent(peer, silent_s)
        line.is_blamed = is_too_long

    # --- ends ----------------------------------------------------------------------------------------------------

    def _end(self, line: _Line) -> None:
        line.out.clear()
        if line.beat is not None:
            line.beat.cancel()
        for future in line.waiting.values():
            if not future.done():
                future.set_exception(RemoteError("PeerGone", "the peer's session ended before it answered"))
        line.waiting.clear()

    def _sweep(self) -> None:
        """Forget everybody who never said hello."""
        for identity in [key for key, line in self._lines.items() if line.session.peer is None]:
            self._end(self._lines.pop(identity))


def _send(line: _Line, out: list[bytes]) -> None:
    if out:
        line.out.put(out)


def _expired(future: asyncio.Future[Wire], error: AskTimeout) -> None:
    if not future.done():
        future.set_exception(error)


def _identity(peer: Peer) -> bytes:
    return f"{peer.role}:{peer.incarnation}".encode()


def _text(identity: bytes) -> str:
    return identity.decode(errors="replace")


@dataclass(slots=True)
class _Reply:
    """The way back of one request. No closure: ten thousand of them may wait."""

    hub: Hub
    identity: bytes
    line: _Line
    generation: int
    ask_id: int

    def __call__(self, message: Wire) -> None:
        self.hub._reply(self, message)


def _nobody_waits(message: Wire) -> None:
    """The reply of a request that was told, not asked."""
