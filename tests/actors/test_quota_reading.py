"""Reading a quota over real HTTP: the key stays where it belongs, and nothing waits for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from covey.actors.calls.benches import Benches
from covey.actors.calls.call import run_call
from covey.actors.calls.call_request import CallRequest, CallUnanswered
from covey.actors.calls.caller import Caller
from covey.actors.calls.environment_keys import EnvironmentKeys
from covey.actors.calls.route import Target
from covey.actors.http.clients import Clients
from covey.actors.ports import Hold
from covey.actors.quota_reading import AGAIN_S, MOST_BYTES, Got, QuotaReader, get, read_quota
from covey.protocol.ids import BudgetKey
from covey.protocol.messages.broker import Acquire, Granted, QuotaSeen, QuotaWindow
from covey.protocol.quota import QuotaUnread
from covey.protocol.settings import ProviderSettings
from covey.protocol.transcript import Message, Role
from covey.protocol.version import VERSION

KEY = "sk-0123456789"
BUDGET = BudgetKey("zai:1f2e3d4c5b6a")
LIMITS = b'{"data": {"limits": [{"type": "TOKENS_LIMIT", "unit": 3, "number": 5, "percentage": 7}]}}'
WINDOWS = (QuotaWindow(name="TOKENS_LIMIT 5 h", used_percent=7.0),)


def provider_at(base_url: str) -> ProviderSettings:
    return ProviderSettings(name="sim", base_url=base_url)


@contextlib.asynccontextmanager
async def fresh_clients() -> AsyncIterator[Clients]:
    clients = Clients(environment={})
    try:
        yield clients
    finally:
        await clients.close()


async def reading(base_url: str, key: str, **how: float) -> tuple[QuotaWindow, ...] | QuotaUnread:
    async with fresh_clients() as clients:
        return await read_quota(clients, provider_at(base_url), key, **how)


class Server:
    """Answers each request with what `answer` makes of its head; `heads` are those it got, in lower case."""

    def __init__(self, answer: Callable[[str], Awaitable[bytes]]) -> None:
        self._answer = answer
        self.heads: list[str] = []
        self.base_url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._reply(reader, writer)
        finally:
            writer.transport.abort()

    async def _reply(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head.lower())
            writer.write(await self._answer(head))
            await writer.drain()

    async def close(self) -> None:
        """End what still answers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks)


@contextlib.asynccontextmanager
async def serving(answer: Callable[[str], Awaitable[bytes]]) -> AsyncIterator[Server]:
    server = Server(answer)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.base_url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        listening.close()
        await server.close()
        await listening.wait_closed()


