"""The gate: the end of a service that other hosts connect to, beside its hub for this host.

It is a hub of its own, on a socket of its own, so a stranger can neither take the place of a process of this host nor
be taken for one. Who comes in is somebody whose key is in the allow-list, and is called by the name of that key; what
they say of themselves is rewritten so that nobody asks this host's kernel about them.

A key that is revoked is refused from the next handshake on. Those that are in already are cut off within `LOOK_S`:
the socket is closed and opened anew, and whoever is still allowed is back at once, with nothing lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec
import zmq

from ..protocol import frames
from ..protocol.errors import CoveyError, ProtocolError
from ..protocol.peer import REMOTE, Owner, Peer
from ..storage.logs import log_event
from .hub import Hub
from .keys import KeyRing
from .network import SUFFIX, NetworkAddress
from .pump import NOBLOCK
from .sockets import make_network_router
from .zap import DOMAIN, Zap

log = logging.getLogger(__name__)

LOOK_S: Final = 0.5

Context = zmq.Context[zmq.Socket[bytes]]
OpenHub = Callable[[zmq.Socket[bytes]], Hub]
"""Makes the service's hub on the socket it is given."""


class Gate:
    """Lets clients of other hosts in to one service. Owned by the loop thread."""

    def __init__(self, context: Context, *, at: str, listener_fd: int, keys: KeyRing, open_hub: OpenHub) -> None:
        self._context = context
        self._at = at
        self._listener_fd = listener_fd
        self._keys = keys
        self._open_hub = open_hub
        self._loop = asyncio.get_running_loop()
        self._secret = keys.server().secret
        self._version = keys.version()
        self._allowed = keys.allowed()
        if not self._allowed:
            log_event(log, "nobody_is_allowed", level=logging.WARNING, at=at)
        # Before anything is bound: it answers for whoever comes first.
        self.zap = Zap(context, self._judge)
        self._hub = self._open()
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def peers(self) -> list[Peer]:
        """Everybody with an open session."""
        return self._hub.peers()

    def close(self) -> None:
        """Let nobody in any more, and serve nobody. Idempotent."""
        self._timer.cancel()
        self._hub.close()
        self.zap.close()

    # --- inside --------------------------------------------------------------------------------------------------

    def _open(self) -> Hub:
        socket = make_network_router(
            self._context, at=self._at, listener_fd=os.dup(self._listener_fd), secret=self._secret, domain=DOMAIN
        )
        # A hub needs no more of a socket than this one has.
        return self._open_hub(cast("zmq.Socket[bytes]", _Porter(socket)))

    def _judge(self, key: bytes) -> str | None:
        self._read()
        return self._allowed.get(key)

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._look)
        self._read()

    def _read(self) -> None:
        """Take over the allow-list if it has changed. One that cannot be trusted allows nobody."""
        version = self._keys.version()
        if version == self._version:
            return
        self._version = version
        try:
            allowed = self._keys.allowed()
        except CoveyError as error:
            log_event(log, "allow_list_refused", level=logging.ERROR, error=str(error))
            allowed = {}
        gone = sorted(name for key, name in self._allowed.items() if allowed.get(key) != name)
        self._allowed = allowed
        if gone:
            log_event(log, "keys_revoked", names=gone)
            # Not from here: this may be the handshake of a socket that would be closed under it.
            self._loop.call_soon(self._reopen)

    def _reopen(self) -> None:
        if not self._timer.cancelled():
            self._hub.close()
            self._hub = self._open()


def open_gate(
    context: Context,
    service: str,
    fds: Mapping[str, int],
    *,
    listen: str | None,
    keys: KeyRing,
    open_hub: OpenHub,
) -> Gate | None:
    """The gate of a service that was given a network socket (`network.SUFFIX`), or None."""
    fd = fds.get(f"{service}{SUFFIX}")
    if fd is None or listen is None:
        return None
    return Gate(context, at=NetworkAddress.parse(listen).of(service), listener_fd=fd, keys=keys, open_hub=open_hub)


class _Porter:
    """A ROUTER whose peers are introduced by the name of their key, and not as they would like."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        self._data: bytes | None = None

    @property
    def closed(self) -> bool:
        return self._socket.closed

    def recv(self, flags: int = 0) -> bytes:
        """The identity of a peer, and next time what it says."""
        if self._data is not None:
            data, self._data = self._data, None
            return data
        while True:
            parts = self._socket.recv_multipart(flags | NOBLOCK, copy=False)
            if len(parts) == 2:
                self._data = _introduce(parts[1])
                return parts[0].bytes

    def send(self, data: bytes, flags: int = 0) -> Any:
        return self._socket.send(data, flags)

    def getsockopt(self, option: int) -> Any:
        return self._socket.getsockopt(option)

    def close(self, linger: int | None = None) -> None:
        self._socket.close(linger)


def _introduce(message: zmq.Frame) -> bytes:
    """What the peer says; in a hello, wherever it stands, who it is according to its key."""
    data = message.bytes
    try:
        said = [frames.decode_frame(frame) for frame in frames.unbundle(data)]
    except ProtocolError:
        # The hub refuses it as well, but maybe not the first part of it.
        return b""
    if not any(isinstance(frame, frames.Hello) for frame in said):
        return data
    key = str(message["User-Id"])
    return frames.bundle([frames.encode(_renamed(frame, key)) for frame in said])


def _renamed(frame: frames.Frame, key: str) -> frames.Frame:
    if not isinstance(frame, frames.Hello):
        return frame
    return msgspec.structs.replace(frame, peer=remote_peer(frame.peer, key))


def remote_peer(said: Peer, key: str) -> Peer:
    """Who this is, by the name of its key: a client, and nobody of this host."""
    owner = Owner(pid=said.owner.pid, start_ticks=said.owner.start_ticks, boot_id=f"{REMOTE}{key}:{said.owner.boot_id}")
    return Peer(role="client", name=f"{said.name}@{key}", incarnation=said.incarnation, owner=owner)
