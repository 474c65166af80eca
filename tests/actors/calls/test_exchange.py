"""One exchange against a server that is scripted byte by byte: its clocks, its bounds, its one account."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from covey.actors.calls.account import Account
from covey.actors.calls.call_request import CallRequest
from covey.actors.calls.clocks import Clocks
from covey.actors.calls.exchange import REFUSAL_BYTES, Exchange
from covey.actors.calls.route import Target
from covey.actors.http.clients import Clients
from covey.protocol.dialects.ask import Rendered
from covey.protocol.dialects.base import Answer
from covey.protocol.faults import Fault, FaultKind
from covey.protocol.ids import CallId
from covey.protocol.messages.ledger import CallRecorded, CallStatus
from covey.protocol.settings import ProviderSettings

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ALIVE = b": alive\n\n"
TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
CALM = Clocks(refusal_s=0.1, drain_s=0.1)

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def says(*parts: bytes, then: bytes = b"", ends: bool = False) -> Script:
    """Send the parts; then `then` again and again every 5 ms, or nothing, until the client closes (or close first)."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(parts))
        await writer.drain()
        while then:
            await asyncio.sleep(0.005)
            writer.write(then)
            await writer.drain()
        if not ends:
            await reader.read()

    return play


class Bench:
    """A server with one script, and exchanges with it."""

    def __init__(self, port: int, clients: Clients) -> None:
        self.target = Target(ProviderSettings(name="sim", base_url=f"http://127.0.0.1:{port}"), "m")
        self.clients = clients
        self.records: list[CallRecorded] = []
        self.outputs = 0
        self.events: list[object] = []
        self.is_closed = asyncio.Event()

    def exchange(self, clocks: Clocks = CALM, **fields: Any) -> Exchange:
        account = Account(
            CallId("call_1"),
            CallRequest(targets=(self.target,), messages=()),
            self.target,
            record=self.records.append,
            waited_s=None,
        )
        rendered = Rendered(url=f"{self.target.provider.base_url}/v1/chat", headers={}, body=b"{}")
        return Exchange(
            account,
            self.target,
            rendered,
            **{
                "secret": None,
                "clients": self.clients,
                "clocks": clocks,
                "on_output": self._heard,
                "on_event": self.events.append,
                **fields,
            },
        )

    def _heard(self) -> None:
        self.outputs += 1

    @property
    def record(self) -> CallRecorded:
        [record] = self.records
        return record


@pytest.fixture
def against() -> Callable[[Script], Any]:
    """`async with against(script) as bench`; afterwards the server's connection is closed."""

    @asynccontextmanager
    async def opened(script: Script) -> AsyncIterator[Bench]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(2)
                await script(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()
                bench.is_closed.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        clients = Clients()
        bench = Bench(server.sockets[0].getsockname()[1], clients)
        try:
            yield bench
        finally:
            await clients.close()
            server.close()
            await bench.is_closed.wait()

    return opened


# --- clocks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "clock", "status", "words"),
    [
        pytest.param(says(), "headers_s", CallStatus.FAILED, "no answer within", id="no head"),
        pytest.param(says(HEAD), "first_byte_s", CallStatus.TRUNCATED, "after its head", id="no byte"),
        pytest.param(
            says(HEAD, then=chunk(ALIVE)), "first_content_s", CallStatus.TRUNCATED, "only keep-alives", id="no content"
        ),
        pytest.param(
            says(HEAD, chunk(TEXT), then=chunk(ALIVE)),
            "content_s",
            CallStatus.TRUNCATED,
            "only keep-alives",
            id="no more content",
        ),
        pytest.param(says(HEAD, chunk(TEXT)), "silence_s", CallStatus.TRUNCATED, "stood still", id="no more at all"),
        pytest.param(
            says(HEAD, then=chunk(TEXT)), "total_s", CallStatus.TRUNCATED, "was not over in time", id="no end"
        ),
    ],
)
async def test_every_clock_ends_the_exchange_by_its_name_and_closes_the_connection(
    against: Any, script: Script, clock: str, status: CallStatus, words: str
) -> None:
    async with against(script) as bench:
        fault = await bench.exchange(msgspec.structs.replace(CALM, **{clock: 0.05})).run()

        async with asyncio.timeout(1):
            await bench.is_closed.wait()
    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.TIMEOUT
    assert fault.status is None
    assert words in fault.message
    assert bench.record.status is status


