"""Transports: a slot from the request to the last byte, whatever ends it, in both libraries and both colours."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from covey.protocol.destination import fingerprint
from covey.protocol.errors import BudgetParked, CoveyError
from covey.protocol.fault_kinds import FaultKind
from covey.protocol.ids import BudgetKey, CallId
from covey.protocol.messages.broker import Acquire, Destination, Granted, Outcome, Unlimited
from covey.protocol.messages.ledger import CallRecorded, CallStatus
from covey.protocol.usage import Usage
from covey.supervisor.handles import Seat, Slot
from covey.supervisor.refusals import local_refusal
from covey.supervisor.transport import AsyncFleetTransport, FleetTransport, OnRefusal

URL = "http://x/api/v4/chat/completions"
CHAT = json.dumps({"id": "c1", "model": "m-1", "choices": [{}], "usage": {"prompt_tokens": 7, "completion_tokens": 2}})
STREAM = (
    b'data: {"id":"c1","model":"m-1","choices":[{"delta":{"content":"h\xc3\xa9"}}]}\n\n'
    b'data: {"id":"c1","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\ndata: [DONE]\n\n'
)
BROKEN_STREAM = b'data: {"error":{"code":"1302","message":"High concurrency usage of this API"}}\n\n'
TOO_MANY = b'{"error":{"code":"1302","message":"High concurrency usage of this API"}}'
SSE = {"content-type": "text/event-stream"}
PLAIN = Usage(input=7, output=2)
LIBRARIES = pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])


@dataclass
class Fleet:
    """Grants everything at once, or refuses it, and writes down what happens."""

    refuses: CoveyError | None = None
    is_limited: bool = True
    asked: list[Acquire] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    released: list[tuple[bool, Outcome | None]] = field(default_factory=list)
    accounts: list[CallRecorded] = field(default_factory=list)

    @property
    def slots(self) -> Fleet:
        return self

    @property
    def records(self) -> Fleet:
        return self

    @property
    def account(self) -> CallRecorded:
        """The only one."""
        (account,) = self.accounts
        return account

    @property
    def outcome(self) -> Outcome | None:
        """What the budget was told, once."""
        ((_, outcome),) = self.released
        return outcome

    def slot(self, base_url: str, *, model: str, api_key: str | None, timeout: float | None, **_: Any) -> Slot:
        request = Acquire(
            call=CallId(f"call_{len(self.asked) + 1}"),
            destination=Destination(base_url=base_url, credential=fingerprint(api_key)),
            model=model,
            timeout_s=timeout,
        )
        return Slot(lambda: Seat(self, Direct()), request, key=api_key)  # type: ignore[arg-type]

    async def acquire(self, request: Acquire) -> Granted | Unlimited:
        self.asked.append(request)
        if self.refuses is not None:
            raise self.refuses
        self.held.add(request.call)
        if not self.is_limited:
            return Unlimited(call=request.call)
        return Granted(call=request.call, budget=BudgetKey("sim:1"), limit=1, in_flight=1, waited_s=0.0)

    def release(self, request: Acquire, granted: Any, *, was_cut: bool, outcome: Outcome | None) -> None:
        self.held.remove(request.call)
        self.released.append((was_cut, outcome))

    def record(self, record: CallRecorded) -> None:
        self.accounts.append(record)


class Direct:
    """A portal that leads nowhere: everything happens in the caller's thread, at once."""

    def call_until(self, interrupt: object, work: Any, *, waiting_for: str) -> None:
        with pytest.raises(StopIteration):
            work.send(None)

    async def awaiting(self, work: Any) -> None:
        await work

    def soon(self, function: Callable[..., None], *args: Any) -> None:
        function(*args)


@dataclass
class Wire:
    """What the provider sends, piece by piece, and what was seen of it; a transport of either library and colour."""

    library: Any
    fleet: Fleet
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[bytes | Exception] = field(default_factory=list)
    fails: Exception | None = None
    requests: list[Any] = field(default_factory=list)
    held_at_close: list[int] = field(default_factory=list)

    def handle_request(self, request: Any) -> Any:
        return self._answer(request)

    async def handle_async_request(self, request: Any) -> Any:
        return self._answer(request)

    def close(self) -> None:
        """Nothing is open."""

    async def aclose(self) -> None:
        """Nothing is open."""

    def _answer(self, request: Any) -> Any:
        self.requests.append(request)
        if self.fails is not None:
            raise self.fails
        body = type("Body", (Body, self.library.SyncByteStream, self.library.AsyncByteStream), {})(self)
        return self.library.Response(self.status, headers=self.headers, stream=body)


