"""Which agent runs where: the root's table of agents, without I/O.

An agent is queued until a worker takes it, and queued again when that worker's life is over: the next worker resumes it
from its transcript. Only the confirmed end of a worker moves its agents, so no agent ever runs twice at once.

Owned by the root's loop thread; each method returns what has to be done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..protocol.ids import AgentId, Incarnation
from ..protocol.messages.fleet import AgentResult, AgentSpec, AgentState, AgentView

MAX_REMEMBERED = 5_000
"""Ended agents that are kept for status and late waiters; results stay in state.db."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One life of a worker process."""

    name: str
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class Place:
    """Send this agent to this worker."""

    worker: Worker
    spec: AgentSpec


@dataclass(frozen=True, slots=True)
class Resolve:
    """The agent has ended: tell whoever waits for it."""

    result: AgentResult


@dataclass(frozen=True, slots=True)
class StopAt:
    """Tell this worker to stop these agents."""

    worker: Worker
    agents: tuple[AgentId, ...]


Action = Place | Resolve | StopAt


@dataclass(slots=True)
class _Entry:
    spec: AgentSpec
    since: float
    worker: Worker | None = None
    view: AgentView | None = None
    result: AgentResult | None = None
    stopping: bool = False
    children: set[AgentId] = field(default_factory=set)


class Placement:
    """All agents of the fleet and the workers that can take them."""

    def __init__(self, *, max_agents: int) -> None:
        self._max_agents = max_agents
        self._entries: dict[AgentId, _Entry] = {}
        self._queue: deque[AgentId] = deque()
        self._workers: dict[str, Worker] = {}
        self._load: dict[Worker, int] = {}
        self._ended: deque[AgentId] = deque()
        self._alive = 0

    @property
    def alive(self) -> int:
        """Agents that have not ended."""
        return self._alive

    def spawn(self, spec: AgentSpec, now: float) -> tuple[str | None, list[Action]]:
        """Take an agent in; the first value says why it was refused. A known one changes nothing."""
        if spec.agent in self._entries:
            return None, []
        parent = self._entries.get(spec.parent) if spec.parent is not None else None
        if parent is not None and (parent.stopping or parent.result is not None):
            return f"its parent {spec.parent} was stopped or has ended", []
        if self._alive >= self._max_agents:
            return (
                f"{self._alive} agents are alive and fleet.max_agents is {self._max_agents}; wait for some to end",
                [],
            )
        self._entries[spec.agent] = _Entry(spec, now)
        self._alive += 1
        if parent is not None:
            parent.children.add(spec.agent)
        self._queue.append(spec.agent)
        return None, self._place()

    def worker_ready(self, worker: Worker) -> list[Action]:
        """A worker serves from now on."""
        lost = self.worker_lost(worker.name)
        self._workers[worker.name] = worker
        self._load[worker] = 0
        return lost + self._place()

    def worker_lost(self, name: str) -> list[Action]:
        """That worker's life is over (known from the kernel): its agents wait for another one."""
        worker = self._workers.pop(name, None)
        if worker is None:
            return []
        self._load.pop(worker, None)
        actions: list[Action] = []
        for agent, entry in self._entries.items():
            if entry.worker != worker or entry.result is not None:
                continue
            entry.worker = None
            if entry.stopping:
                actions += self._end(entry, _stopped(entry.spec))
            else:
                entry.view = None
                self._queue.append(agent)
        return actions + self._place()

    def progress(self, views: Iterable[AgentView], worker: Worker) -> None:
        """What a worker says of its agents; another life's word is ignored."""
        for view in views:
            entry = self._entries.get(view.id)
            if entry is not None and entry.worker == worker and entry.result is None:
                entry.view = view

    def finished(self, result: AgentResult, worker: Worker) -> list[Action]:
        """An agent ended. Repeating it changes nothing; so does a life whose agents were moved."""
        entry = self._entries.get(result.agent)
        if entry is None or entry.result is not None or entry.worker != worker:
            return []
        self._load[worker] -= 1
        return self._end(entry, result)

    def stop(self, agents: Iterable[AgentId]) -> list[Action]:
        """Stop these agents and all below them; the queued ones end at once."""
        at: dict[Worker, list[AgentId]] = {}
        actions: list[Action] = []
        for agent in self._subtree(agents):
            entry = self._entries[agent]
            if entry.result is not None:
                continue
            entry.stopping = True
            if entry.worker is None:
                self._queue.remove(agent)
                actions += self._end(entry, _stopped(entry.spec))
            else:
                at.setdefault(entry.worker, []).append(agent)
        return actions + [StopAt(worker, tuple(ids)) for worker, ids in at.items()]

    def result(self, agent: AgentId) -> AgentResult | None:
        """How the agent ended; None while it lives. Raises KeyError for one that is not (any more) known."""
        return self._entries[agent].result

    def views(self, now: float) -> tuple[AgentView, ...]:
        """All agents that are remembered, in the order they came."""
        return tuple(self._view(entry, now) for entry in self._entries.values())

    # --- inside --------------------------------------------------------------------------------------------------

    def _place(self) -> list[Action]:
        actions: list[Action] = []
        while self._queue and self._load:
            entry = self._entries[self._queue.popleft()]
            worker = min(self._load, key=self._load.__getitem__)
            self._load[worker] += 1
            entry.worker = worker
            actions.append(Place(worker, entry.spec))
        return actions

    def _end(self, entry: _Entry, result: AgentResult) -> list[Action]:
        entry.result = result
        entry.worker = None
        self._alive -= 1
        self._ended.append(entry.spec.agent)
        while len(self._ended) > MAX_REMEMBERED:
            self._forget(self._ended.popleft())
        return [Resolve(result)]

    def _forget(self, agent: AgentId) -> None:
        entry = self._entries.pop(agent)
        parent = self._entries.get(entry.spec.parent) if entry.spec.parent is not None else None
        if parent is not None:
            parent.children.discard(agent)

    def _subtree(self, agents: Iterable[AgentId]) -> list[AgentId]:
        found: dict[AgentId, None] = {}
        todo = deque(agents)
        while todo:
            agent = todo.popleft()
            if agent in self._entries and agent not in found:
                found[agent] = None
                todo.extend(self._entries[agent].children)
        return list(found)

    def _view(self, entry: _Entry, now: float) -> AgentView:
        spec = entry.spec
        view = entry.view or AgentView(id=spec.agent, session=spec.session, state=AgentState.QUEUED)
        state = view.state
        turn, tokens = view.turn, view.tokens
        if entry.result is not None:
            state, turn = entry.result.outcome, entry.result.turns
            tokens = entry.result.prompt_tokens + entry.result.completion_tokens
        elif entry.worker is not None and entry.view is None:
            state = AgentState.STARTING
        return AgentView(
            id=spec.agent,
            session=spec.session,
            state=state,
            turn=turn,
            tokens=tokens,
            parent=spec.parent,
            worker=entry.worker.name if entry.worker else None,
            goal=spec.goal[:200],
            waits_for=view.waits_for if not state.is_final else None,
            age_s=round(now - entry.since, 3),
        )


def _stopped(spec: AgentSpec) -> AgentResult:
    return AgentResult(agent=spec.agent, session=spec.session, outcome=AgentState.STOPPED, error="it was stopped")
