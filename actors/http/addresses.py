"""Where names lead: look them up, and race their addresses for the first that answers.

Look-ups run on the loop's own executor, which has two threads for the whole process; so one look-up of a name serves
everybody who asks meanwhile, and what it found serves for half a minute. Failures are not kept.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias, cast

_SockAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int]
Address: TypeAlias = tuple[int, int, int, str, _SockAddress]
"""As `socket.getaddrinfo` gives them."""
GetAddrInfo: TypeAlias = Callable[[str, int], list[Address]]

LOOKUP_KEPT_S: Final = 30.0
STAGGER_S: Final = 0.25
"""Between the starts of two attempts at different addresses of a name (RFC 8305)."""

KEEPALIVE_OPTIONS: Final = tuple(
    (getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
    if hasattr(socket, name)
)
"""A peer that vanished during a silent answer is noticed within two minutes."""


class _Kept(NamedTuple):
    addresses: list[Address]
    until: float


class Resolver:
    """Addresses of names; owned by one loop."""

    def __init__(self, getaddrinfo: GetAddrInfo | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._getaddrinfo = getaddrinfo or _getaddrinfo
        self._clock = clock
        self._kept: dict[tuple[str, int], _Kept] = {}
        self._running: dict[tuple[str, int], asyncio.Future[list[Address]]] = {}

    async def addresses(self, host: str, port: int) -> list[Address]:
        """Where `host` is to be found; never empty. Raises `OSError`."""
        literal = _literal(host, port)
        if literal is not None:
            return [literal]
        key = (host, port)
        kept = self._kept.get(key)
        if kept is not None and kept.until > self._clock():
            return kept.addresses
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = self._look_up(key)
        # Shielded: who gives up waiting takes nothing away from the others.
        return await asyncio.shield(running)

    def _look_up(self, key: tuple[str, int]) -> asyncio.Future[list[Address]]:
        loop = asyncio.get_running_loop()

        def keep(done: asyncio.Future[list[Address]]) -> None:
            self._running.pop(key, None)
            if not done.cancelled() and done.exception() is None:
                self._kept[key] = _Kept(done.result(), self._clock() + LOOKUP_KEPT_S)

        running = loop.run_in_executor(None, self._getaddrinfo, *key)
        running.add_done_callback(keep)
        return running


async def connected(addresses: list[Address]) -> socket.socket:
    """A socket connected to the first of the addresses that answers; they are tried a quarter of a second apart.

    Raises `OSError`. All other sockets are closed by then, also where it is cancelled.
    """
    sock = await (_connected_to(addresses[0]) if len(addresses) == 1 else _race(addresses))
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE_OPTIONS:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    return sock


async def _connected_to(address: Address) -> socket.socket:
    family, kind, protocol, _, where = address
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await _connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


async def _race(addresses: list[Address]) -> socket.socket:
    from aiohappyeyeballs import start_connection

    loop = cast(asyncio.AbstractEventLoop, _Connecting(asyncio.get_running_loop()))
    return await start_connection(addresses, happy_eyeballs_delay=STAGGER_S, interleave=1, loop=loop)


class _Connecting:
    """A loop that connects sockets without looking their addresses up: libuv's starts four threads for that."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __getattr__(self, name: str) -> object:
        return getattr(self._loop, name)

    async def sock_connect(self, sock: socket.socket, address: _SockAddress) -> None:
        """See `asyncio.AbstractEventLoop.sock_connect`."""
        await _connect(sock, address)


async def _connect(sock: socket.socket, address: _SockAddress) -> None:
    loop = asyncio.get_running_loop()
    number = sock.connect_ex(address)
    if number == errno.EINPROGRESS:
        is_over = asyncio.Event()
        loop.add_writer(sock, is_over.set)
        try:
            await is_over.wait()
        finally:
            loop.remove_writer(sock)
        number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if number:
        raise OSError(number, f"{os.strerror(number)}, at {address[0]} port {address[1]}")


def _getaddrinfo(host: str, port: int) -> list[Address]:
    found: list[Address] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)  # type: ignore[assignment]
    return found


def _literal(host: str, port: int) -> Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.version == 4:
        return (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))
    return (socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port, 0, 0))
