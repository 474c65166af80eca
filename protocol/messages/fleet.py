"""The conversation with the root: by clients (spawn, wait, stop, status) and with its workers (place agents)."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ..ids import AgentId, SessionId
from ..settings import ModelSettings
from .base import Done, Failed, Wire
from .broker import BudgetView, Priority
from .ledger import LedgerStats


class AgentState(StrEnum):
    """What an agent does right now."""

    QUEUED = "queued"
    """Accepted; no worker has taken it yet."""
    STARTING = "starting"
    WAITING = "waiting"
    """It waits for a slot of its provider's budget."""
    CALLING = "calling"
    TOOL = "tool"
    DELEGATING = "delegating"
    """It waits for its children and holds nothing."""
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    CAP_REACHED = "cap_reached"
    """A cap on tokens or money left no room for its next call: a normal end."""

    @property
    def is_final(self) -> bool:
        """Whether nothing will follow."""
        return self in (AgentState.DONE, AgentState.FAILED, AgentState.STOPPED, AgentState.CAP_REACHED)


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything needed to run an agent, or to resume it elsewhere from its transcript."""

    agent: AgentId
    session: SessionId
    goal: str
    workspace: str
    """Absolute path: tools work below it."""
    context: str | None = None
    model: ModelSettings | None = None
    """None is the configured default."""
    tools: tuple[str, ...] = ()
    parent: AgentId | None = None
    parent_session: SessionId | None = None
    tree: AgentId
    """The first agent above (itself, if it is the first)."""
    depth: int = 0
    max_turns: int = 50
    max_answer_tokens: int | None = None
    """The provider is asked to cut each answer there; None leaves it to the provider."""
    priority: Priority = Priority.AGENT
    source: str = "run"
    conversation: str | None = None
    """What it goes on with, by the name that this has at `source`: providers keep what all of it has in common warm."""
    cap: str | None = None
    """The cap its calls and its children's spend from, beside the fleet's own."""


class AgentResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an agent ended. `text` is its answer (done), `error` says why not (all others)."""

    agent: AgentId
    session: SessionId
    outcome: AgentState
    text: str = ""
    error: str | None = None
    turns: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class AgentView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent as status shows it."""

    id: AgentId
    session: SessionId
    state: AgentState
    turn: int = 0
    tokens: int = 0
    parent: AgentId | None = None
    worker: str | None = None
    goal: str = ""
    waits_for: str | None = None
    age_s: float = 0.0


class ProcessView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process of the fleet. RSS in MiB."""

    role: str
    name: str
    pid: int
    uptime_s: float
    restarts: int
    rss_mb: float
    threads: int
    state: str = "running"
    incarnation: str = ""
    """Which life it is living; empty for the zygote, and while there is none."""
    rank: int = 0
    """Processes start in order of rank; the root and the zygote are 0."""
    restart: str = ""
    """When it comes back: `permanent`, `transient` or `temporary`."""
    last_exit: str | None = None
    """How its life before this one ended."""
    restarts_left: int | None = None
    """Restarts that its limit still pays for; None for processes without one."""
    over_limit: str | None = None
    """The limits it is over, with the figures: it gets no new agents, or is being replaced."""


# --- clients ask the root --------------------------------------------------------------------------------------------


class Spawn(Wire, frozen=True, kw_only=True, tag="spawn"):
    """Run an agent. The same `agent` again is answered the same and starts nothing. Answered by `Done`."""

    spec: AgentSpec


class AwaitAgent(Wire, frozen=True, kw_only=True, tag="await_agent"):
    """Answered by `Finished` when the agent has ended, however long that takes."""

    agent: AgentId


class StopAgents(Wire, frozen=True, kw_only=True, tag="stop_agents"):
    """Stop these agents and everything below them. Answered by `Done` once no call of theirs can start any more."""

    agents: tuple[AgentId, ...]


class AgentsQuery(Wire, frozen=True, kw_only=True, tag="agents_query"):
    """Answered by `Agents`; cheap enough for live views."""


class StatusQuery(Wire, frozen=True, kw_only=True, tag="status_query"):
    """Answered by `Status`; parts that did not answer within `deadline_s` are None."""

    deadline_s: float = 0.1


class Shutdown(Wire, frozen=True, kw_only=True, tag="shutdown"):
    """Stop the tree. Answered by `ShuttingDown` before it begins."""

    reason: str


class RestartProcesses(Wire, frozen=True, kw_only=True, tag="restart_processes"):
    """Replace processes of the tree, in order and at no cost: one by its name, or all of a role. Repeating it while
    they are being ended changes nothing. Answered by `Restarting`, or `Failed` where nobody is called that.
    """

    target: str


class Finished(Wire, frozen=True, kw_only=True, tag="finished"):
    """The agent's end."""

    result: AgentResult


class Agents(Wire, frozen=True, kw_only=True, tag="agents"):
    """All agents that are not forgotten yet."""

    agents: tuple[AgentView, ...] = ()


class Status(Wire, frozen=True, kw_only=True, tag="status"):
    """The fleet as the root sees it."""

    home: str
    processes: tuple[ProcessView, ...] = ()
    budgets: tuple[BudgetView, ...] | None = None
    agents: tuple[AgentView, ...] = ()
    ledger: LedgerStats | None = None
    strategy: str = ""
    """Who is restarted when one process fails: `one_for_one`, `one_for_all` or `rest_for_one`."""
    config_problem: str | None = None
    """What is wrong with config.yaml as it stands; the last good one holds. None while there is nothing."""


class Restarting(Wire, frozen=True, kw_only=True, tag="restarting"):
    """These are being replaced; so they were before."""

    processes: tuple[ProcessView, ...] = ()


class ShuttingDown(Wire, frozen=True, kw_only=True, tag="shutting_down"):
    """The tree is going down; `processes` were alive."""

    processes: tuple[ProcessView, ...] = ()


# --- the root and its workers ----------------------------------------------------------------------------------------


class StartAgent(Wire, frozen=True, kw_only=True, tag="start_agent"):
    """Root to worker: run this agent, from its transcript if it has one. Answered by `Done`."""

    spec: AgentSpec


class StopLocal(Wire, frozen=True, kw_only=True, tag="stop_local"):
    """Root to worker: stop these agents. Answered by `Done` once none of them can start a call."""

    agents: tuple[AgentId, ...]


class Progress(Wire, frozen=True, kw_only=True, tag="progress"):
    """Worker to root, at most once, coalesced per agent: what its agents do."""

    agents: tuple[AgentView, ...]


class ServiceReady(Wire, frozen=True, kw_only=True, tag="service_ready"):
    """A process of the tree to the root: it serves now. Answered by `Done`; repeatable."""


class AgentFinished(Wire, frozen=True, kw_only=True, tag="agent_finished"):
    """Worker to root: the agent ended and its records are committed. Answered by `Done`; repeatable."""

    result: AgentResult


RootRequest = (
    ServiceReady
    | Spawn
    | AwaitAgent
    | StopAgents
    | AgentsQuery
    | StatusQuery
    | RestartProcesses
    | Shutdown
    | Progress
    | AgentFinished
)
RootReply = Finished | Agents | Status | Restarting | ShuttingDown | Done | Failed
WorkerRequest = StartAgent | StopLocal
WorkerReply = Done | Failed
