"""The example swarm against a real model: llama.cpp's server, with a recorder on the wire in front of it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import apsw
import h11
import httpx
import pytest

from covey.actors.conversation import CUT
from covey.bench.model_server import ModelServer

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
LIMIT: Final = 2
ANSWER_TOKENS: Final = 48
SWARM_S: Final = 240.0


@pytest.mark.real_model
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_six_children_share_two_slots_of_a_real_server_and_every_token_is_accounted(model_server: ModelServer) -> None:
    with tempfile.TemporaryDirectory(prefix="covey-real-", dir="/tmp") as home:
        flight = asyncio.run(fly(model_server, Path(home)))
        stored = stored_calls(Path(home))

    shown, calls = flight.shown, flight.calls
    assert (flight.code, shown.get("children"), shown.get("ok")) == (0, 6, 6), (shown, flight.stderr)
    # What the children say is what the model said, to the letter.
    assert sorted(child["text"] for child in shown["results"]) == sorted(call.answer for call in calls if call.answer)
    assert all(child["text"].strip() for child in shown["results"])
    # The limit, on the wire and by the server's own word; and it was used to the full.
    assert flight.peak == LIMIT
    assert flight.busiest <= LIMIT
    # Three books: what the server reported, what the command shows, what state.db keeps.
    books = (
        len(calls),
        sum(call.usage["prompt_tokens"] for call in calls),
        sum(call.usage["completion_tokens"] for call in calls),
    )
    assert (
        sum(child["calls"] for child in shown["results"]),
        shown["prompt_tokens"],
        shown["completion_tokens"],
    ) == books
    assert (len(stored), sum(row.prompt for row in stored), sum(row.completion for row in stored)) == books
    assert {row.call for row in stored} == {call.id for call in calls}
    assert {row.status for row in stored} == {"completed"}
    # The swarm file's wishes reached the server.
    assert all(call.asked.get("max_tokens") == ANSWER_TOKENS and "tools" not in call.asked for call in calls)
    assert all(call.usage["completion_tokens"] <= ANSWER_TOKENS for call in calls)


# --- the flight ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Flight:
    """What was seen: by the command's caller, on the wire, and in the server's list of slots."""

    code: int
    shown: dict[str, Any]
    stderr: str
    calls: list[Seen]
    peak: int
    busiest: int


async def fly(server: ModelServer, home: Path) -> Flight:
    """Run `covey swarm` on the example in a fresh home whose provider is the recorder."""
    async with Recorder(server.port) as recorder, busy_slots(server) as busy:
        example = (EXAMPLES / "local-model.config.yaml").read_text()
        assert example.count("127.0.0.1:8080") == 1
        (home / "config.yaml").write_text(example.replace("127.0.0.1:8080", f"127.0.0.1:{recorder.port}"))
        swarm = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "covey", "swarm", str(EXAMPLES / "local-model.yaml"), "--json"),
            env={**os.environ, "COVEY_HOME": str(home)},
            cwd=home,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await asyncio.wait_for(swarm.communicate(), SWARM_S)
        finally:
            if swarm.returncode is None:
                swarm.terminate()
                await swarm.wait()
    assert out, err.decode()
    assert swarm.returncode is not None
    return Flight(swarm.returncode, json.loads(out), err.decode(), recorder.calls, recorder.peak, max(busy))


@asynccontextmanager
async def busy_slots(server: ModelServer) -> AsyncIterator[list[int]]:
    """How many slots the server says are busy, looked at ten times a second."""
    seen = [0]

    async def look() -> None:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=60) as client:
            while True:
                slots = (await client.get("/slots")).raise_for_status().json()
                seen.append(sum(slot["is_processing"] for slot in slots))
                await asyncio.sleep(0.1)

    looking = asyncio.create_task(look())
    try:
        yield seen
        assert not looking.done(), "the server was watched to the end"
    finally:
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking


@dataclass(frozen=True)
class Stored:
    """A row of `calls`."""

    call: str
    status: str
    prompt: int
    completion: int


def stored_calls(home: Path) -> list[Stored]:
    """What state.db holds, read when the fleet is down."""
    columns = (
        "call, status, input_tokens + cache_read_tokens + cache_write_tokens AS prompt,"
        " output_tokens + reasoning_tokens AS completion"
    )
    uri = f"file:{home / 'state.db'}?mode=ro"
    with closing(apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)) as db:
        return [Stored(*row) for row in db.execute(f"SELECT {columns} FROM calls")]


# --- the recorder ----------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Seen:
    """A call as it went by."""

    id: str
    request: bytearray = field(default_factory=bytearray)
    body: bytearray = field(default_factory=bytearray)

    @property
    def asked(self) -> dict[str, Any]:
        """The request."""
        return dict(json.loads(self.request))

    @property
    def usage(self) -> dict[str, int]:
        """The server's last report."""
        return next(chunk["usage"] for chunk in reversed(self.chunks) if chunk.get("usage"))

    @property
    def answer(self) -> str:
        """The text the server sent, with our note where the server says that it is cut."""
        choices = [choice for chunk in self.chunks for choice in chunk["choices"]]
        text = "".join(choice["delta"].get("content") or "" for choice in choices)
        return text + CUT if text and choices[-1]["finish_reason"] == "length" else text

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """The events of the stream, but for `[DONE]`."""
        lines = bytes(self.body).decode().split("\n")
        return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


