"""One question to a service, without a loop: for commands whose start-up time is part of what people feel."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import Any

import zmq

from ..protocol.errors import AskTimeout, RemoteError
from ..protocol.frames import BodyDecoder
from ..protocol.ids import Incarnation
from ..protocol.messages.base import Failed, Wire
from ..protocol.messages.broker import BrokerReply
from ..protocol.messages.credentials import CredentialsReply
from ..protocol.messages.fleet import RootReply
from ..protocol.messages.ledger import LedgerReply
from ..protocol.peer import Peer
from ..protocol.session import Session, body_of
from ..protocol.session_events import Answered
from ..storage.owners import me
from .sockets import make_context, make_dealer


def ask_root(sockets: str, message: Wire, *, timeout_s: float) -> Wire:
    """The root's answer; raises `AskTimeout` or `RemoteError`."""
    return _ask(sockets, "root", message, RootReply, timeout_s)


def ask_broker(sockets: str, message: Wire, *, timeout_s: float) -> Wire:
    """The broker's answer, or that of its successor; raises `AskTimeout` or `RemoteError`."""
    return _ask(sockets, "broker", message, BrokerReply, timeout_s)


def ask_credentials(sockets: str, message: Wire, *, timeout_s: float) -> Wire:
    """The credentials' answer; they live beside the broker. Raises `AskTimeout` or `RemoteError`."""
    return _ask(sockets, "broker", message, CredentialsReply, timeout_s)


def ask_ledger(sockets: str, message: Wire, *, timeout_s: float) -> Wire:
    """The ledger's answer, or that of its successor; raises `AskTimeout` or `RemoteError`."""
    return _ask(sockets, "ledger", message, LedgerReply, timeout_s)


def _ask(sockets: str, service: str, message: Wire, replies: Any, timeout_s: float) -> Wire:
    peer = Peer(
        role="client",
        name="command",
        incarnation=Incarnation(f"{os.getpid()}-{secrets.token_hex(6)}"),
        owner=me(),
    )
    context = make_context()
    path = str(Path(sockets) / f"{service}.sock")
    socket = make_dealer(context, path=path, identity=f"{peer.role}:{peer.incarnation}")
    # Greet as soon as the connection stands, in the order of a full session; the message waits for the welcome.
    socket.setsockopt(zmq.IMMEDIATE, 0)
    socket.connect(f"ipc://{path}")
    try:
        return _decoded(_converse(socket, Session(peer, opens=True), service, message, timeout_s), replies)
    finally:
        socket.close(linger=20)
        context.term()


def _converse(socket: zmq.Socket[bytes], session: Session, service: str, message: Wire, timeout_s: float) -> bytes:
    deadline = time.monotonic() + timeout_s
    ask_id, _ = session.ask(body_of(message))
    out = session.connected()
    while True:
        for frame in out:
            socket.send(frame)
        left_ms = int((deadline - time.monotonic()) * 1000)
        if left_ms <= 0 or not socket.poll(left_ms):
            raise AskTimeout(type(message).__name__, service, timeout_s)
        events, out = session.receive(socket.recv(), time.monotonic())
        for event in events:
            if isinstance(event, Answered) and event.id == ask_id:
                for frame in session.close():
                    socket.send(frame)
                return event.body


def _decoded(body: bytes, replies: Any) -> Wire:
    reply: Wire = BodyDecoder(replies).decode(body)
    if isinstance(reply, Failed):
        raise RemoteError(reply.kind, reply.message)
    return reply
