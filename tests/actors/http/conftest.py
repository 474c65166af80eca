"""What the tests of the transport stand on: both event loops, and real servers and proxies that do as they are told."""

from __future__ import annotations

import asyncio
import inspect
import os
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def new_loop(request: pytest.FixtureRequest) -> Any:
    """What makes the loop of an async test; None for the others."""
    return getattr(request, "param", None)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Have async tests run on both loops."""
    if inspect.iscoroutinefunction(metafunc.function):
        loops = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
        metafunc.parametrize("new_loop", loops.values(), ids=loops.keys(), indirect=True)


# --- a server --------------------------------------------------------------------------------------------------------


@dataclass
class Listener:
    """A server on 127.0.0.1 and what it has seen."""

    port: int = 0
    scheme: str = "http"
    opened: int = 0
    closed: int = 0
    requests: list[bytes] = field(default_factory=list)
    """Head and body of each."""

    @property
    def open(self) -> int:
        return self.opened - self.closed

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/v1"


@asynccontextmanager
async def _listening(handler: Handler, context: ssl.SSLContext | None = None) -> AsyncIterator[Listener]:
    listener = Listener(scheme="https" if context else "http")
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        listener.opened += 1
        try:
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # cancelled only by us, below
        finally:
            listener.closed += 1
            tasks.discard(task)
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    listener.port = server.sockets[0].getsockname()[1]
    try:
        yield listener
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """One request with its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    body = b""
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length":
            body = await reader.readexactly(int(value))
        if name == b"transfer-encoding":
            while not body.endswith(b"0\r\n\r\n"):
                body += await reader.readuntil(b"\r\n")
    return head + body


@asynccontextmanager
async def _answering(*answers: bytes, context: ssl.SSLContext | None = None) -> AsyncIterator[Listener]:
    """Answers request after request, over all connections, with the next answer; the last one again and again.

    An answer that ends with CLOSE is followed by the end of the connection.
    """
    queue = list(answers)
    seen: list[Listener] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            seen[0].requests.append(await read_request(reader))
            answer = queue.pop(0) if len(queue) > 1 else queue[0]
            writer.write(answer.removesuffix(b"CLOSE"))
            await writer.drain()
            if answer.endswith(b"CLOSE"):
                writer.close()
                return

    async with _listening(handler, context) as listener:
        seen.append(listener)
        yield listener


class Http:
    """Answers as bytes."""

    @staticmethod
    def sized(body: bytes = b"ok", *, status: int = 200, headers: bytes = b"") -> bytes:
        return b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n%s\r\n%s" % (status, len(body), headers, body)

    @staticmethod
    def chunked(*pieces: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
        body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + body + end

    listening = staticmethod(_listening)
    answering = staticmethod(_answering)
    read_request = staticmethod(read_request)


@pytest.fixture
def http() -> type[Http]:
    return Http


@pytest.fixture
def socket_count() -> Callable[[], int]:
    """Sockets this process has open."""
    return _sockets


def _sockets() -> int:
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
    return count


# --- certificates ----------------------------------------------------------------------------------------------------


@dataclass
class Certificates:
    """A private authority, a server's certificate and a client's."""

    authority: trustme.CA
    folder: Path

    @property
    def bundle(self) -> str:
        path = self.folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(path))
        return str(path)

    def server(self, *, wants_client: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["h2", "http/1.1"])
        self.authority.issue_cert("127.0.0.1", "localhost", "provider.test").configure_cert(context)
        if wants_client:
            context.verify_mode = ssl.CERT_REQUIRED
            self.authority.configure_trust(context)
        return context

    def client(self) -> tuple[str, str]:
        """Paths of a certificate and of its key."""
        issued = self.authority.issue_cert("worker@provider.test")
        cert, key = self.folder / "client.pem", self.folder / "client.key"
        issued.cert_chain_pems[0].write_to_path(str(cert))
        issued.private_key_pem.write_to_path(str(key))
        return str(cert), str(key)


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def certificates(authority: trustme.CA, tmp_path: Path) -> Certificates:
    return Certificates(authority, tmp_path)


# --- proxies ---------------------------------------------------------------------------------------------------------


@dataclass
class LocalProxy:
    """A proxy that knows some names: whatever it is asked for, it connects to `to`; what it was told is kept."""

    to: int = 0
    says: bytes | None = None
    """Sent instead of connecting."""
    hangs: bool = False
    asked: list[bytes] = field(default_factory=list)

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """An HTTP proxy: CONNECT, and whole URLs."""
        head = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(head)
        if self.hangs:
            await reader.read()
            return
        if self.says is not None:
            writer.write(self.says)
            await writer.drain()
            await reader.read()
            return
        if head.startswith(b"CONNECT "):
            writer.write(b"HTTP/1.1 200 Connection established\r\nvia: test\r\n\r\n")
            await self._splice(reader, writer, b"")
        else:
            await self._splice(reader, writer, head)

    async def socks5(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        if self.hangs:
            await reader.read()
            return
        wants_password = 2 in methods
        writer.write(b"\x05\x02" if wants_password else b"\x05\x00")
        if wants_password:
            _, length = await reader.readexactly(2)
            user = await reader.readexactly(length)
            (length,) = await reader.readexactly(1)
            self.asked.append(user + b":" + await reader.readexactly(length))
            writer.write(b"\x01\x00")
        _, _, _, kind = await reader.readexactly(4)
        length = {1: 4, 4: 16}.get(kind) or (await reader.readexactly(1))[0]
        host = await reader.readexactly(length)
        self.asked.append(bytes([kind]) + host)
        await reader.readexactly(2)
        if self.says is not None:
            writer.write(self.says)
            await writer.drain()
            return
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        await self._splice(reader, writer, b"")

    async def socks4(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, _, _port, address = struct.unpack(">BBH4s", await reader.readexactly(8))
        await reader.readuntil(b"\0")
        if address[:3] == bytes(3) and address[3]:
            address = (await reader.readuntil(b"\0"))[:-1]
        self.asked.append(address)
        writer.write(b"\x00\x5a" + bytes(6))
        await self._splice(reader, writer, b"")

    async def _splice(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bytes) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.to)
        far_writer.write(first)

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError):
                while data := await source.read(65_536):
                    sink.write(data)
                    await sink.drain()
            sink.transport.abort()

        try:
            await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))
        finally:
            far_writer.transport.abort()
            with suppress(OSError):
                await far_writer.wait_closed()


@pytest.fixture
def local_proxy() -> type[LocalProxy]:
    return LocalProxy
