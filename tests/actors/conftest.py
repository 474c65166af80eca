"""What the tests of agents and their parts stand on: async tests, a real HTTP provider, honest ports in memory."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from covey.actors.calls.benches import Benches
from covey.actors.calls.call import run_call
from covey.actors.calls.call_request import CallOutcome, CallRequest
from covey.actors.calls.caller import Caller
from covey.actors.calls.environment_keys import EnvironmentKeys
from covey.actors.calls.route import Target
from covey.actors.http.clients import Clients
from covey.actors.ports import Hold
from covey.protocol.errors import CoveyError, OutboxFull, SlotTimeout
from covey.protocol.ids import AgentId, BudgetKey, SessionId
from covey.protocol.messages.broker import Acquire, Granted, Outcome, Unlimited
from covey.protocol.messages.fleet import AgentResult, AgentSpec, AgentState, AgentView
from covey.protocol.messages.ledger import (
    CallRecorded,
    CallStatus,
    Generation,
    GenerationQuery,
    MessageAppended,
    SessionEnded,
    Totals,
    TotalsQuery,
    Transcript,
    TranscriptQuery,
)
from covey.protocol.settings import CallSettings, ProviderSettings, TimeoutSettings
from covey.protocol.transcript import Message, Role

TEST_S = 20.0
THREADS = 2


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run async tests, each on a loop of its own (made by `new_loop`, if the test has one) and under a deadline."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def under_deadline() -> None:
        # As a process of the fleet does it: the loop's own executor is the bound for all threads.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
        async with asyncio.timeout(TEST_S):
            await pyfuncitem.obj(**arguments)

    new_loop: Any = pyfuncitem.funcargs.get("new_loop")
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(under_deadline())
    return True


async def until(condition: Callable[[], bool], *, within_s: float = 5.0) -> None:
    """Return once `condition` holds; it is looked at after every turn of the loop that changes nothing else."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - what is waited for lies in other processes and in /proc
            await asyncio.sleep(0.002)


@pytest.fixture(name="until")
def _until() -> Callable[..., Any]:
    return until


# --- a provider ------------------------------------------------------------------------------------------------------


