"""The transport against real servers: what is kept, what is closed, what is sent again, and what each failure is."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest

from covey.actors.http.answer import Answer
from covey.actors.http.clients import open_transport
from covey.actors.http.connection import Connection
from covey.actors.http.tls import TlsSettings
from covey.actors.http.transport import MET_S, PoolTransport

BIG = b"x" * 8_000_000
"""More than the kernel's buffers of both sides take together."""


@asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[PoolTransport]:
    transport = open_transport(tls=TlsSettings(), proxy="direct", **options)
    try:
        yield transport
    finally:
        await transport.aclose()


def post(url: str, content: Any = b"{}", **extensions: Any) -> httpx.Request:
    return httpx.Request("POST", url, content=content, extensions=extensions)


async def body_of(response: httpx.Response) -> bytes:
    try:
        return b"".join([piece async for piece in response.aiter_raw()])
    finally:
        await response.aclose()


async def ask(transport: PoolTransport, url: str, content: Any = b"{}", **extensions: Any) -> bytes:
    return await body_of(await transport.handle_async_request(post(url, content, **extensions)))


def counts(transport: PoolTransport) -> tuple[int, int]:
    """Connections that are open, and those of them that are free."""
    assert transport.pool is not None
    return transport.pool.open_count, transport.pool.free_count


# --- kept or closed --------------------------------------------------------------------------------------------------


async def test_answers_that_were_read_leave_one_connection(http: Any) -> None:
    async with http.answering(http.sized(), http.chunked(b"a", b"b"), http.sized(b"")) as server, opened() as transport:
        got = [await ask(transport, server.url) for _ in range(5)]

        assert got == [b"ok", b"ab", b"", b"", b""]
        assert server.opened == 1
        assert counts(transport) == (1, 1)


async def test_the_server_sees_the_request_as_it_was_built(http: Any) -> None:
    async with http.answering(http.sized()) as server, opened() as transport:
        request = httpx.Request("POST", server.url + "/a%20b?c=d#e", headers={"X-Key": "v"}, content=b"body")
        await body_of(await transport.handle_async_request(request))

        head, _, body = server.requests[0].partition(b"\r\n\r\n")
        assert head.split(b"\r\n") == [
            b"POST /v1/a%20b?c=d HTTP/1.1",
            b"Host: 127.0.0.1:%d" % server.port,
            b"X-Key: v",
            b"Content-Length: 4",
        ]
        assert body == b"body"


async def test_an_answer_closed_at_its_end_keeps_the_connection(http: Any) -> None:
    """As a reader of events does it that stops at the last one: the bytes behind it have come already."""
    async with http.answering(http.chunked(b"data: [DONE]\n\n")) as server, opened() as transport:
        for _ in range(2):
            response = await transport.handle_async_request(post(server.url))
            await anext(response.aiter_raw())
            await response.aclose()

        assert server.opened == 1


async def test_an_answer_closed_before_its_end_closes_the_connection(http: Any, until: Callable[..., Any]) -> None:
    async with http.answering(http.chunked(b"first", end=b"")) as server, opened() as transport:
        response = await transport.handle_async_request(post(server.url))
        await anext(response.aiter_raw())
        await response.aclose()

        assert counts(transport) == (0, 0)
        await until(lambda: server.open == 0)


async def test_the_socket_is_gone_when_closing_an_answer_returns(http: Any, socket_count: Callable[[], int]) -> None:
    async with http.answering(http.chunked(b"first", end=b"")) as server, opened() as transport:
        response = await transport.handle_async_request(post(server.url))
        before = socket_count()
        await response.aclose()

        assert socket_count() == before - 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok", id="says close"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nokCLOSE", id="ends with its connection"),
        pytest.param(b"HTTP/1.1 200 OK\r\nkeep-alive: timeout=0\r\ncontent-length: 2\r\n\r\nok", id="kept for no time"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok and more", id="bytes behind it"),
    ],
)
async def test_a_connection_that_is_of_no_more_use_is_closed(answer: bytes, http: Any) -> None:
    async with http.answering(answer) as server, opened() as transport:
        assert [await ask(transport, server.url) for _ in range(2)] == [b"ok", b"ok"]

        assert server.opened == 2
        assert counts(transport) == (0, 0)


