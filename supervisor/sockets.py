"""ZeroMQ set up in one place: every socket of the fleet gets its options here.

A socket belongs to the loop thread that made it. ZeroMQ's own I/O thread (one per process) keeps the transport alive
while that loop is busy; whether the *loop* turns is asked by the session's ping.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import zmq

from ..protocol.frames import MAX_FRAME_BYTES


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """What is set on every socket; times in ms, high-water marks in messages."""

    linger_ms: int = 0
    high_water: int = 20_000
    """A fuse, not flow control: senders keep what is unanswered, and queue what a full pipe refuses."""
    max_message_bytes: int = MAX_FRAME_BYTES
    heartbeat_interval_ms: int = 2_000
    heartbeat_timeout_ms: int = 6_000
    reconnect_ms: int = 5
    reconnect_max_ms: int = 200
    handshake_ms: int = 5_000
    backlog: int = 1_024


OPTIONS: Final = SocketOptions()

NETWORK_OPTIONS: Final = SocketOptions(reconnect_ms=100, reconnect_max_ms=5_000)
"""For clients on other hosts: each attempt costs the service a handshake."""


def make_context() -> zmq.Context[zmq.Socket[bytes]]:
    """One context per process, made after the fork that made the process."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
    # The default of a closing socket is to wait for ever for a peer that is gone. Not `context.linger = 0`: pyzmq then
    # looks for annotations of `typing.Generic`, CPython makes it some, and writes to every generic class there is
    # (0.5 MB that a forked process has to copy).
    context.setsockopt(zmq.LINGER, 0)
    return context


def make_router(
    context: zmq.Context[zmq.Socket[bytes]], *, path: str, listener_fd: int, options: SocketOptions = OPTIONS
) -> zmq.Socket[bytes]:
    """A ROUTER that accepts on a listening Unix socket which somebody else bound to `path` and keeps open."""
    socket = context.socket(zmq.ROUTER)
    _common(socket, options)
    # Without it a message to a peer that left or is full vanishes although the send succeeded.
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    # A peer that reconnects before its old connection was noticed dead replaces it, instead of being ignored.
    socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
    socket.setsockopt(zmq.BACKLOG, options.backlog)
    socket.setsockopt(zmq.USE_FD, listener_fd)
    socket.bind(f"ipc://{path}")
    return socket


def make_network_router(
    context: zmq.Context[zmq.Socket[bytes]],
    *,
    at: str,
    listener_fd: int,
    secret: bytes,
    domain: bytes,
    options: SocketOptions = OPTIONS,
) -> zmq.Socket[bytes]:
    """A ROUTER for other hosts on a listening TCP socket that was bound to `at`: encrypted, and by permission only.

    The process's ZAP handler says who may come in. Without one nobody may: encryption alone would let everybody in.
    """
    socket = context.socket(zmq.ROUTER)
    _common(socket, options)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
    # All of this has to be said before the bind: what is bound keeps the options it was bound with.
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
    socket.setsockopt(zmq.ZAP_DOMAIN, domain)
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
    socket.setsockopt(zmq.IPV6, 1)
    socket.setsockopt(zmq.USE_FD, listener_fd)
    socket.bind(at)
    return socket


@dataclass(frozen=True, slots=True)
class ClientCurve:
    """What a client needs to reach a service on another host. The secret does not show in its text."""

    server_key: bytes
    public: bytes
    secret: bytes = field(repr=False)


def make_network_dealer(
    context: zmq.Context[zmq.Socket[bytes]],
    *,
    identity: str,
    curve: ClientCurve,
    options: SocketOptions = NETWORK_OPTIONS,
) -> zmq.Socket[bytes]:
    """A DEALER for a service on another host; it talks to nobody but the owner of `curve.server_key`."""
    socket = make_dealer(context, path="", identity=identity, options=options)
    socket.setsockopt(zmq.CURVE_SERVERKEY, curve.server_key)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, curve.public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, curve.secret)
    socket.setsockopt(zmq.IPV6, 1)
    return socket


def make_dealer(
    context: zmq.Context[zmq.Socket[bytes]], *, path: str, identity: str, options: SocketOptions = OPTIONS
) -> zmq.Socket[bytes]:
    """A DEALER that connects to `path`, and again whenever the connection is lost."""
    socket = context.socket(zmq.DEALER)
    _common(socket, options)
    socket.setsockopt(zmq.ROUTING_ID, identity.encode())
    # Nothing is queued for a peer that is not there: the session repeats what matters.
    socket.setsockopt(zmq.IMMEDIATE, 1)
    socket.setsockopt(zmq.RECONNECT_IVL, options.reconnect_ms)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, options.reconnect_max_ms)
    return socket


def _common(socket: zmq.Socket[bytes], options: SocketOptions) -> None:
    socket.setsockopt(zmq.LINGER, options.linger_ms)
    socket.setsockopt(zmq.SNDHWM, options.high_water)
    socket.setsockopt(zmq.RCVHWM, options.high_water)
    socket.setsockopt(zmq.SNDTIMEO, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, options.max_message_bytes)
    socket.setsockopt(zmq.HANDSHAKE_IVL, options.handshake_ms)
    socket.setsockopt(zmq.HEARTBEAT_IVL, options.heartbeat_interval_ms)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, options.heartbeat_timeout_ms)
    socket.setsockopt(zmq.HEARTBEAT_TTL, options.heartbeat_timeout_ms)