@dataclass
class Reply:
    """What the provider does with one request."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    chunks: tuple[bytes, ...] = ()
    """Sent one by one with chunked coding instead of `body`."""
    hang: str | None = None
    """`headers`: nothing is ever sent; `body`: nothing after the chunks; `tail`: no last chunk after a whole answer."""
    goes_on: bytes = b""
    """Sent again and again behind the chunks, until the client closes the connection."""
    cut: bool = False
    """Close the connection behind the chunks, without the last one."""
    hangs_up: bool = False
    """Answer in full, promise to keep the connection, and close it in the face of the next request."""


def sse(*payloads: object) -> tuple[bytes, ...]:
    return tuple(b"data: " + (p if isinstance(p, bytes) else msgspec.json.encode(p)) + b"\n\n" for p in payloads)


def chunk(delta: dict[str, object], finish: str | None = None) -> dict[str, object]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "r1", "object": "chat.completion.chunk", "created": 1, "model": "sim-1", "choices": [choice]}


def usage(prompt: int, completion: int) -> dict[str, object]:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {
        "id": "r1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "sim-1",
        "choices": [],
        "usage": counts,
    }


class Replies:
    """Ready-made replies; every whole answer costs 10 prompt and 5 completion tokens."""

    @staticmethod
    def text(text: str, *, finish: str = "stop", hang: str | None = None) -> Reply:
        middle = [chunk({"content": piece}) for piece in (text[:3], text[3:]) if piece]
        return Reply(
            chunks=sse(chunk({"role": "assistant"}), *middle, chunk({}, finish), usage(10, 5), b"[DONE]"), hang=hang
        )

    @staticmethod
    def tools(*calls: tuple[str, str, str]) -> Reply:
        """Tool calls given as (id, name, arguments)."""
        deltas = [
            {"index": n, "id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
            for n, (id_, name, arguments) in enumerate(calls)
        ]
        parts = [chunk({"role": "assistant"}), *(chunk({"tool_calls": [delta]}) for delta in deltas)]
        return Reply(chunks=sse(*parts, chunk({}, "tool_calls"), usage(10, 5), b"[DONE]"))

    @staticmethod
    def events(*payloads: object) -> Reply:
        """A stream of any dialect."""
        return Reply(chunks=sse(*payloads))

    @staticmethod
    def cut(text: str) -> Reply:
        return Reply(chunks=sse(chunk({"role": "assistant"}), chunk({"content": text})), cut=True)

    @staticmethod
    def refusal(status: int, code: str | None, message: str, **headers: str) -> Reply:
        body = msgspec.json.encode({"error": {"code": code, "message": message}})
        return Reply(status=status, headers={"content-type": "application/json", **headers}, body=body)


class Provider:
    """A real HTTP server that answers each request with the next reply, and counts what it sees."""

    def __init__(self) -> None:
        self.replies: list[Reply | Callable[[dict[str, Any]], Reply]] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.in_flight = 0
        self.peak = 0
        self.connections = 0
        self.accepted = 0
        self.base_url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.accepted += 1
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.connections -= 1
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head.split("\r\n")[1:])}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.headers.append(headers)
        self.requests.append(msgspec.json.decode(body))
        next_ = self.replies.pop(0)
        reply = next_(self.requests[-1]) if callable(next_) else next_
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            return await self._send(reply, reader, writer)
        finally:
            self.in_flight -= 1

    async def _send(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if reply.hang == "headers":
            await reader.read()
            return False
        coding = {"transfer-encoding": "chunked"} if reply.chunks else {"content-length": str(len(reply.body))}
        headers = {"content-type": "text/event-stream", **coding, **reply.headers}
        lines = [f"HTTP/1.1 {reply.status} X", *(f"{k}: {v}" for k, v in headers.items())]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + reply.body)
        for piece in reply.chunks:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0)
        while reply.goes_on:
            writer.write(b"%x\r\n%s\r\n" % (len(reply.goes_on), reply.goes_on))
            await writer.drain()
            await asyncio.sleep(0.005)
        if reply.hang:
            await reader.read()
            return False
        if reply.cut:
            return False
        if reply.chunks:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        if reply.hangs_up:
            await reader.read(1)
        return not reply.hangs_up


@asynccontextmanager
async def _serving() -> AsyncIterator[Provider]:
    provider = Provider()
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    provider.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield provider
    finally:
        server.close()
        await until(lambda: provider.connections == 0)


@pytest.fixture
def serving() -> Callable[[], Any]:
    """`async with serving() as provider`."""
    return _serving


@pytest.fixture
def replies() -> type[Replies]:
    return Replies


# --- ports -----------------------------------------------------------------------------------------------------------


class Slots:
    """A broker in memory: `limit` slots, first come first served."""

    def __init__(self, limit: int = 1) -> None:
        self.held: set[str] = set()
        self.asked: list[Acquire] = []
        self.outcomes: dict[str, Outcome | None] = {}
        self.given_back: list[str] = []
        self.cut: list[str] = []
        """Those that were left by an exception: the provider may count them for a moment longer."""
        self.on_given_back: Callable[[], None] = lambda: None
        self.refuse: Exception | None = None
        self.refusals: dict[str, Exception] = {}
        self.has_budget = True
        self._limit = limit
        self._free = asyncio.Condition()

    @asynccontextmanager
    async def slot(self, request: Acquire) -> AsyncIterator[Hold]:
        self.asked.append(request)
        refusal = self.refuse or self.refusals.get(request.destination.provider or "")
        if refusal is not None:
            raise refusal
        async with self._free:
            try:
                async with asyncio.timeout(request.timeout_s):
                    await self._free.wait_for(lambda: len(self.held) < self._limit)
            except TimeoutError:
                raise SlotTimeout("sim", request.timeout_s or 0, 0) from None
            self.held.add(request.call)
        try:
            granted = Granted(
                call=request.call, budget=BudgetKey("sim"), limit=self._limit, in_flight=len(self.held), waited_s=0.0
            )
            hold = Hold(granted if self.has_budget else Unlimited(call=request.call))
            yield hold
        except BaseException:
            self.cut.append(request.call)
            raise
        finally:
            self.outcomes[request.call] = hold.outcome
            self.given_back.append(request.call)
            self.on_given_back()
            self.held.discard(request.call)
            async with self._free:
                self._free.notify()


class Ledger:
    """A ledger in memory with the real one's rules for repeated records."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.generations: dict[tuple[str, str], int] = {}
        self.flushed = 0
        self.full_for = 0
        self.lost_for = 0

    def record(self, record: Any) -> None:
        if self.full_for:
            self.full_for -= 1
            raise OutboxFull(1)
        self.records.append(record)

    async def flush(self, *, timeout_s: float = 10.0) -> None:
        await asyncio.sleep(0)
        self.flushed = len(self.records)

    async def query(self, query: Any, *, timeout_s: float = 10.0) -> Any:
        await asyncio.sleep(0)
        if isinstance(query, TranscriptQuery):
            return self.transcript(query.session)
        if isinstance(query, GenerationQuery):
            return Generation(generation=self.generations.get((query.source, query.conversation), 0))
        assert isinstance(query, TotalsQuery)
        calls = [c for c in self.calls if c.session == query.session]
        known = [c.usage for c in calls if c.usage]
        return Totals(
            calls=sum(c.status is not CallStatus.REFUSED for c in calls),
            unknown_calls=0,
            refused_calls=0,
            prompt_tokens=sum(u.prompt_tokens for u in known),
            completion_tokens=sum(u.completion_tokens for u in known),
        )

    @property
    def calls(self) -> list[CallRecorded]:
        return [record for record in self.records if isinstance(record, CallRecorded)]

    def transcript(self, session: str) -> Transcript:
        kept: dict[int, Any] = {}
        ended = None
        for record in self.records:
            if isinstance(record, MessageAppended) and record.session == session:
                kept.setdefault(record.index, record.message)
            if isinstance(record, SessionEnded) and record.session == session:
                ended = ended or record
        assert list(kept) == list(range(len(kept)))
        return Transcript(
            messages=tuple(kept.values()),
            outcome=ended.outcome if ended else None,
            result=ended.result if ended else None,
            error=ended.error if ended else None,
        )