async def test_a_free_connection_the_server_closes_is_dropped_at_once(http: Any, until: Callable[..., Any]) -> None:
    hang_up = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await http.read_request(reader)
        writer.write(http.sized())
        await hang_up.wait()

    async with http.listening(handler) as server, opened() as transport:
        await ask(transport, server.url)
        assert counts(transport) == (1, 1)

        hang_up.set()
        await until(lambda: counts(transport) == (0, 0), within_s=2.0)


async def test_a_free_connection_that_talks_is_dropped(http: Any, until: Callable[..., Any]) -> None:
    talk = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await http.read_request(reader)
        writer.write(http.sized())
        await talk.wait()
        writer.write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        await reader.read()

    async with http.listening(handler) as server, opened() as transport:
        await ask(transport, server.url)

        talk.set()
        await until(lambda: counts(transport) == (0, 0), within_s=2.0)


async def test_refusals_leak_no_connection(
    http: Any, socket_count: Callable[[], int], until: Callable[..., Any]
) -> None:
    """400 after 400, and a storm of 429s from many at once; half of them never look at the body."""
    refusals = (http.sized(b"{}", status=400), http.sized(b"{}", status=429, headers=b"retry-after: 1\r\n"))
    async with http.answering(*refusals * 50, http.sized(b"{}", status=429)) as server, opened() as transport:
        await ask(transport, server.url)
        before = socket_count()

        async def refused(reads: bool) -> None:
            response = await transport.handle_async_request(post(server.url))
            assert response.status_code in (400, 429)
            if reads:
                await response.aread()
            await response.aclose()

        for number in range(100):
            await refused(number % 2 == 0)
        assert socket_count() == before
        assert server.opened == 1

        await asyncio.gather(*(refused(number % 2 == 0) for number in range(100)))
        open_, free = counts(transport)
        assert open_ == free
        await transport.aclose()
        await until(lambda: socket_count() == before - 2)


async def test_a_refusal_whose_body_hangs_is_closed(http: Any, until: Callable[..., Any]) -> None:
    hanging = b"HTTP/1.1 429 X\r\ncontent-length: 100\r\n\r\n{"
    async with http.answering(hanging) as server, opened() as transport:
        response = await transport.handle_async_request(post(server.url))
        await response.aclose()

        assert counts(transport) == (0, 0)
        await until(lambda: server.open == 0)


# --- sent again ------------------------------------------------------------------------------------------------------


async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, http: Any) -> None:
    """Answers, promises to keep the connection, and closes it in the face of the next request."""
    await http.read_request(reader)
    writer.write(http.sized())
    await reader.read(1)


async def test_a_request_that_met_the_end_of_a_kept_connection_goes_out_again(http: Any) -> None:
    async with (
        http.listening(lambda reader, writer: hangs_up(reader, writer, http)) as server,
        opened() as transport,
    ):
        sent: list[None] = []
        got = [await ask(transport, server.url, on_sent=lambda: sent.append(None)) for _ in range(4)]

        assert got == [b"ok"] * 4
        assert server.opened == 4
        assert len(sent) == 4


async def test_a_request_gets_a_connection_of_its_own_after_some_kept_ones(http: Any) -> None:
    gate = asyncio.Event()
    together = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal together
        await http.read_request(reader)
        together += 1
        if together == 6:
            gate.set()
        await gate.wait()
        writer.write(http.sized())
        await reader.read(1)

    async with http.listening(handler) as server, opened() as transport:
        await asyncio.gather(*(ask(transport, server.url) for _ in range(6)))
        assert counts(transport) == (6, 6)

        assert await ask(transport, server.url) == b"ok"
        assert server.opened == 7
        assert counts(transport) == (5, 5)


