"""The root's desk: answers clients and workers. What to do with agents is `placement`'s to say; this performs it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol, cast

import msgspec

from ..actors.ports import Request
from ..protocol.errors import AskTimeout, CoveyError, RemoteError, UsageError
from ..protocol.ids import AgentId, Incarnation
from ..protocol.messages.base import Done, Failed, Wire
from ..protocol.messages.broker import Budgets, BudgetsQuery, Revoke
from ..protocol.messages.fleet import (
    AgentFinished,
    AgentResult,
    Agents,
    AgentSpec,
    AgentsQuery,
    AgentState,
    AwaitAgent,
    Finished,
    ProcessView,
    Progress,
    Restarting,
    RestartProcesses,
    ServiceReady,
    Shutdown,
    ShuttingDown,
    Spawn,
    StartAgent,
    Status,
    StatusQuery,
    StopAgents,
    StopLocal,
)
from ..protocol.messages.ledger import LedgerStats, LedgerStatsQuery
from ..protocol.peer import Peer
from ..protocol.settings import Settings
from ..storage.logs import log_event
from .hub import Hub
from .link import Link
from .models import resolve_model
from .placement import Action, Place, Placement, Resolve, Standing, StopAt, Worker

log = logging.getLogger(__name__)

WORKER_ANSWERS_S = 30.0
REVOKE_S = 1.0
"""A broker that is just being replaced does not hold a stop up: the workers see to it as well."""


class Tree(Protocol):
    """The process tree, as the desk needs it."""

    def service_ready(self, peer: Peer) -> None:
        """A process of the tree serves."""
        ...

    def stop(self, reason: str) -> None:
        """Begin to stop everything."""
        ...

    def processes(self) -> tuple[ProcessView, ...]:
        """What runs now."""
        ...

    def restart(self, target: str) -> tuple[str, ...]:
        """Replace processes by name or role; which those are."""
        ...

    @property
    def strategy(self) -> str:
        """Who is restarted when one process fails."""
        ...

    @property
    def config_problem(self) -> str | None:
        """What is wrong with config.yaml as it stands, while the last good one holds."""
        ...


class Desk:
    """Serves the root's conversation. Owned by the root's loop thread."""

    def __init__(
        self, *, home: str, settings: Settings, tree: Tree, broker: Link, ledger: Link, clock: Callable[[], float]
    ) -> None:
        self._home = home
        self._settings = settings
        self._tree = tree
        self._broker = broker
        self._ledger = ledger
        self._clock = clock
        self._placement = Placement(max_agents=settings.fleet.max_agents)
        self._hub: Hub | None = None
        self._workers: dict[Worker, Peer] = {}
        self._waiters: dict[AgentId, list[Callable[[Wire], None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def attach(self, hub: Hub) -> None:
        """The hub to ask workers through."""
        self._hub = hub

    def on_request(self, request: Request[Any]) -> None:
        """Answer one request, now or later."""
        body = request.body
        match body:
            case Spawn(spec=spec):
                request.reply(self._spawn(spec))
            case AwaitAgent(agent=agent):
                self._await(agent, request.reply)
            case StopAgents(agents=agents):
                self._start(self._stop(agents, request.reply))
            case AgentsQuery():
                request.reply(Agents(agents=self._placement.views(self._clock())))
            case StatusQuery(deadline_s=deadline_s):
                self._start(self._status(deadline_s, request.reply))
            case RestartProcesses(target=target):
                request.reply(self._restart(target))
            case Shutdown(reason=reason):
                request.reply(ShuttingDown(processes=self._tree.processes()))
                self._tree.stop(reason)
            case Progress(agents=views):
                self._placement.progress(views, _worker(request.peer))
            case AgentFinished(result=result):
                self._perform(self._placement.finished(result, _worker(request.peer)))
                request.reply(Done())
            case ServiceReady():
                self._tree.service_ready(request.peer)
                if request.peer.role == "worker":
                    self._worker_ready(request.peer)
                request.reply(Done())

    def _restart(self, target: str) -> Wire:
        before = {process.name: process for process in self._tree.processes()}
        names = self._tree.restart(target)
        if not names:
            known = dict.fromkeys(word for process in before.values() for word in (process.role, process.name))
            valid = ", ".join(word for word in known if word not in ("root", "zygote"))
            return Failed(kind="UnknownProcess", message=f"no process is called {target!r}; there are {valid}")
        return Restarting(processes=tuple(before[name] for name in names if name in before))

    def configure(self, settings: Settings) -> None:
        """Hold to these from now on; what is fixed for the fleet's life is as it was."""
        self._settings = settings

    def worker_lost(self, name: str) -> None:
        """That worker's process has ended."""
        for worker in [worker for worker in self._workers if worker.name == name]:
            del self._workers[worker]
        self._perform(self._placement.worker_lost(name))

    # --- limits, as the warden tells them ------------------------------------------------------------------------

    def has_agents(self, name: str, life: Incarnation) -> bool:
        """See `warden.Agents`."""
        return self._placement.has_agents(Worker(name, life))

    def set_standing(self, name: str, life: Incarnation, standing: Standing) -> None:
        """See `warden.Agents`."""
        self._perform(self._placement.set_standing(Worker(name, life), standing))

    def set_room(self, agents: float) -> None:
        """See `warden.Agents`."""
        self._perform(self._placement.set_room(agents))

    async def close(self) -> None:
        """Stop working; whoever waits for an agent hears that the fleet is going down."""
        for waiters in self._waiters.values():
            for reply in waiters:
                reply(Failed(kind="FleetStopped", message="the fleet was stopped before the agent ended"))
        self._waiters.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- agents --------------------------------------------------------------------------------------------------

    def _spawn(self, spec: AgentSpec) -> Wire:
        try:
            model = resolve_model(spec.model, self._settings)
        except UsageError as error:
            return Failed(kind="UsageError", message=str(error))
        fleet = self._settings.fleet
        if spec.depth > fleet.max_spawn_depth:
            return Failed(
                kind="TooDeep",
                message=f"depth {spec.depth} is below fleet.max_spawn_depth {fleet.max_spawn_depth}",
            )
        known = msgspec.structs.replace(spec, model=model, max_turns=spec.max_turns or fleet.max_turns)
        refused, actions = self._placement.spawn(known, self._clock())
        self._perform(actions)
        return Done() if refused is None else Failed(kind="Refused", message=refused)

    def _await(self, agent: AgentId, reply: Callable[[Wire], None]) -> None:
        try:
            result = self._placement.result(agent)
        except KeyError:
            reply(Failed(kind="UnknownAgent", message=f"no agent {agent} is known to this fleet"))
            return
        if result is not None:
            reply(Finished(result=result))
        else:
            self._waiters.setdefault(agent, []).append(reply)

    async def _stop(self, agents: tuple[AgentId, ...], reply: Callable[[Wire], None]) -> None:
        """Every worker that runs one of them says when none can start a call any more; a dead one needs no asking.

        The broker hears it first: from then on none of them gets a slot, wherever it is just now.
        """
        actions = self._placement.stop(agents)
        revoked = tuple(agent for action in actions if isinstance(action, StopAt) for agent in action.agents)
        if revoked:
            await _unless_late(self._broker, Revoke(agents=revoked), REVOKE_S)
        self._perform([action for action in actions if not isinstance(action, StopAt)])
        asks = [self._stop_at(action) for action in actions if isinstance(action, StopAt)]
        for error in await asyncio.gather(*asks):
            if error is not None:
                reply(Failed(kind="StopFailed", message=error))
                return
        reply(Done())

    async def _stop_at(self, action: StopAt) -> str | None:
        peer = self._workers.get(action.worker)
        if peer is None:
            return None
        assert self._hub is not None, "the desk is attached to a hub before it serves"
        try:
            await self._hub.ask(peer, StopLocal(agents=action.agents), timeout_s=WORKER_ANSWERS_S)
        except RemoteError as error:
            return None if error.kind == "PeerGone" else str(error)
        except AskTimeout as error:
            return str(error)
        return None

    def _worker_ready(self, peer: Peer) -> None:
        worker = _worker(peer)
        if worker not in self._workers:
            self._workers[worker] = peer
            self._perform(self._placement.worker_ready(worker))

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Place():
                    self._start(self._place(action))
                case Resolve(result=result):
                    self._resolve(result)
                case StopAt():
                    self._start(self._stop_later(action))

    async def _stop_later(self, action: StopAt) -> None:
        await self._stop_at(action)

    async def _place(self, place: Place) -> None:
        """Hand the agent over, however long the worker takes; its death ends this, and the agent is placed anew."""
        assert self._hub is not None, "the desk is attached to a hub before it serves"
        while (peer := self._workers.get(place.worker)) is not None:
            try:
                await self._hub.ask(peer, StartAgent(spec=place.spec), timeout_s=WORKER_ANSWERS_S)
            except AskTimeout:
                log_event(log, "worker_slow_to_start_agent", worker=place.worker.name, agent=place.spec.agent)
                continue
            except RemoteError as error:
                if error.kind != "PeerGone":
                    self._perform(self._placement.finished(_failed(place.spec, str(error)), place.worker))
            return

    def _resolve(self, result: AgentResult) -> None:
        for reply in self._waiters.pop(result.agent, []):
            reply(Finished(result=result))

    # --- status --------------------------------------------------------------------------------------------------

    async def _status(self, deadline_s: float, reply: Callable[[Wire], None]) -> None:
        budgets, ledger = await asyncio.gather(
            _unless_late(self._broker, BudgetsQuery(), deadline_s),
            _unless_late(self._ledger, LedgerStatsQuery(), deadline_s),
        )
        reply(
            Status(
                home=self._home,
                processes=self._tree.processes(),
                budgets=cast(Budgets, budgets).budgets if budgets is not None else None,
                agents=self._placement.views(self._clock()),
                ledger=cast(LedgerStats, ledger),
                strategy=self._tree.strategy,
                config_problem=self._tree.config_problem,
            )
        )

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _unless_late(link: Link, query: Wire, deadline_s: float) -> Wire | None:
    try:
        return await link.ask(query, timeout_s=deadline_s)
    except CoveyError:
        return None


def _worker(peer: Peer) -> Worker:
    return Worker(peer.name, peer.incarnation)


def _failed(spec: AgentSpec, error: str) -> AgentResult:
    return AgentResult(agent=spec.agent, session=spec.session, outcome=AgentState.FAILED, error=error)