class Children:
    """A fleet in memory: `answer(spec)` decides how a child ends; None leaves it running until it is stopped."""

    def __init__(self) -> None:
        self.spawned: list[AgentSpec] = []
        self.stopped: tuple[AgentId, ...] = ()
        self.views: list[AgentView] = []
        self.answer: Callable[[AgentSpec], AgentResult | CoveyError | None] = done
        self.refuse: Callable[[AgentSpec], CoveyError | None] = lambda _: None
        self.running = 0
        self.peak = 0

    async def spawn(self, spec: AgentSpec) -> None:
        await asyncio.sleep(0)
        refused = self.refuse(spec)
        if refused:
            raise refused
        if all(spec.agent != other.agent for other in self.spawned):
            self.spawned.append(spec)

    async def result(self, agent: AgentId) -> AgentResult:
        spec = next(spec for spec in self.spawned if spec.agent == agent)
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await asyncio.sleep(0.002)
            answer = self.answer(spec)
            if answer is None:
                await asyncio.get_running_loop().create_future()
            if isinstance(answer, CoveyError):
                raise answer
            assert answer is not None
            return answer
        finally:
            self.running -= 1

    async def stop(self, agents: tuple[AgentId, ...]) -> None:
        await asyncio.sleep(0)
        self.stopped = agents

    def report(self, view: AgentView) -> None:
        self.views.append(view)


def done(spec: AgentSpec, **fields: Any) -> AgentResult:
    result = AgentResult(agent=spec.agent, session=spec.session, outcome=AgentState.DONE, text=f"did {spec.goal}")
    return msgspec.structs.replace(result, **fields)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def children() -> Children:
    return Children()


@pytest.fixture
def new_slots() -> type[Slots]:
    return Slots


# --- calls -----------------------------------------------------------------------------------------------------------

KEY = "sk-0123456789abcdef"
SHORT = TimeoutSettings(headers_seconds=0.2, first_byte_seconds=0.2, silence_seconds=0.2, content_seconds=0.3)


class Setting:
    """A caller, what it recorded and which states it showed. Pauses between attempts are none (their chance is 0)."""

    def __init__(self, provider: Provider, slots: Slots) -> None:
        self.provider, self.slots = provider, slots
        self.records: list[CallRecorded] = []
        self.states: list[tuple[AgentState, str]] = []
        self.events: list[object] = []
        self.partial: list[str] = []
        self.clients = Clients()
        self.benches = Benches()
        self.keys: Any = EnvironmentKeys({"SIM_KEY": KEY})
        self.may_start = True

    def target(self, name: str = "sim", model: str = "m", **settings: Any) -> Target:
        usual = {"base_url": self.provider.base_url, "api_key_env": "SIM_KEY", "timeouts": SHORT}
        return Target(ProviderSettings(name=name, **{**usual, **settings}), model)

    async def ask(self, *targets: Target, calls: CallSettings | None = None, **question: Any) -> CallOutcome:
        return await run_call(
            CallRequest(
                targets=targets or (self.target(),),
                session=SessionId("ses_1"),
                agent=AgentId("ag_1"),
                **{"messages": (Message(role=Role.USER, content="hello"),), **question},
            ),
            Caller(
                slots=self.slots,
                keys=self.keys,
                clients=self.clients,
                benches=self.benches,
                calls=calls or CallSettings(),
                chance=lambda: 0.0,
                record=self.records.append,
                on_state=lambda state, provider: self.states.append((state, provider)),
                on_event=self.events.append,
                on_partial=self.partial.append,
                may_start=lambda: self.may_start,
            ),
        )

    @property
    def statuses(self) -> list[CallStatus]:
        return [record.status for record in self.records]


@pytest.fixture
def scene(serving: Callable[[], Any], new_slots: type[Slots]) -> Callable[..., Any]:
    """`async with scene(*replies) as setting`; afterwards no slot is held and nothing is in flight."""

    @asynccontextmanager
    async def opened(*replies: Any, limit: int = 1) -> AsyncIterator[Setting]:
        async with serving() as provider:
            provider.replies = list(replies)
            setting = Setting(provider, new_slots(limit))
            try:
                yield setting
            finally:
                await setting.clients.close()
            assert setting.slots.held == set()

    return opened