def http(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode() + body


async def limits(_: str) -> bytes:
    return http(LIMITS)


def test_the_key_goes_bare_to_the_path_beside_the_calls_under_our_own_name() -> None:
    async def scene() -> None:
        async with serving(limits) as server:
            assert await reading(server.base_url, f" {KEY}\n") == WINDOWS

            (head,) = server.heads
            assert head.startswith("get /api/monitor/usage/quota/limit http/1.1")
            assert f"\r\nauthorization: {KEY}\r\n" in head
            assert f"\r\nuser-agent: covey/{VERSION}\r\n" in head

    asyncio.run(scene())


def test_a_host_that_wants_the_key_as_everywhere_else_gets_it_so() -> None:
    async def picky(head: str) -> bytes:
        return http(LIMITS) if f"Bearer {KEY}" in head else http(b"{}", "401 Unauthorized")

    async def scene() -> None:
        async with serving(picky) as server:
            assert await reading(server.base_url, KEY) == WINDOWS
            assert len(server.heads) == 2

    asyncio.run(scene())


def test_a_refusal_is_told_once_more_and_without_the_key() -> None:
    async def refuse(_: str) -> bytes:
        return http(b'{"code": 401, "msg": "bad token %s"}' % KEY.encode())

    async def scene() -> None:
        async with serving(refuse) as server:
            found = await reading(server.base_url, KEY)

            assert found == QuotaUnread(problem="code 401: bad token [key]", is_key_refused=True)
            assert len(server.heads) == 2

    asyncio.run(scene())


def test_a_redirect_is_not_followed() -> None:
    async def elsewhere(_: str) -> bytes:
        return http(b"", "302 Found", "location: /other\r\n")

    async def scene() -> None:
        async with serving(elsewhere) as server:
            found = await reading(server.base_url, KEY)

            assert isinstance(found, QuotaUnread)
            assert len(server.heads) == 1

    asyncio.run(scene())


def test_a_silent_host_ends_at_the_deadline() -> None:
    async def never(_: str) -> bytes:
        await asyncio.sleep(30)
        return b""

    async def scene() -> None:
        async with serving(never) as server:
            found = await reading(server.base_url, KEY, deadline_s=0.1)

            assert found == QuotaUnread(problem="no answer within 0.1 s")

    asyncio.run(scene())


def test_an_endless_answer_is_cut() -> None:
    async def scene() -> None:
        async with serving(lambda _: asyncio.sleep(0, http(b"x" * 4 * MOST_BYTES))) as server:
            async with fresh_clients() as clients:
                got = await get(clients, provider_at(server.base_url), server.base_url, headers={})

            assert isinstance(got, Got)
            assert len(got.body) == MOST_BYTES

    asyncio.run(scene())


@pytest.mark.parametrize("key", ["", "  ", "sk-\u201cquoted\u201d", "two\nlines"])
def test_what_is_no_key_is_sent_nowhere(key: str) -> None:
    async def scene() -> None:
        async with serving(limits) as server:
            assert isinstance(await reading(server.base_url, key), QuotaUnread)
            assert server.heads == []

    asyncio.run(scene())


def test_nobody_there_is_a_reason_and_no_error() -> None:
    found = asyncio.run(reading("http://127.0.0.1:1/v1", KEY))

    assert isinstance(found, QuotaUnread)
    assert "ConnectError" in found.problem


# --- beside the calls ------------------------------------------------------------------------------------------------


def test_wishes_that_come_during_a_reading_are_dropped_and_the_broker_is_told_once() -> None:
    async def scene() -> None:
        seen: asyncio.Queue[QuotaSeen] = asyncio.Queue()
        go_on = asyncio.Event()

        async def slow(_: str) -> bytes:
            await go_on.wait()
            return http(LIMITS)

        async with serving(slow) as server, fresh_clients() as clients:
            reader = QuotaReader(seen.put_nowait, clients)
            for _ in range(5):
                reader.wish(BUDGET, provider_at(server.base_url), KEY)
            await asyncio.sleep(0)
            reader.wish(BudgetKey("zai:other"), provider_at(server.base_url), KEY)
            go_on.set()

            assert await asyncio.wait_for(seen.get(), 10) == QuotaSeen(budget=BUDGET, windows=WINDOWS)
            assert len(server.heads) == 1
            await reader.close()
            assert seen.empty()

    asyncio.run(scene())


def test_an_account_that_could_not_be_read_is_left_alone_for_a_while() -> None:
    async def scene() -> None:
        now = [0.0]
        seen: asyncio.Queue[QuotaSeen] = asyncio.Queue()
        answers = [http(b"", "500 Oops"), http(LIMITS)]
        failed = asyncio.Event()

        async def twice(_: str) -> bytes:
            failed.set()
            return answers.pop(0)

        async with serving(twice) as server, fresh_clients() as clients:
            reader = QuotaReader(seen.put_nowait, clients, clock=lambda: now[0])
            reader.wish(BUDGET, provider_at(server.base_url), KEY)
            await asyncio.wait_for(failed.wait(), 10)
            assert reader._task is not None
            await reader._task

            reader.wish(BUDGET, provider_at(server.base_url), KEY)
            now[0] = AGAIN_S
            assert len(server.heads) == 1
            reader.wish(BUDGET, provider_at(server.base_url), KEY)

            await asyncio.wait_for(seen.get(), 10)
            assert len(server.heads) == 2
            await reader.close()

    asyncio.run(scene())


def test_without_a_key_nothing_is_read() -> None:
    async def scene() -> None:
        reader = QuotaReader(lambda _: pytest.fail("nothing was read"), Clients(environment={}))
        reader.wish(BUDGET, provider_at("http://127.0.0.1:1"), None)
        await reader.close()

    asyncio.run(scene())


class OneSlot:
    """A broker that always has a slot, and wishes for the quota or not."""

    def __init__(self, *, wants_quota: bool) -> None:
        self._wants_quota = wants_quota

    @contextlib.asynccontextmanager
    async def slot(self, request: Acquire) -> AsyncIterator[Hold]:
        yield Hold(
            Granted(call=request.call, budget=BUDGET, limit=1, in_flight=1, waited_s=0, wants_quota=self._wants_quota)
        )


@pytest.mark.parametrize("wants_quota", [True, False])
def test_a_call_hands_the_broker_s_wish_on_when_it_has_ended(wants_quota: bool) -> None:
    async def refuse(_: str) -> bytes:
        return http(b"", "401 Unauthorized")

    async def scene() -> None:
        wished: list[tuple[BudgetKey, ProviderSettings, str | None]] = []
        clients = Clients()
        async with serving(refuse) as server:
            provider = ProviderSettings(name="zai", base_url=server.base_url, api_key_env="ZAI_API_KEY")
            outcome = await run_call(
                CallRequest(targets=(Target(provider, "m"),), messages=(Message(role=Role.USER, content="hi"),)),
                Caller(
                    slots=OneSlot(wants_quota=wants_quota),
                    keys=EnvironmentKeys({"ZAI_API_KEY": KEY}),
                    clients=clients,
                    benches=Benches(),
                    record=lambda _: wished.clear(),
                    on_quota_wanted=lambda *wish: wished.append(wish),
                ),
            )
            await clients.close()
        assert isinstance(outcome, CallUnanswered)
        assert wished == ([(BUDGET, provider, KEY)] if wants_quota else [])

    asyncio.run(scene())