class Body:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._wire.pieces:
            if isinstance(piece, Exception):
                raise piece
            assert self._wire.fleet.held or self._wire.status >= 400, "a byte without a slot"
            yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            await asyncio.sleep(0)
            yield piece

    def close(self) -> None:
        self._wire.held_at_close.append(len(self._wire.fleet.held))

    async def aclose(self) -> None:
        self.close()


def client(wire: Wire, refusal: OnRefusal = "raise") -> Any:
    """A blocking client of the wire's library."""
    return wire.library.Client(transport=FleetTransport(wire.fleet, wire, timeout=3.0, refusal=refusal))  # type: ignore[arg-type]


def aclient(wire: Wire) -> Any:
    """An asyncio client of the wire's library."""
    return wire.library.AsyncClient(transport=AsyncFleetTransport(wire.fleet, wire))  # type: ignore[arg-type]


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


# --- answers ---------------------------------------------------------------------------------------------------------


@LIBRARIES
def test_a_call_is_asked_for_accounted_and_given_back(library: Any, fleet: Fleet) -> None:
    wire = Wire(library, fleet, headers={"content-type": "application/json"}, pieces=[CHAT.encode()])

    with client(wire) as http:
        answer = http.post(URL, json={"model": "glm-5"}, headers={"Authorization": "Bearer sk-1"})

    assert answer.json()["id"] == "c1"
    (asked,) = fleet.asked
    assert (asked.model, asked.timeout_s) == ("glm-5", 3.0)
    assert asked.destination == Destination(base_url="http://x/api/v4", credential=fingerprint("sk-1"))
    assert wire.requests[0].headers["x-client-request-id"] == asked.call
    account = fleet.account
    assert (account.status, account.usage, account.model_answered) == (CallStatus.COMPLETED, PLAIN, "m-1")
    assert (account.provider, account.response_id) == ("sim", "c1")
    assert fleet.released == [(False, Outcome(usage=PLAIN))]


@LIBRARIES
@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_a_stream_passes_unchanged_in_the_same_pieces_and_is_held_to_its_last_byte(
    library: Any, cuts: list[int]
) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in itertools.pairwise(edges)]
    fleet = Fleet()
    wire = Wire(library, fleet, headers=SSE, pieces=list(pieces))

    with client(wire) as http, http.stream("POST", URL, json={}) as answer:
        got = list(answer.iter_raw())
        held_behind_the_last_byte = len(fleet.held)

    assert got == [piece for piece in pieces if piece] or got == pieces
    assert held_behind_the_last_byte == 0
    assert (fleet.account.usage, fleet.outcome) == (PLAIN, Outcome(usage=PLAIN))


@LIBRARIES
def test_in_asyncio_it_is_the_same(library: Any, fleet: Fleet) -> None:
    wire = Wire(library, fleet, headers=SSE, pieces=[STREAM[:50], STREAM[50:]])

    async def call() -> list[bytes]:
        async with aclient(wire) as http, http.stream("POST", URL, json={"model": "m"}) as answer:
            return [piece async for piece in answer.aiter_raw()]

    assert asyncio.run(call()) == [STREAM[:50], STREAM[50:]]
    assert fleet.released == [(False, Outcome(usage=PLAIN))]


def test_a_compressed_answer_is_counted_and_passes_compressed(fleet: Fleet) -> None:
    packed = gzip.compress(STREAM)
    wire = Wire(httpx, fleet, headers={**SSE, "content-encoding": "gzip"}, pieces=[packed[:30], packed[30:]])

    with client(wire) as http:
        answer = http.post(URL, json={}, headers={"accept-encoding": "br, zstd"})

    assert answer.content == STREAM
    assert wire.requests[0].headers["accept-encoding"] == "gzip, deflate"
    assert fleet.account.usage == PLAIN


def test_what_is_no_call_takes_no_slot(fleet: Fleet) -> None:
    wire = Wire(httpx, fleet, status=404, pieces=[])

    with client(wire) as http:
        http.get("http://x/v1/models")

    assert (fleet.asked, fleet.accounts) == ([], [])