async def test_a_request_whose_answer_had_begun_is_not_sent_again(http: Any) -> None:
    async with http.answering(http.sized(), b"HTTP/1.1 200CLOSE") as server, opened() as transport:
        await ask(transport, server.url)
        with pytest.raises(httpx.RemoteProtocolError, match="within its answer"):
            await ask(transport, server.url)

        assert len(server.requests) == 2


async def test_a_request_that_was_out_for_longer_than_a_close_takes_to_come_is_not_sent_again(http: Any) -> None:
    """The server may have read it and worked on it: whoever keeps the account is to know of two calls."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await http.read_request(reader)
        writer.write(http.sized())
        server.requests.append(await http.read_request(reader))
        await asyncio.sleep(1.1 * MET_S)

    async with http.listening(handler) as server, opened() as transport:
        await ask(transport, server.url)
        with pytest.raises(httpx.RemoteProtocolError, match="without an answer"):
            await ask(transport, server.url)

        assert (len(server.requests), server.opened) == (1, 1)


async def test_a_fresh_connection_that_is_closed_is_the_server_s_failure(http: Any) -> None:
    async with http.answering(b"CLOSE") as server, opened() as transport:
        with pytest.raises(httpx.RemoteProtocolError, match="without an answer"):
            await ask(transport, server.url)

        assert len(server.requests) == 1
        assert counts(transport) == (0, 0)


async def test_a_body_that_is_made_as_it_goes_is_not_sent_again(http: Any) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"{}"

    async with (
        http.listening(lambda reader, writer: hangs_up(reader, writer, http)) as server,
        opened() as transport,
    ):
        assert await ask(transport, server.url, pieces()) == b"ok"
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            await ask(transport, server.url, pieces())


# --- failures --------------------------------------------------------------------------------------------------------


async def test_nobody_listens(socket_count: Callable[[], int]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    before = socket_count()
    async with opened() as transport:
        sent: list[None] = []
        with pytest.raises(httpx.ConnectError, match=f"127.0.0.1:{port}") as caught:
            await ask(transport, f"http://127.0.0.1:{port}/", on_sent=lambda: sent.append(None))

        assert isinstance(caught.value.__cause__, ConnectionRefusedError)
        assert sent == []
        assert counts(transport) == (0, 0)
        assert socket_count() == before


async def test_a_server_that_does_not_take_connections_times_out(until: Callable[..., Any]) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = []
        for _ in range(3):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
            fillers.append(filler)
        try:
            async with opened() as transport:
                with pytest.raises(httpx.ConnectTimeout, match=r"within 0\.1 s"):
                    await ask(transport, f"http://127.0.0.1:{full.getsockname()[1]}/", timeout={"connect": 0.1})

                assert counts(transport) == (0, 0)
        finally:
            for filler in fillers:
                filler.close()


async def test_a_silent_server_times_out_before_its_head_and_in_its_body(http: Any, until: Callable[..., Any]) -> None:
    silent = {"read": 0.05}
    async with (
        http.answering(b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf") as server,
        opened() as transport,
    ):
        with pytest.raises(httpx.ReadTimeout):
            await ask(transport, server.url, timeout=silent)
        with pytest.raises(httpx.ReadTimeout):
            await ask(transport, server.url, timeout=silent)

        assert counts(transport) == (0, 0)
        await until(lambda: server.open == 0)


async def test_a_server_that_reads_nothing_does_not_hold_us(http: Any, until: Callable[..., Any]) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    async with http.listening(handler) as server, opened() as transport:
        with pytest.raises(httpx.WriteTimeout, match="took nothing"):
            await ask(transport, server.url, BIG, timeout={"write": 0.1})

        assert counts(transport) == (0, 0)


async def test_a_slow_reader_has_the_time_it_needs(http: Any) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        left = len(body)
        while left:
            left -= len(await reader.read(400_000))
            await asyncio.sleep(0.005)
        writer.write(http.sized())

    body = 3 * BIG
    async with http.listening(handler) as server, opened() as transport:
        assert await ask(transport, server.url, body, timeout={"write": 0.25}) == b"ok"


async def test_an_answer_before_the_request_was_read_is_taken(http: Any) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(http.sized(b"too large", status=413))
        await asyncio.Event().wait()

    async with http.listening(handler) as server, opened() as transport:
        response = await transport.handle_async_request(post(server.url, BIG))

        assert response.status_code == 413
        assert await body_of(response) == b"too large"
        assert counts(transport) == (0, 0)


async def test_a_server_that_is_done_before_it_has_read_all_leaves_no_socket(
    http: Any, socket_count: Callable[[], int]
) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"HTTP/1.1 413 X\r\n\r\ntoo large")
        writer.write_eof()
        await asyncio.Event().wait()

    async with http.listening(handler) as server, opened() as transport:
        before = socket_count()
        assert await ask(transport, server.url, BIG) == b"too large"
        await asyncio.sleep(0)

        assert counts(transport) == (0, 0)
        assert socket_count() == before + 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalfCLOSE", id="length"),
        pytest.param(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\nCLOSE", id="chunks"),
    ],
)
async def test_a_body_that_is_cut_is_no_whole_one(answer: bytes, http: Any) -> None:
    async with http.answering(answer) as server, opened() as transport:
        response = await transport.handle_async_request(post(server.url))
        pieces = response.aiter_raw()
        assert await anext(pieces) == b"half"
        with pytest.raises(httpx.RemoteProtocolError):
            await anext(pieces)
        await response.aclose()

        assert counts(transport) == (0, 0)


async def test_garbage_is_the_server_s_failure(http: Any) -> None:
    async with http.answering(b"220 smtp.example ESMTP\r\n") as server, opened() as transport:
        with pytest.raises(httpx.RemoteProtocolError, match="not HTTP"):
            await ask(transport, server.url)

        assert counts(transport) == (0, 0)


async def test_a_line_break_in_a_header_is_refused_without_its_value(http: Any) -> None:
    async with opened() as transport:
        request = httpx.Request("POST", "http://127.0.0.1:1/", headers={"authorization": "Bearer secret\r\nx: y"})
        with pytest.raises(httpx.LocalProtocolError, match="authorization") as caught:
            await transport.handle_async_request(request)

        assert "secret" not in str(caught.value)
        assert counts(transport) == (0, 0)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "/v1/chat", "unix:///run/x"])
async def test_a_url_that_is_not_http_is_refused(url: str) -> None:
    async with opened() as transport:
        with pytest.raises(httpx.UnsupportedProtocol):
            await transport.handle_async_request(httpx.Request("GET", url))


# --- bodies ----------------------------------------------------------------------------------------------------------


async def test_a_request_can_be_made_as_it_goes(http: Any) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"one", b"", b"two"):
            yield piece

    async with http.answering(http.sized()) as server, opened() as transport:
        assert [await ask(transport, server.url, pieces()) for _ in range(2)] == [b"ok"] * 2

        assert server.requests[0].endswith(b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")
        assert server.opened == 1


async def test_who_does_not_read_makes_the_server_wait(http: Any) -> None:
    taken = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        await http.read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (50 * 1_000_000))
        for _ in range(50):
            writer.write(bytes(1_000_000))
            await writer.drain()
            taken += 1
        await reader.read()

    async with http.listening(handler) as server, opened() as transport:
        response = await transport.handle_async_request(post(server.url))
        stalled = -1
        while stalled != taken:
            stalled = taken
            await asyncio.sleep(0.1)
        assert taken < 40

        assert len(await body_of(response)) == 50 * 1_000_000
        assert counts(transport) == (1, 1)


async def test_head_and_bodiless_answers_keep_the_connection(http: Any) -> None:
    answers = (
        b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 X\r\ncontent-length: 500\r\n\r\n",
    )
    async with http.answering(*answers) as server, opened() as transport:
        for method, status in (("HEAD", 200), ("GET", 204), ("GET", 304)):
            response = await transport.handle_async_request(httpx.Request(method, server.url))
            assert response.status_code == status
            assert await body_of(response) == b""

        assert server.opened == 1


async def test_a_compressed_answer_is_httpx_s_to_read(http: Any) -> None:
    import gzip

    packed = gzip.compress(b"hello")
    async with (
        http.answering(http.sized(packed, headers=b"content-encoding: gzip\r\n")) as server,
        opened() as transport,
        httpx.AsyncClient(transport=transport) as client,
    ):
        assert (await client.get(server.url)).content == b"hello"


# --- bounds ----------------------------------------------------------------------------------------------------------


async def test_who_waits_for_a_connection_gets_one_in_the_order_they_came(http: Any) -> None:
    async with http.answering(http.sized()) as server, opened(max_connections=1) as transport:
        first = await transport.handle_async_request(httpx.Request("POST", server.url, content=b"x"))
        order: list[int] = []

        async def wait(number: int) -> None:
            await ask(transport, server.url, b"%d" % number)
            order.append(number)

        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(wait(number))
                await asyncio.sleep(0)
            await first.aclose()

        assert order == [0, 1, 2, 3, 4]
        assert server.opened == 1


async def test_nobody_frees_a_connection_in_time(http: Any) -> None:
    async with http.answering(http.chunked(b"x", end=b"")) as server, opened(max_connections=1) as transport:
        sent: list[None] = []
        held = await transport.handle_async_request(post(server.url))
        with pytest.raises(httpx.PoolTimeout, match="1 at most"):
            await ask(transport, server.url, timeout={"pool": 0.05}, on_sent=lambda: sent.append(None))
        await held.aclose()

        assert sent == []
        assert transport.pool is not None
        assert transport.pool.waiting_count == 0
        assert counts(transport) == (0, 0)


async def test_a_free_connection_elsewhere_makes_room(http: Any) -> None:
    async with (
        http.answering(http.sized()) as one,
        http.answering(http.sized()) as other,
        opened(max_connections=1) as transport,
    ):
        got = [await ask(transport, server.url) for server in (one, other, one)]

        assert got == [b"ok"] * 3
        assert counts(transport) == (1, 1)


# --- cancellation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_connections", [None, 1])
@pytest.mark.parametrize("content", [b"{}", BIG], ids=["small", "large"])
async def test_a_cancel_at_any_point_leaks_nothing(
    max_connections: int | None,
    content: bytes,
    http: Any,
    until: Callable[..., Any],
    socket_count: Callable[[], int],
) -> None:
    """Cancelled in the n-th turn of the loop, for n = 1, 2, …, until a call gets through."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await http.read_request(reader)
            for piece in (
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
                b"1\r\na\r\n",
                b"1\r\nb\r\n",
                b"0\r\n\r\n",
            ):
                writer.write(piece)
                await asyncio.sleep(0)

    async with http.listening(handler) as server, opened(max_connections=max_connections) as transport:
        before = socket_count()
        cancelled = 0
        while True:
            call = asyncio.create_task(ask(transport, server.url, content))
            for _ in range(cancelled):
                await asyncio.sleep(0)
            call.cancel()
            try:
                assert await call == b"ab"
                break
            except asyncio.CancelledError:
                cancelled += 1
            # Nothing is open but the connection of an answer whose last byte was there: that is free.
            assert transport.pool is None or counts(transport) in ((0, 0), (1, 1))
        assert cancelled > 5
        assert counts(transport) == (1, 1)
        await until(lambda: server.open == 1)
        assert socket_count() == before + 2


