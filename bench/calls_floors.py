"""The calls benchmark's floors: aiohttp as it is, and a bare protocol; both with a reader for just this one answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, cast

import msgspec

from .calls_answer import HURRIED, QUESTION, LeastReader
from .calls_meter import Call

_HEADERS: Final = {"content-type": "application/json", "accept": "text/event-stream, application/json"}


def body(model: str) -> bytes:
    """A request of about the size that covey sends."""
    return msgspec.json.encode(
        {
            "model": model,
            "messages": [{"role": "user", "content": QUESTION}],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )


@asynccontextmanager
async def aiohttp_calls(base_url: str) -> AsyncIterator[Call]:
    """A call through aiohttp: one session for all, without its bound of 100 connections."""
    import aiohttp

    bodies, url = {model: body(model) for model in ("sim-1", HURRIED)}, f"{base_url}/chat/completions"

    async def call(model: str, lane: int) -> None:
        reader = LeastReader()
        async with session.post(url, data=bodies[model], headers=_HEADERS) as answer:
            async for data in answer.content.iter_any():
                reader.feed(data)
        reader.check()

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        yield call


@asynccontextmanager
async def bare_calls(base_url: str) -> AsyncIterator[Call]:
    """A call over a bare protocol: each connection knows its one request by heart, and is kept."""
    loop = asyncio.get_running_loop()
    host, port = base_url.removeprefix("http://").partition("/")[0].split(":")
    head = "".join(f"{name}: {value}\r\n" for name, value in _HEADERS.items())
    requests = {
        model: f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}:{port}\r\n{head}"
        f"content-length: {len(body(model))}\r\n\r\n".encode()
        + body(model)
        for model in ("sim-1", HURRIED)
    }
    idle: list[_Bare] = []

    async def call(model: str, lane: int) -> None:
        connection = idle.pop() if idle else (await loop.create_connection(_Bare, host, int(port)))[1]
        await connection.ask(requests[model])
        idle.append(connection)

    try:
        yield call
    finally:
        for connection in idle:
            connection.close()


class _Bare(asyncio.Protocol):
    """One connection. Owned by the loop thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[None] = self._loop.create_future()
        self._rest, self._is_in_head, self._reader = b"", True, LeastReader()

    def ask(self, request: bytes) -> asyncio.Future[None]:
        self._rest, self._is_in_head, self._reader = b"", True, LeastReader()
        self._end = self._loop.create_future()
        self._transport.write(request)
        return self._end

    def close(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        data, at = self._rest + data, 0
        if self._is_in_head:
            at = data.find(b"\r\n\r\n") + 4
            if at < 4:
                self._rest = data
                return
            self._is_in_head = False
        while (line := data.find(b"\r\n", at)) >= 0:
            size = int(data[at:line], 16)
            if len(data) < line + size + 4:
                break
            if size == 0:
                self._reader.check()
                self._end.set_result(None)
                return
            self._reader.feed(data[line + 2 : line + 2 + size])
            at = line + size + 4
        self._rest = data[at:]

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._end.done():
            self._end.set_exception(exc or ConnectionResetError("the provider went"))
