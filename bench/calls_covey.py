"""Calls as covey's agents make them: a slot, the attempt, its stream, and its account with the ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from ..actors.calls.benches import Benches
from ..actors.calls.call import run_call
from ..actors.calls.call_request import CallAnswered, CallRequest
from ..actors.calls.caller import Caller
from ..actors.calls.route import Target
from ..actors.http.clients import Clients
from ..protocol.ids import AgentId, SessionId
from ..protocol.messages.base import Wire
from ..protocol.settings import ProviderSettings
from ..protocol.transcript import Message, Role
from ..supervisor.client import AsyncFleet
from ..supervisor.home import Home
from ..supervisor.keys_port import FleetKeys
from ..supervisor.roles.worker import tune
from .calls_answer import QUESTION, TEXT
from .calls_meter import Call

READY_S = 30.0


@asynccontextmanager
async def covey_calls(base_url: str, home: str) -> AsyncIterator[tuple[Call, Callable[[], Awaitable[None]]]]:
    """A call through the fleet of that home, and how to wait until all of them are accounted for."""
    tune()  # as a worker is
    fleet = await AsyncFleet.join(Home.locate(home), name="bench", timeout_s=READY_S)
    provider = ProviderSettings(name="sim", base_url=base_url)
    clients, benches, keys = Clients(), Benches(), FleetKeys(_Unasked(), {}, fleet.home)
    messages = (Message(role=Role.USER, content=QUESTION),)

    async def call(model: str, lane: int) -> None:
        caller = Caller(slots=fleet.slots, keys=keys, clients=clients, benches=benches, record=fleet.records.record)
        request = CallRequest(
            targets=(Target(provider, model),),
            messages=messages,
            session=SessionId(f"ses_{lane}"),
            agent=AgentId(f"ag_{lane}"),
            tree=f"ag_{lane}",
        )
        outcome = await run_call(request, caller)
        if not isinstance(outcome, CallAnswered) or outcome.answer.text != TEXT or outcome.answer.usage is None:
            raise RuntimeError(f"an answer did not come as it was sent: {outcome}")

    async def settle() -> None:
        await fleet.records.flush(timeout_s=READY_S)

    try:
        yield call, settle
    finally:
        await clients.close()
        await fleet.close()


class _Unasked:
    """The link that keys are asked over: nobody has to be asked where a provider needs none."""

    async def ask(self, message: Wire, *, timeout_s: float | None) -> Wire:
        """See `keys_port.Asking`."""
        raise NotImplementedError

    def post(self, message: Wire) -> None:
        """See `keys_port.Asking`."""
        raise NotImplementedError