async def test_a_cancelled_wait_for_a_connection_takes_no_place(http: Any) -> None:
    async with http.answering(http.sized()) as server, opened(max_connections=1) as transport:
        held = await transport.handle_async_request(httpx.Request("HEAD", server.url))
        await held.aclose()
        for turns in range(12):
            calls = [asyncio.create_task(ask(transport, server.url)) for _ in range(3)]
            for _ in range(turns):
                await asyncio.sleep(0)
            calls[1].cancel()
            results = await asyncio.gather(*calls, return_exceptions=True)

            assert results[0] == results[2] == b"ok"
            assert transport.pool is not None
            assert transport.pool.waiting_count == 0


async def test_a_cancelled_reader_closes_the_connection(http: Any, until: Callable[..., Any]) -> None:
    async with http.answering(http.chunked(b"x", end=b"")) as server, opened() as transport:
        response = await transport.handle_async_request(post(server.url))
        pieces = response.aiter_raw()
        await anext(pieces)
        reader = asyncio.ensure_future(anext(pieces))
        await asyncio.sleep(0)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader

        await until(lambda: server.open == 0)
        assert counts(transport) == (0, 0)


async def test_who_is_cancelled_as_its_answer_ends_leaves_the_connection_to_who_has_it_by_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                heard += 1
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na")
                await writer.drain()
                await asyncio.sleep(0.02)
                writer.write(b"b")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    is_free = asyncio.Event()

    async def second(transport: PoolTransport) -> bytes:
        await is_free.wait()
        return await (await transport.handle_async_request(httpx.Request("GET", url))).aread()

    async with server, opened() as transport:
        response = await transport.handle_async_request(httpx.Request("GET", url))
        first, later = asyncio.create_task(response.aread()), asyncio.create_task(second(transport))
        finish = Connection._finish

        def finish_and_cancel(connection: Connection, answer: Answer) -> None:
            finish(connection, answer)
            if not is_free.is_set():
                is_free.set()  # the second one goes on in the turn in which the first one wakes, and finds itself
                first.cancel()  # cancelled

        monkeypatch.setattr(Connection, "_finish", finish_and_cancel)
        await asyncio.wait([first])

        assert await later == b"ab"
    assert first.cancelled()
    assert heard == 2