def test_where_nobody_counts_the_call_is_accounted_and_retries_are_the_sdk_s_business() -> None:
    fleet = Fleet(is_limited=False)
    wire = Wire(httpx, fleet, status=503, pieces=[b"no"])

    with client(wire) as http:
        answer = http.post(URL, json={"model": "m"})

    assert "x-should-retry" not in answer.headers
    assert fleet.account.status is CallStatus.REFUSED


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        pytest.param({"authorization": "Bearer sk-1"}, "sk-1", id="bearer"),
        pytest.param({"authorization": "sk-1"}, "sk-1", id="bare"),
        pytest.param({"x-api-key": "sk-1"}, "sk-1", id="anthropic"),
        pytest.param({"api-key": "sk-1"}, "sk-1", id="azure"),
        pytest.param({}, None, id="none"),
    ],
)
def test_accounts_are_told_apart_by_the_key_in_the_headers(
    fleet: Fleet, headers: dict[str, str], key: str | None
) -> None:
    with client(Wire(httpx, fleet)) as http:
        http.post(URL, json={}, headers=headers)

    assert fleet.asked[0].destination.credential == fingerprint(key)


def test_secrets_in_the_address_are_not_kept(fleet: Fleet) -> None:
    with client(Wire(httpx, fleet)) as http:
        http.post("https://me:secret@x:8443/v1/messages?key=secret", content=b"no JSON")

    assert (fleet.asked[0].destination.base_url, fleet.asked[0].model) == ("https://x:8443/v1", "")


# --- ends ------------------------------------------------------------------------------------------------------------


@LIBRARIES
def test_a_stream_that_is_closed_in_the_middle_was_cut_after_its_connection_was_closed(
    library: Any, fleet: Fleet
) -> None:
    wire = Wire(library, fleet, headers=SSE, pieces=[STREAM[:40], STREAM[40:]])

    with client(wire) as http, http.stream("POST", URL, json={}) as answer:
        next(answer.iter_raw())

    assert wire.held_at_close[0] == 1
    assert fleet.released == [(True, None)]
    assert (fleet.account.status, fleet.account.usage) == (CallStatus.CANCELLED, None)


def test_a_stream_that_is_closed_behind_its_terminal_event_was_not_cut(fleet: Fleet) -> None:
    wire = Wire(httpx, fleet, headers=SSE, pieces=[STREAM, b"\n"])

    with client(wire) as http, http.stream("POST", URL, json={}) as answer:
        next(answer.iter_raw())

    assert fleet.released == [(False, Outcome(usage=PLAIN))]
    assert fleet.account.status is CallStatus.COMPLETED


@LIBRARIES
def test_a_task_that_is_cancelled_in_the_middle_gives_the_slot_back_as_cut(library: Any, fleet: Fleet) -> None:
    wire = Wire(library, fleet, headers=SSE, pieces=[STREAM[:40], STREAM[40:]])

    async def call() -> None:
        async with aclient(wire) as http, http.stream("POST", URL, json={}) as answer:
            async for _ in answer.aiter_raw():
                asyncio.current_task().cancel()  # type: ignore[union-attr]

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(call())

    assert fleet.released == [(True, None)]
    assert fleet.account.status is CallStatus.CANCELLED


@LIBRARIES
def test_a_stream_that_breaks_is_truncated(library: Any, fleet: Fleet) -> None:
    wire = Wire(library, fleet, headers=SSE, pieces=[STREAM[:40], library.ReadError("reset")])

    with client(wire) as http, pytest.raises(library.ReadError):
        http.post(URL, json={})

    assert fleet.held == set()
    assert fleet.outcome is not None
    assert fleet.outcome.fault is not None
    assert fleet.outcome.fault.kind is FaultKind.TRUNCATED
    assert fleet.account.status is CallStatus.TRUNCATED


@LIBRARIES
@pytest.mark.parametrize(
    ("name", "kind"), [("ConnectError", FaultKind.UNREACHABLE), ("ReadTimeout", FaultKind.TIMEOUT)]
)
def test_a_provider_that_is_not_there_is_told_the_budget(
    library: Any, fleet: Fleet, name: str, kind: FaultKind
) -> None:
    error = getattr(library, name)("no")
    wire = Wire(library, fleet, fails=error)

    with client(wire) as http, pytest.raises(type(error)):
        http.post(URL, json={})

    assert fleet.outcome is not None
    assert fleet.outcome.fault is not None
    assert (fleet.outcome.fault.kind, fleet.account.status) == (kind, CallStatus.FAILED)


def test_a_full_connection_pool_is_not_the_provider_s_doing(fleet: Fleet) -> None:
    with client(Wire(httpx, fleet, fails=httpx.PoolTimeout("full"))) as http, pytest.raises(httpx.PoolTimeout):
        http.post(URL, json={})

    assert fleet.released == [(True, None)]


