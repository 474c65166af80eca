"""A worker's process: many agents on one loop."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import os
from collections.abc import Mapping
from typing import Any, Final

from ...actors.agent import Agent, StopAgent, Surroundings
from ...actors.calls.benches import Benches
from ...actors.http.clients import Clients
from ...actors.ports import Request
from ...actors.quota_reading import QuotaReader
from ...actors.runtime.ref import ActorDown, ActorRef, Down
from ...actors.secrets_scope import ScopedSecrets
from ...protocol.errors import CoveyError
from ...protocol.ids import AgentId
from ...protocol.messages.base import Done, Failed
from ...protocol.messages.broker import BrokerReply
from ...protocol.messages.credentials import CredentialsReply
from ...protocol.messages.fleet import (
    AgentFinished,
    AgentResult,
    AgentSpec,
    AgentState,
    RootReply,
    StartAgent,
    StopLocal,
    WorkerRequest,
)
from ...protocol.messages.ledger import LedgerReply
from ...storage.outbox import Outbox
from ..config import Accepted
from ..config_watch import ConfigWatch, following
from ..family import Family
from ..keys_port import FleetKeys
from ..model_cache import with_learned
from ..records import Records
from ..service import Service, run_service
from ..slots import Slots
from ..zygote_wire import SpawnArguments

GC_OBJECTS: Final = 10_000
"""New objects before the collector looks at the youngest; with the usual 700 it is at it all the time."""
STOP_AGENT_S = 10.0
DRAIN_S = 4.0


def main(role: str, arguments: SpawnArguments, fds: Mapping[str, int]) -> int:
    """Serve until SIGTERM."""
    return run_service(arguments.payload, _serve)


def tune() -> None:
    """Prepare the interpreter of this process for many streams; what is here stays, and is not looked at again."""
    gc.set_threshold(GC_OBJECTS)
    gc.freeze()


async def _serve(service: Service) -> None:
    worker = Worker(service)
    await worker.open()
    await service.stop_asked.wait()
    await worker.close()


class Worker:
    """The agents of this process. Owned by the loop thread."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._agents: dict[AgentId, ActorRef] = {}
        self._ended: dict[AgentId, AgentResult | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    async def open(self) -> None:
        """Connect to the services and take agents from now on."""
        service = self._service
        outbox = Outbox(service.home.outbox, role="worker", incarnation=service.me.incarnation)
        self._records = Records(service.link("ledger", LedgerReply), outbox)
        broker = service.link("broker", BrokerReply | CredentialsReply)
        slots = await Slots.connect(broker, timeout_s=30.0)
        self._root = service.link("root", RootReply, requests=WorkerRequest, on_request=self._on_request)
        self._family = Family(self._root)
        self._clients = Clients()
        self._quotas = QuotaReader(broker.post, self._clients)
        self._benches = Benches(stale_calls=service.settings.calls.breaker_stale_calls)
        self._around = Surroundings(
            slots=slots,
            keys=FleetKeys(broker, ScopedSecrets(), service.home),
            clients=self._clients,
            benches=self._benches,
            ledger=self._records,
            children=self._family,
            settings=with_learned(service.settings, service.home),
            environment=os.environ,
            on_quota_wanted=self._quotas.wish,
        )
        self._config = ConfigWatch(service.home.config, service.settings, on_change=self._configured)
        await service.ready(self._root)
        tune()

    async def close(self) -> None:
        """Let go of all agents as they are: transcripts say where they were, and nothing is reported as an end."""
        self._closing = True
        self._config.close()
        for ref in self._agents.values():
            ref.kill()
        await asyncio.gather(*(_gone(ref) for ref in list(self._agents.values())))
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._family.close()
        await self._quotas.close()
        await self._clients.close()
        await self._records.close(timeout_s=DRAIN_S)

    def _configured(self, accepted: Accepted) -> None:
        """Agents that start from now on see the new configuration; what rested may be what was put right in it."""
        settings = with_learned(following(self._service.settings, accepted.settings), self._service.home)
        self._benches.reconfigure(stale_calls=settings.calls.breaker_stale_calls)
        self._around = dataclasses.replace(self._around, settings=settings)

    # --- requests of the root ------------------------------------------------------------------------------------

    def _on_request(self, request: Request[Any]) -> None:
        match request.body:
            case StartAgent(spec=spec):
                self._spawn(self._start(spec, request))
            case StopLocal(agents=agents):
                self._spawn(self._stop(agents, request))

    async def _start(self, spec: AgentSpec, request: Request[Any]) -> None:
        agent = spec.agent
        if self._closing or agent in self._agents or agent in self._ended:
            request.reply(Done())
            return
        try:
            ref = await Agent.start_ready(
                spec, self._around, self._finished, name=f"agent:{agent}", deadline_s=STOP_AGENT_S
            )
        except CoveyError as error:
            request.reply(Failed(kind=type(error).__name__, message=str(error)))
            return
        self._agents[agent] = ref
        ref.watch(lambda down: self._down(spec, down))
        request.reply(Done())

    async def _stop(self, agents: tuple[AgentId, ...], request: Request[Any]) -> None:
        """An agent acknowledges when no call of it can start any more; one that is gone cannot start any either."""
        refs = [self._agents[agent] for agent in agents if agent in self._agents]
        errors = [error for error in await asyncio.gather(*map(_stop_one, refs)) if error is not None]
        request.reply(Failed(kind="StopFailed", message=errors[0]) if errors else Done())

    # --- ends ----------------------------------------------------------------------------------------------------

    def _finished(self, result: AgentResult) -> None:
        """The agent's own word, after its records are committed."""
        self._ended[result.agent] = result
        self._spawn(self._report(result))

    def _down(self, spec: AgentSpec, down: Down) -> None:
        """The actor is gone. Without a word of its own it crashed: that is an end too, and somebody waits for it."""
        self._agents.pop(spec.agent, None)
        if self._closing or spec.agent in self._ended:
            return
        self._finished(
            AgentResult(
                agent=spec.agent,
                session=spec.session,
                outcome=AgentState.FAILED,
                error=f"the agent crashed: {down.reason}",
            )
        )

    async def _report(self, result: AgentResult) -> None:
        # Repeated over every reconnect until the root has it; the root's own end ends this process.
        await self._root.ask(AgentFinished(result=result), timeout_s=None)
        self._ended.pop(result.agent, None)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _stop_one(ref: ActorRef) -> str | None:
    try:
        await ref.ask(StopAgent("it was stopped"), deadline_s=STOP_AGENT_S)
    except ActorDown:
        return None
    except CoveyError as error:
        return str(error)
    return None


async def _gone(ref: ActorRef) -> None:
    try:
        await ref.stopped(deadline_s=DRAIN_S)
    except CoveyError:
        return  # the process ends anyway