# --- owners ----------------------------------------------------------------------------------------------------------


async def test_another_thread_s_loop_is_refused_and_closes_nothing(http: Any) -> None:
    async with http.answering(http.sized()) as server, opened() as transport:
        await ask(transport, server.url)
        errors: list[BaseException] = []

        def elsewhere() -> None:
            for stranger in (ask(transport, server.url), transport.aclose()):
                try:
                    asyncio.run(stranger)
                except RuntimeError as error:
                    errors.append(error)

        await asyncio.to_thread(elsewhere)

        assert ["another event loop" in str(error) for error in errors] == [True, True]
        assert counts(transport) == (1, 1)


async def test_a_forked_process_uses_and_closes_nothing_of_its_parent(http: Any) -> None:
    async with http.answering(http.sized()) as server, opened() as transport:
        await ask(transport, server.url)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:  # only what cannot disturb the parent's loop
            verdict = b"used"
            try:
                transport.handle_async_request(post(server.url)).send(None)
            except RuntimeError as error:
                verdict = str(error).encode()
            try:
                transport.aclose().send(None)
            except StopIteration:
                verdict += b", closed nothing"
            os.write(writing, verdict)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            verdict = pipe.read()
        os.waitpid(pid, 0)  # noqa: ASYNC222 - it has said its last word

        assert verdict.endswith(b", closed nothing")
        assert b"before the fork" in verdict
        assert await ask(transport, server.url) == b"ok"
        assert server.opened == 1


async def test_closing_breaks_what_is_under_way(http: Any, until: Callable[..., Any]) -> None:
    async with http.answering(http.chunked(b"x", end=b"")) as server, opened() as transport:
        response = await transport.handle_async_request(post(server.url))
        await transport.aclose()

        with pytest.raises(httpx.ReadError, match="closed on this side"):
            await body_of(response)
        with pytest.raises(RuntimeError, match="closed"):
            await ask(transport, server.url)
        assert counts(transport) == (0, 0)
        await until(lambda: server.open == 0)


async def test_closing_while_connections_are_made_leaves_none(http: Any, until: Callable[..., Any]) -> None:
    async with http.answering(http.sized()) as server:
        for turns in range(1, 12):
            transport = open_transport(tls=TlsSettings(), proxy="direct")
            call = asyncio.create_task(ask(transport, server.url))
            for _ in range(turns):
                await asyncio.sleep(0)
            await transport.aclose()
            await asyncio.wait([call])

            assert counts(transport) == (0, 0)
            assert call.exception() is None or isinstance(call.exception(), RuntimeError | httpx.ReadError)
            await until(lambda: server.open == 0)
