"""A rehearsal before the first fork: provider calls, played inside this process.

CPython specialises bytecode where it stands and fills caches in its objects, and a forked child copies every page it
writes. What was played before is warm in the zygote and shared by all its children: with 3.11, a worker's first calls
copy 3 MB less, and do not stop its loop for imports. Nothing outlives the rehearsal: no thread, no socket, no task.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec

from ..actors.calls.benches import Benches
from ..actors.calls.call import run_call
from ..actors.calls.call_request import CallRequest
from ..actors.calls.caller import Caller
from ..actors.calls.environment_keys import EnvironmentKeys
from ..actors.calls.route import Target
from ..actors.http.clients import Clients
from ..actors.ports import Hold
from ..protocol.frames import BodyDecoder
from ..protocol.messages.broker import Acquire, BrokerReply, BrokerRequest, Unlimited
from ..protocol.messages.credentials import CredentialsReply, CredentialsRequest
from ..protocol.messages.fleet import RootReply, RootRequest, WorkerReply, WorkerRequest
from ..protocol.messages.ledger import LedgerReply, LedgerRequest
from ..protocol.settings import CallSettings, ProviderSettings
from ..protocol.transcript import Message, Role
from ..storage.owners import me
from .service import ServiceArguments

TIMES: Final = 8
"""CPython 3.11 specialises a function when it has been called or has looped eight times."""

DEADLINE_S: Final = 5.0

_CHUNKS: Final = (
    b'{"id":"r","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"a"},"finish_reason":null}]}',
    b'{"id":"r","model":"m","choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}',
    b'{"id":"r","model":"m","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}',
    b"[DONE]",
)


def rehearse() -> None:
    """Play it. Whatever goes wrong only costs the warmth."""
    for union in (
        BrokerReply | CredentialsReply,
        BrokerRequest | CredentialsRequest,
        LedgerReply,
        LedgerRequest,
        RootReply,
        RootRequest,
        WorkerReply,
        WorkerRequest,
    ):
        BodyDecoder(union)
    msgspec.msgpack.Decoder(ServiceArguments)
    me()
    with suppress(OSError, TimeoutError):
        # On asyncio's own loop: libuv ends a process that was forked from one with a loop of its own.
        asyncio.run(_calls())


async def _calls() -> None:
    provider = _Provider()
    base_url = await provider.open()
    target = Target(ProviderSettings(name="rehearsal", base_url=base_url), "m")
    request = CallRequest(targets=(target,), messages=(Message(role=Role.USER, content="hello"),))
    clients = Clients()
    caller = Caller(
        slots=_NoBudget(),
        keys=EnvironmentKeys({}),
        clients=clients,
        benches=Benches(),
        calls=CallSettings(retry_seconds=0.0),
        record=lambda _: None,
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            for _ in range(TIMES):
                await run_call(request, caller)
    finally:
        await clients.close()
        await provider.close()


class _NoBudget:
    """Every destination passes."""

    @asynccontextmanager
    async def slot(self, request: Acquire) -> AsyncIterator[Hold]:
        """See `actors.ports.Slots`."""
        yield Hold(Unlimited(call=request.call))


class _Provider:
    """Answers every request the same, on a socket of its own; whoever it serves is served to the end."""

    def __init__(self) -> None:
        self._serving: set[asyncio.Task[None]] = set()

    async def open(self) -> str:
        """Listen; the base URL."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def close(self) -> None:
        """Stop listening, and wait until the last connection is done with."""
        self._server.close()
        await asyncio.gather(*self._serving)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A plain function that makes its own task: the one of asyncio's streams cannot be waited for.
        task = asyncio.get_running_loop().create_task(_answer(reader, writer))
        self._serving.add(task)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    body = b"".join(b"data: " + chunk + b"\n\n" for chunk in _CHUNKS)
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            request = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in request.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.partition(b":")[2]))
            writer.write(head + body)
            await writer.drain()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