async def test_a_connection_that_is_not_made_in_time_is_no_silence_of_the_provider(against: Any) -> None:
    async with against(says()) as bench:

        class Nowhere:
            async def send(self, *_: object) -> None:
                await asyncio.get_running_loop().create_future()

        fault = await bench.exchange(Clocks(connect_s=0.02), clients=Nowhere()).run()
        bench.is_closed.set()

    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.UNREACHABLE
    assert "no connection" in fault.message


async def test_keep_alives_keep_an_answer_alive_that_says_something_in_time(against: Any) -> None:
    """Silence is over with every byte; content has its own, longer clock."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + chunk(TEXT))
        for _ in range(20):
            await asyncio.sleep(0.01)
            writer.write(chunk(ALIVE))
        writer.write(chunk(END) + b"0\r\n\r\n")
        await reader.read()

    async with against(script) as bench:
        answer = await bench.exchange(msgspec.structs.replace(CALM, silence_s=0.1, content_s=5.0)).run()
        await bench.clients.close()

    assert isinstance(answer, Answer)
    assert answer.complete


async def test_a_nearer_clock_of_a_later_phase_is_not_missed(against: Any) -> None:
    """The timer was set for a far deadline when the phase with the near one began."""
    clocks = msgspec.structs.replace(CALM, headers_s=60, first_byte_s=60, first_content_s=60, silence_s=0.05)
    async with against(says(HEAD, chunk(TEXT))) as bench:
        async with asyncio.timeout(2):
            fault = await bench.exchange(clocks).run()

    assert isinstance(fault, Fault)


# --- bounds ----------------------------------------------------------------------------------------------------------


async def test_the_body_of_an_error_is_not_waited_for_longer_than_its_own_clock(against: Any) -> None:
    stuck = b'HTTP/1.1 503 X\r\ncontent-length: 1000\r\n\r\n{"error":'
    async with against(says(stuck)) as bench, asyncio.timeout(2):
        fault = await bench.exchange().run()

    assert isinstance(fault, Fault)
    assert fault.status == 503
    assert bench.record.status is CallStatus.REFUSED


async def test_the_body_of_an_error_is_not_read_beyond_a_bound(against: Any) -> None:
    endless = b"HTTP/1.1 503 X\r\ntransfer-encoding: chunked\r\n\r\n"
    async with against(says(endless, then=chunk(b"x" * REFUSAL_BYTES))) as bench:
        fault = await bench.exchange(msgspec.structs.replace(CALM, refusal_s=60.0)).run()

        await bench.is_closed.wait()
    assert isinstance(fault, Fault)
    assert fault.status == 503


async def test_the_first_content_is_told_once(against: Any) -> None:
    async with against(says(HEAD, chunk(ALIVE), chunk(TEXT), chunk(TEXT), chunk(END), b"0\r\n\r\n")) as bench:
        await bench.exchange().run()
        await bench.clients.close()

    assert bench.outputs == 1
    assert bench.record.first_byte_ms is not None


async def test_a_stream_that_ends_early_leaves_what_had_come_as_a_piece(against: Any) -> None:
    async with against(says(HEAD, chunk(TEXT), ends=True)) as bench:
        exchange = bench.exchange()
        fault = await exchange.run()

    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.TRUNCATED
    assert exchange.partial == "x"


async def test_a_bug_in_who_listens_is_in_the_account_too_and_closes_the_connection(against: Any) -> None:
    def deaf(_: object) -> None:
        raise ZeroDivisionError("a bug")

    async with against(says(HEAD, chunk(TEXT))) as bench:
        with pytest.raises(ZeroDivisionError):
            await bench.exchange(on_event=deaf).run()

        await bench.is_closed.wait()
    assert bench.record.status is CallStatus.FAILED


async def test_an_exchange_that_is_cancelled_before_it_was_sent_leaves_no_record(against: Any) -> None:
    async with against(says()) as bench:

        class Nowhere:
            async def send(self, *_: object) -> None:
                await asyncio.get_running_loop().create_future()

        task = asyncio.create_task(bench.exchange(clients=Nowhere()).run())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        bench.is_closed.set()

    assert task.cancelled()
    assert bench.records == []
