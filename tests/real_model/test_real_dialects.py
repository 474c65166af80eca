"""One call to a real server in each of the three dialects it speaks: read, counted, cut, cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from covey.actors.calls.benches import Benches
from covey.actors.calls.call import run_call
from covey.actors.calls.call_request import CallAnswered, CallRequest
from covey.actors.calls.caller import Caller
from covey.actors.calls.environment_keys import EnvironmentKeys
from covey.actors.calls.route import Target
from covey.actors.http.clients import Clients
from covey.actors.ports import Hold
from covey.bench.model_server import ModelServer
from covey.protocol.dialects.base import Finish, TextDelta
from covey.protocol.messages.broker import Acquire, Unlimited
from covey.protocol.messages.ledger import CallRecorded, CallStatus
from covey.protocol.settings import Dialect, ProviderSettings
from covey.protocol.transcript import Message, Role

pytestmark = [pytest.mark.real_model, pytest.mark.slow, pytest.mark.timeout(300)]

DIALECTS = [Dialect.CHAT, Dialect.ANTHROPIC, Dialect.RESPONSES]
MESSAGES = (
    Message(role=Role.SYSTEM, content="Answer in one short sentence."),
    Message(role=Role.USER, content="What do geese eat?"),
)


class Uncounted:
    """Slots of an account that nobody counts."""

    @asynccontextmanager
    async def slot(self, request: Acquire) -> AsyncIterator[Hold]:
        yield Hold(Unlimited(call=request.call))


class Desk:
    """A caller of one server, with what it recorded and heard."""

    def __init__(self, server: ModelServer, dialect: Dialect) -> None:
        self.target = Target(ProviderSettings(name="local", base_url=server.base_url, dialect=dialect), "smollm2")
        self.clients = Clients()
        self.records: list[CallRecorded] = []
        self.heard: list[object] = []
        self.has_begun = asyncio.Event()

    def hear(self, event: object) -> None:
        self.heard.append(event)
        self.has_begun.set()

    async def ask(self, max_tokens: int) -> CallAnswered:
        caller = Caller(
            slots=Uncounted(),
            keys=EnvironmentKeys({}),
            clients=self.clients,
            benches=Benches(),
            record=self.records.append,
            on_event=self.hear,
        )
        request = CallRequest(targets=(self.target,), messages=MESSAGES, max_answer_tokens=max_tokens)
        outcome = await run_call(request, caller)
        assert isinstance(outcome, CallAnswered), outcome
        return outcome


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_is_read_and_counted(model_server: ModelServer, dialect: Dialect) -> None:
    async def asked() -> None:
        desk = Desk(model_server, dialect)
        answer = (await desk.ask(64)).answer
        await desk.clients.close()

        assert answer.complete
        assert answer.text == "".join(event.text for event in desk.heard if isinstance(event, TextDelta))
        assert answer.text.strip()
        assert answer.usage is not None
        assert 20 < answer.usage.prompt_tokens < 200
        assert 1 <= answer.usage.completion_tokens <= 64
        assert [record.usage for record in desk.records] == [answer.usage]

    asyncio.run(asked())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_that_met_its_bound_says_so(model_server: ModelServer, dialect: Dialect) -> None:
    async def asked() -> None:
        desk = Desk(model_server, dialect)
        answer = (await desk.ask(3)).answer
        await desk.clients.close()

        # llama.cpp says `response.completed` of every answer, also of one it cut.
        assert answer.finish is (Finish.STOP if dialect is Dialect.RESPONSES else Finish.LENGTH)
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 3

    asyncio.run(asked())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_call_that_is_cancelled_frees_the_server_s_slot(model_server: ModelServer, dialect: Dialect) -> None:
    async def asked() -> None:
        desk = Desk(model_server, dialect)
        call = asyncio.create_task(desk.ask(1500))
        await desk.has_begun.wait()
        call.cancel()
        await asyncio.wait([call])

        assert [record.status for record in desk.records] == [CallStatus.CANCELLED]
        root = model_server.base_url.removesuffix("/v1")
        async with asyncio.timeout(10), httpx.AsyncClient() as client:
            while any(slot["is_processing"] for slot in (await client.get(f"{root}/slots")).json()):
                pass  # each look is a wait already
        await desk.clients.close()

    asyncio.run(asked())