# --- errors ----------------------------------------------------------------------------------------------------------


@LIBRARIES
@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "asyncio"])
def test_an_error_answer_is_named_handed_on_unchanged_and_not_to_be_repeated(
    library: Any, fleet: Fleet, is_async: bool
) -> None:
    pieces: list[bytes | Exception] = [TOO_MANY[:9], TOO_MANY[9:], b" " * 70_000, b"tail"]
    wire = Wire(library, fleet, status=429, headers={"retry-after": "7"}, pieces=list(pieces))

    async def acall() -> Any:
        async with aclient(wire) as http:
            return await http.post(URL, json={})

    def call() -> Any:
        with client(wire) as http:
            return http.post(URL, json={})

    answer = asyncio.run(acall()) if is_async else call()

    assert answer.content == TOO_MANY + b" " * 70_000 + b"tail"
    assert answer.headers["x-should-retry"] == "false"
    assert fleet.outcome is not None
    assert fleet.outcome.fault is not None
    assert (fleet.outcome.fault.kind, fleet.outcome.fault.retry_after_s) == (FaultKind.CONCURRENCY, 7.0)
    assert fleet.account.status is CallStatus.REFUSED


def test_a_short_error_answer_gives_the_slot_back_before_anybody_reads_it(fleet: Fleet) -> None:
    wire = Wire(httpx, fleet, status=429, pieces=[TOO_MANY])

    with client(wire) as http, http.stream("POST", URL, json={}) as answer:
        held = len(fleet.held)
        answer.read()

    assert (held, answer.content) == (0, TOO_MANY)
    assert len(fleet.released) == 1


def test_an_error_answer_that_breaks_off_breaks_off_for_the_program_too(fleet: Fleet) -> None:
    wire = Wire(httpx, fleet, status=500, pieces=[b"half", httpx.ReadError("reset")])

    with client(wire) as http, http.stream("POST", URL, json={}) as answer:
        pieces = answer.iter_raw()
        assert next(pieces) == b"half"
        with pytest.raises(httpx.ReadError):
            next(pieces)

    assert fleet.outcome is not None
    assert fleet.outcome.fault is not None
    assert fleet.outcome.fault.kind is FaultKind.SERVER_ERROR


@LIBRARIES
def test_an_error_inside_a_success_is_named(library: Any, fleet: Fleet) -> None:
    wire = Wire(library, fleet, headers=SSE, pieces=[BROKEN_STREAM[:20], BROKEN_STREAM[20:]])

    with client(wire) as http:
        assert http.post(URL, json={}).content == BROKEN_STREAM

    assert fleet.outcome is not None
    assert fleet.outcome.fault is not None
    assert fleet.outcome.fault.kind is FaultKind.CONCURRENCY


def test_a_key_that_the_provider_quotes_is_kept_nowhere(fleet: Fleet) -> None:
    wire = Wire(httpx, fleet, status=401, pieces=[b'{"error":{"message":"Incorrect API key: sk-secret"}}'])

    with client(wire) as http:
        http.post(URL, json={}, headers={"authorization": "Bearer sk-secret"})

    assert "sk-secret" not in repr((fleet.asked, fleet.accounts, fleet.released))


# --- refusals --------------------------------------------------------------------------------------------------------


@LIBRARIES
def test_the_fleet_s_no_is_raised_as_it_is_and_nobody_was_called(library: Any) -> None:
    fleet = Fleet(refuses=BudgetParked("sim:1", "used up", until=5.0, queued=2))
    wire = Wire(library, fleet)

    with client(wire) as http, pytest.raises(BudgetParked) as parked:
        http.post(URL, json={})

    assert (parked.value.until, wire.requests, fleet.accounts) == (5.0, [], [])


@LIBRARIES
def test_the_fleet_s_no_can_be_an_answer_that_tells_itself_from_the_provider_s(library: Any) -> None:
    refused = BudgetParked("sim:1", "used up", until=5.0, queued=2)
    wire = Wire(library, Fleet(refuses=refused))

    with client(wire, "response") as http:
        answer = http.post(URL, json={})

    assert (answer.status_code, answer.headers["x-covey-refused"]) == (429, "parked")
    assert answer.json()["error"]["queued"] == 2
    with pytest.raises(library.HTTPStatusError) as raised:
        answer.raise_for_status()
    assert local_refusal(raised.value) is refused
