"""One question to the root, without a loop: for commands whose start-up time is part of what people feel."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

import zmq

from ..protocol.errors import AskTimeout, RemoteError
from ..protocol.frames import BodyDecoder
from ..protocol.ids import Incarnation
from ..protocol.messages.base import Failed, Wire
from ..protocol.messages.fleet import RootReply
from ..protocol.peer import Peer
from ..protocol.session import Session, body_of
from ..protocol.session_events import Answered
from ..storage.owners import me
from .sockets import make_context, make_dealer


def ask_root(sockets: str, message: Wire, *, timeout_s: float) -> Wire:
    """The root's answer; raises `AskTimeout` or `RemoteError`."""
    peer = Peer(
        role="client",
        name="command",
        incarnation=Incarnation(f"{os.getpid()}-{secrets.token_hex(6)}"),
        owner=me(),
    )
    context = make_context()
    socket = make_dealer(context, path=str(Path(sockets) / "root.sock"), identity=f"{peer.role}:{peer.incarnation}")
    # Greet as soon as the connection stands, in the order of a full session; the message waits for the welcome.
    socket.setsockopt(zmq.IMMEDIATE, 0)
    socket.connect(f"ipc://{Path(sockets) / 'root.sock'}")
    try:
        return _converse(socket, Session(peer, opens=True), message, timeout_s)
    finally:
        socket.close(linger=20)
        context.term()


def _converse(socket: zmq.Socket[bytes], session: Session, message: Wire, timeout_s: float) -> Wire:
    deadline = time.monotonic() + timeout_s
    ask_id, _ = session.ask(body_of(message))
    out = session.connected()
    while True:
        for frame in out:
            socket.send(frame)
        left_ms = int((deadline - time.monotonic()) * 1000)
        if left_ms <= 0 or not socket.poll(left_ms):
            raise AskTimeout(type(message).__name__, "root", timeout_s)
        events, out = session.receive(socket.recv(), time.monotonic())
        for event in events:
            if isinstance(event, Answered) and event.id == ask_id:
                for frame in session.close():
                    socket.send(frame)
                return _decoded(event.body)


def _decoded(body: bytes) -> Wire:
    reply = BodyDecoder(RootReply).decode(body)
    if isinstance(reply, Failed):
        raise RemoteError(reply.kind, reply.message)
    return reply
