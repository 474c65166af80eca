"""Which agent runs where: the root's table of agents, without I/O.

An agent is queued until a worker takes it, and queued again when that worker's life is over: the next worker resumes it
from its transcript. Only the confirmed end of a worker moves its agents, so no agent ever runs twice at once.

Agents wait while memory is short or every worker is full, and still none waits for ever. An agent with children that
have not ended waits for them and is not *busy*; while memory is short an agent is placed whenever none is busy. A child
is placed on a full worker if there is no other. Children go first, the deepest before all: each that ends brings a
parent on, which holds memory already.

Owned by the root's loop thread; each method returns what has to be done, and costs O(log n) for each agent it moves.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from ..protocol.ids import AgentId, Incarnation
from ..protocol.messages.fleet import AgentResult, AgentSpec, AgentState, AgentView
from .ranking import Ranking

MAX_REMEMBERED = 5_000
"""Ended agents that are kept for status and late waiters; results stay in state.db."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One life of a worker process."""

    name: str
    incarnation: Incarnation


class Standing(Enum):
    """What a worker may be given."""

    OPEN = auto()
    FULL = auto()
    """No new agents; children of agents only where every other worker is full as well."""
    LEAVING = auto()
    """Nothing any more: it is being replaced."""


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
    living: int = 0
    """Children that have not ended."""

    @property
    def is_busy(self) -> bool:
        """Whether it can go on by itself."""
        return self.worker is not None and self.living == 0


class Placement:
    """All agents of the fleet and the workers that can take them."""

    def __init__(self, *, max_agents: int) -> None:
        self._max_agents = max_agents
        self._entries: dict[AgentId, _Entry] = {}
        self._queue: Ranking[AgentId] = Ranking()
        self._workers: dict[str, Worker] = {}
        self._placed: dict[Worker, dict[AgentId, None]] = {}
        self._standings: dict[Worker, Standing] = {}
        self._ranked: dict[Standing, Ranking[Worker]] = {standing: Ranking() for standing in Standing}
        self._ended: deque[AgentId] = deque()
        self._alive = 0
        self._busy = 0
        self._room = math.inf

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
            self._count_living(parent, 1)
        self._enqueue(spec)
        return None, self._place()

    def worker_ready(self, worker: Worker) -> list[Action]:
        """A worker serves from now on."""
        lost = self.worker_lost(worker.name)
        self._workers[worker.name] = worker
        self._placed[worker] = {}
        self._standings[worker] = Standing.OPEN
        self._rank(worker)
        return lost + self._place()

    def worker_lost(self, name: str) -> list[Action]:
        """That worker's life is over (known from the kernel): its agents wait for another one."""
        worker = self._workers.pop(name, None)
        if worker is None:
            return []
        self._ranked[self._standings.pop(worker)].discard(worker)
        actions: list[Action] = []
        for agent in self._placed.pop(worker):
            entry = self._entries[agent]
            self._set_worker(entry, None)
            if entry.stopping:
                actions += self._end(entry, _stopped(entry.spec))
            else:
                entry.view = None
                self._enqueue(entry.spec)
        return actions + self._place()

    def set_standing(self, worker: Worker, standing: Standing) -> list[Action]:
        """What this worker may be given from now on; a life that is over changes nothing."""
        if worker not in self._standings:
            return []
        self._ranked[self._standings[worker]].discard(worker)
        self._standings[worker] = standing
        self._rank(worker)
        return self._place()

    def set_room(self, agents: float) -> list[Action]:
        """So many agents may be placed until the next word; 0 while memory is short, `inf` if nobody counts."""
        self._room = agents
        return self._place()

    def has_agents(self, worker: Worker) -> bool:
        """Whether any agent is on this life of a worker."""
        return bool(self._placed.get(worker))

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
        return self._end(entry, result) + self._place()

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
                self._queue.discard(agent)
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
        """Place whoever is first, and stop at the first who has to wait: nobody behind could go instead."""
        actions: list[Action] = []
        while (agent := self._queue.first()) is not None:
            entry = self._entries[agent]
            worker = self._worker_for(entry)
            if worker is None:
                break
            self._queue.discard(agent)
            self._placed[worker][agent] = None
            self._rank(worker)
            self._set_worker(entry, worker)
            self._room -= 1
            actions.append(Place(worker, entry.spec))
        return actions

    def _worker_for(self, entry: _Entry) -> Worker | None:
        if not self._has_memory():
            return None
        worker = self._ranked[Standing.OPEN].first()
        if worker is None and entry.spec.parent is not None:
            worker = self._ranked[Standing.FULL].first()
        return worker

    def _has_memory(self) -> bool:
        return self._room >= 1 or self._busy == 0

    def _enqueue(self, spec: AgentSpec) -> None:
        self._queue.put(spec.agent, (spec.parent is None, -spec.depth))

    def _rank(self, worker: Worker) -> None:
        self._ranked[self._standings[worker]].put(worker, (len(self._placed[worker]),))

    def _set_worker(self, entry: _Entry, worker: Worker | None) -> None:
        self._busy -= entry.is_busy
        entry.worker = worker
        self._busy += entry.is_busy

    def _count_living(self, parent: _Entry, change: int) -> None:
        self._busy -= parent.is_busy
        parent.living += change
        self._busy += parent.is_busy

    def _end(self, entry: _Entry, result: AgentResult) -> list[Action]:
        if entry.worker is not None:
            del self._placed[entry.worker][entry.spec.agent]
            self._rank(entry.worker)
            self._set_worker(entry, None)
        entry.result = result
        if (parent := self._parent(entry)) is not None:
            self._count_living(parent, -1)
        self._alive -= 1
        self._ended.append(entry.spec.agent)
        while len(self._ended) > MAX_REMEMBERED:
            self._forget(self._ended.popleft())
        return [Resolve(result)]

    def _forget(self, agent: AgentId) -> None:
        entry = self._entries.pop(agent)
        if (parent := self._parent(entry)) is not None:
            parent.children.discard(agent)

    def _parent(self, entry: _Entry) -> _Entry | None:
        return self._entries.get(entry.spec.parent) if entry.spec.parent is not None else None

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
            waits_for=self._waits_for(entry, view),
            age_s=round(now - entry.since, 3),
        )

    def _waits_for(self, entry: _Entry, view: AgentView) -> str | None:
        if entry.result is not None:
            return None
        if entry.worker is not None:
            return view.waits_for
        if len(self._ranked[Standing.LEAVING]) == len(self._workers):
            return "worker"
        return "room in a worker" if self._has_memory() else "memory"


def _stopped(spec: AgentSpec) -> AgentResult:
    return AgentResult(agent=spec.agent, session=spec.session, outcome=AgentState.STOPPED, error="it was stopped")
