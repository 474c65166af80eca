"""Where the fleet can be reached from other hosts: one TCP port for each service, one after the other.

The listening sockets are bound by the root and handed down, as those of this host are: what comes while a service is
being replaced waits for its successor. What protects them is in `gate`.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from typing import Final

from ..protocol.errors import CoveyError, UsageError
from .home import SOCKET_NAMES
from .listeners import BACKLOG

_ADDRESS: Final = re.compile(r"tcp://(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[1-9][0-9]{0,4})")

SUFFIX: Final = ".tcp"
"""Ends the name of a service's network socket among what is handed down to it."""

LAST_PORT: Final = 65_535 - len(SOCKET_NAMES) + 1

VALID: Final = "tcp://HOST:PORT, such as tcp://192.0.2.7:7411; the two ports after it are used as well"


class CannotListen(CoveyError):
    """A port cannot be had on this host; the fleet did not start."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(f"cannot listen at {address}: {why}")
        self.address, self.why = address, why


@dataclass(frozen=True, slots=True)
class NetworkAddress:
    """The address of a whole fleet: its first port is the root's."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> NetworkAddress:
        """Read `tcp://HOST:PORT`; raises `UsageError`."""
        problem = problem_with(text)
        if problem is not None:
            raise UsageError(f"{problem}; valid: {VALID}")
        found = _ADDRESS.fullmatch(text)
        assert found is not None, "it was looked at"
        return cls(found["host"].strip("[]"), int(found["port"]))

    def of(self, service: str) -> str:
        """The address of one service."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port_of(service)}"

    def port_of(self, service: str) -> int:
        """The port of one service."""
        return self.port + SOCKET_NAMES.index(service)


class NetworkListener:
    """A listening TCP socket. Owned by the root; close-on-exec."""

    def __init__(self, address: str, sock: socket.socket) -> None:
        self.address = address
        self._sock = sock

    def fileno(self) -> int:
        """The descriptor, to be handed down; it stays ours."""
        return self._sock.fileno()

    def remove(self) -> None:
        """Stop listening. Copies elsewhere go on."""
        self._sock.close()


def problem_with(text: str) -> str | None:
    """Say why `text` is no address of a fleet; None if it is one."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        return f"{text[:100]!r} is no address"
    if int(found["port"]) > LAST_PORT:
        return f"port {found['port']} is too high: {len(SOCKET_NAMES)} ports are needed"
    return None


def listen_at(address: NetworkAddress) -> dict[str, NetworkListener]:
    """Listen for every service, or for none: raises `CannotListen`. The names end with `SUFFIX`."""
    made: dict[str, NetworkListener] = {}
    try:
        for service in SOCKET_NAMES:
            made[f"{service}{SUFFIX}"] = _listen(address.of(service), address.host, address.port_of(service))
    except BaseException:
        for listener in made.values():
            listener.remove()
        raise
    return made


def _listen(address: str, host: str, port: int) -> NetworkListener:
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(where)
            sock.listen(BACKLOG)
            # While a service is being replaced two processes accept here: the slower one must not block in accept.
            sock.setblocking(False)
        except BaseException:
            sock.close()
            raise
    except OSError as error:
        raise CannotListen(address, error.strerror or str(error)) from None
    return NetworkListener(address, sock)