class Recorder:
    """Passes bytes to the server and back as they are, and reads along.

    A call is in flight from its request's head to its answer's last byte, or to the end of the connection.
    """

    def __init__(self, upstream: int) -> None:
        self.calls: list[Seen] = []
        self.peak = 0
        self._upstream = upstream
        self._in_flight: set[Seen] = set()

    async def __aenter__(self) -> Recorder:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()

    def begin(self, request: h11.Request) -> Seen:
        """A request's head came by."""
        seen = Seen(dict(request.headers)[b"x-client-request-id"].decode())
        self.calls.append(seen)
        self._in_flight.add(seen)
        self.peak = max(self.peak, len(self._in_flight))
        return seen

    def end(self, seen: Seen) -> None:
        """The answer's last byte came by, or there will be none."""
        self._in_flight.discard(seen)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection("127.0.0.1", self._upstream)
        along = ReadAlong(self)
        pumps = [
            asyncio.create_task(pump(client, to_server, along.asked)),
            asyncio.create_task(pump(server, to_client, along.answered)),
        ]
        try:
            # Either side's end is the end: HTTP/1.1 has no use for half a connection.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in pumps:
                task.cancel()
            along.closed()
            to_client.close()
            to_server.close()
        await asyncio.gather(*pumps, return_exceptions=True)


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, read_along: Callable[[bytes], None]) -> None:
    """Pass bytes on. Nothing else runs between the last byte's way out and its being seen."""
    while data := await source.read(65536):
        sink.write(data)
        read_along(data)
        await sink.drain()


class ReadAlong:
    """One connection, read from both ends: `asked` as the server would, `answered` as the client would."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._as_server = h11.Connection(h11.SERVER)
        self._as_client = h11.Connection(h11.CLIENT)
        self._seen: Seen | None = None

    def asked(self, data: bytes) -> None:
        """Bytes of the client."""
        for event in events(self._as_server, data):
            if isinstance(event, h11.Request):
                self._seen = self._recorder.begin(event)
            elif isinstance(event, h11.Data) and self._seen is not None:
                self._seen.request += event.data
            self._as_client.send(event)

    def answered(self, data: bytes) -> None:
        """Bytes of the server."""
        for event in events(self._as_client, data):
            if isinstance(event, h11.Data) and self._seen is not None:
                self._seen.body += event.data
            self._as_server.send(event)
            if isinstance(event, h11.EndOfMessage):
                self.closed()
                self._as_server.start_next_cycle()
                self._as_client.start_next_cycle()

    def closed(self) -> None:
        """No more of this call will come."""
        if self._seen is not None:
            self._recorder.end(self._seen)


def events(connection: h11.Connection, data: bytes) -> Iterator[h11.Event]:
    """What `data` completes."""
    connection.receive_data(data)
    while isinstance(event := connection.next_event(), h11.Event):
        yield event
