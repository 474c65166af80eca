"""An agent: one goal, one session, as an actor. A thin shell around the conversation machine.

Two tasks of the actor: the *conversation* performs what the machine says and is cancelled by a stop; the *life* waits
for its end, whatever it was, stores it and only then reports it. An agent that is killed instead (its worker goes down)
reports nothing: another worker resumes it from its transcript.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Final, assert_never

import msgspec

from ..protocol.affinity import affinity_key, session_affinity
from ..protocol.dialects.base import Finish as FinishReason
from ..protocol.errors import CapReached, CoveyError
from ..protocol.messages.fleet import AgentResult, AgentSpec, AgentState, AgentView
from ..protocol.messages.ledger import (
    CallRecorded,
    CallStatus,
    GenerationQuery,
    MessageAppended,
    SessionEnded,
    SessionOpened,
    TotalsQuery,
    TranscriptQuery,
)
from ..protocol.transcript import Message, Role, ToolCall
from .calls.call import run_call
from .calls.call_request import CallAnswered, CallRequest, CallUnanswered
from .calls.caller import Caller
from .calls.targets import Way, way_of
from .conversation import Rules, step
from .conversation_events import (
    Answered,
    AppendMessage,
    Began,
    Broken,
    CallFailed,
    CapMet,
    Conversation,
    Event,
    Finish,
    RunTools,
    StartCall,
    Stopped,
    ToolEnded,
)
from .equipment import equip
from .prompt import STATIC, request, system_prompt
from .runtime.actor import LoopActor
from .scribe import Scribe, insist
from .surroundings import Surroundings
from .tools.toolbox import Toolbox

__all__ = ["Agent", "StopAgent", "Surroundings"]

log = logging.getLogger(__name__)

GOAL_CHARS: Final = 200


class StopAgent(msgspec.Struct, frozen=True):
    """End now. Answered as soon as no provider call of this agent can start any more; its end is reported later."""

    reason: str


class Agent(LoopActor):
    """One agent; all of its state is owned by the loop thread. `on_finished` is called once, after the commit."""

    def __init__(self, spec: AgentSpec, around: Surroundings, on_finished: Callable[[AgentResult], None]) -> None:
        super().__init__()
        self._spec, self._around, self._on_finished = spec, around, on_finished
        self._scribe = Scribe(around.ledger)
        self._conversation = Conversation()
        self._rules = Rules(max_turns=spec.max_turns)
        self._next: StartCall | RunTools | None = None
        self._finish: Finish | None = None
        self._affinity = session_affinity(spec.session)
        self._toolbox = Toolbox(())
        self._work: asyncio.Task[None] | None = None
        self._stopping: str | None = None
        self._delegations = 0
        self._calls = self._prompt_tokens = self._completion_tokens = 0
        self._born = time.monotonic()

    def on_start(self) -> None:
        """Begin the conversation; a transcript that is stored is gone on with."""
        self._show(AgentState.STARTING)
        self._work = self.own(self._converse(), name="conversation")
        self.own(self._live(self._work), name="life")

    def on_receive(self, message: object) -> None:
        """`StopAgent`."""
        assert isinstance(message, StopAgent), f"an agent does not understand {type(message).__name__}"
        if self._stopping is None and self._work is not None:
            self._stopping = message.reason
            self._work.cancel()

    # --- the end -----------------------------------------------------------------------------------------------------

    async def _live(self, work: asyncio.Task[None]) -> None:
        await asyncio.wait([work])
        if self._finish is None:
            self._feed(Stopped(self._stopping or "its task was cancelled"))
        finish = self._finish
        assert finish is not None, "a stopped conversation has ended"
        self._scribe.write(
            SessionEnded(
                session=self._spec.session,
                outcome=finish.outcome.value,
                result=finish.text or None,
                error=finish.error,
                at_ms=_now_ms(),
            )
        )
        await self._scribe.committed()
        self._show(finish.outcome)
        self._on_finished(self._result(finish))
        self.stop()

    def _result(self, finish: Finish) -> AgentResult:
        return AgentResult(
            agent=self._spec.agent,
            session=self._spec.session,
            outcome=finish.outcome,
            text=finish.text,
            error=finish.error,
            turns=self._conversation.turn,
            calls=self._calls,
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
        )

    # --- the conversation --------------------------------------------------------------------------------------------

    async def _converse(self) -> None:
        try:
            await self._turns()
        except CoveyError as problem:
            self._feed(Broken(str(problem)))
        except Exception as bug:  # a turn is a boundary: it becomes a typed exit
            log.exception("agent_broken agent=%s", self._spec.agent)
            self._feed(Broken(f"internal error: {_innermost(bug)!r}"))

    async def _turns(self) -> None:
        spec = self._spec
        await self._begin()
        way = way_of(self._around.settings, spec.model) if self._finish is None else None
        while self._finish is None:
            await self._scribe.handed_over()
            match self._next:
                case StartCall():
                    assert way is not None, "a goal without an end needs a model"
                    self._feed(await self._ask(way))
                case RunTools(calls=calls):
                    await self._run(calls)
                case None:
                    raise AssertionError(f"agent {spec.agent} has nothing to do and no end")
                case _:
                    assert_never(self._next)

    async def _begin(self) -> None:
        """Load what is stored and let the machine decide where to go on."""
        spec, ledger, around = self._spec, self._around.ledger, self._around
        transcript = await insist(lambda: ledger.query(TranscriptQuery(session=spec.session)), "transcript")
        if transcript.messages:
            totals = await insist(lambda: ledger.query(TotalsQuery(session=spec.session)), "totals")
            self._calls = totals.calls
            self._prompt_tokens, self._completion_tokens = totals.prompt_tokens, totals.completion_tokens
        if spec.conversation is not None:
            asked = GenerationQuery(source=spec.source, conversation=spec.conversation)
            found = await insist(lambda: ledger.query(asked), "generation")
            self._affinity = affinity_key(spec.source, spec.conversation, found.generation)
        self._toolbox = equip(
            spec,
            settings=around.settings,
            environment=around.environment,
            children=around.children,
            children_at_once=around.children_at_once,
            delegating=self._delegating,
        )
        self._rules = Rules(max_turns=spec.max_turns, repeatable=self._toolbox.repeatable)
        self._scribe.write(self._opening())
        self._feed(Began(request(spec), transcript))

    def _feed(self, event: Event) -> None:
        """Let the machine take `event` and perform what needs no wait; messages are stored first, in this very turn."""
        self._conversation, actions = step(self._conversation, event, self._rules)
        for action in actions:
            match action:
                case AppendMessage(index=index, message=message):
                    self._scribe.write(
                        MessageAppended(session=self._spec.session, index=index, message=message, at_ms=_now_ms())
                    )
                case StartCall() | RunTools():
                    self._next = action
                case Finish():
                    self._finish = action
                case _:
                    assert_never(action)

    def _opening(self) -> SessionOpened:
        spec, model = self._spec, self._spec.model or self._around.settings.model
        return SessionOpened(
            session=spec.session,
            agent=spec.agent,
            goal=spec.goal,
            source=spec.source,
            provider=model.provider if model else None,
            model=model.name if model else None,
            parent=spec.parent_session,
            conversation=spec.conversation,
            at_ms=_now_ms(),
        )

    # --- calls -------------------------------------------------------------------------------------------------------

    async def _ask(self, way: Way) -> Event:
        spec, around = self._spec, self._around
        prompt = system_prompt(spec, (tool.name for tool in self._toolbox.specs))
        outcome = await run_call(
            CallRequest(
                targets=way.targets,
                messages=(Message(role=Role.SYSTEM, content=prompt), *self._conversation.messages),
                tools=self._toolbox.specs,
                max_answer_tokens=spec.max_answer_tokens,
                effort=way.effort,
                static_chars=len(STATIC),
                affinity=self._affinity,
                session=spec.session,
                agent=spec.agent,
                parent_session=spec.parent_session,
                parent=spec.parent,
                tree=spec.tree,
                priority=spec.priority,
                cap=spec.cap,
                waiting_above=spec.depth,  # delegation always waits for its children
            ),
            Caller(
                slots=around.slots,
                keys=around.keys,
                clients=around.clients,
                benches=around.benches,
                unknowns=around.unknowns,
                calls=around.settings.calls,
                chance=around.chance,
                record=self._account,
                may_start=lambda: self._stopping is None,
                on_state=lambda state, provider: self._show(state, waits_for=provider),
                on_quota_wanted=around.on_quota_wanted,
            ),
        )
        match outcome:
            case CallAnswered(answer=answer):
                return Answered(
                    answer.text,
                    answer.tool_calls,
                    is_cut=answer.finish is FinishReason.LENGTH,
                    signed=answer.signed,
                )
            case CallUnanswered(problem=problem, refusal=CapReached()):
                return CapMet(problem)
            case CallUnanswered(problem=problem):
                return CallFailed(problem)
            case _:
                assert_never(outcome)

    def _account(self, record: CallRecorded) -> None:
        self._scribe.write(record)
        self._calls += record.status is not CallStatus.REFUSED
        if record.usage is not None:
            self._prompt_tokens += record.usage.prompt_tokens
            self._completion_tokens += record.usage.completion_tokens

    # --- tools -------------------------------------------------------------------------------------------------------

    async def _run(self, calls: tuple[ToolCall, ...]) -> None:
        """Run them in their order; neighbours that can be repeated cannot disturb each other and run at once."""
        for may_overlap, group in groupby(calls, key=lambda call: call.name in self._toolbox.repeatable):
            neighbours = list(group)
            for batch in [neighbours] if may_overlap else [[call] for call in neighbours]:
                async with asyncio.TaskGroup() as tasks:
                    for call in batch:
                        tasks.create_task(self._use(call))
                await self._scribe.handed_over()

    async def _use(self, call: ToolCall) -> None:
        self._show(AgentState.TOOL, waits_for=call.name)
        self._feed(ToolEnded(call.id, await self._toolbox.run(call)))

    @contextmanager
    def _delegating(self) -> Iterator[None]:
        self._delegations += 1
        self._show(AgentState.DELEGATING)
        try:
            yield
        finally:
            self._delegations -= 1

    # --- what others see ---------------------------------------------------------------------------------------------

    def _show(self, state: AgentState, *, waits_for: str | None = None) -> None:
        spec = self._spec
        if state is AgentState.TOOL and self._delegations:
            state, waits_for = AgentState.DELEGATING, None
        self._around.children.report(
            AgentView(
                id=spec.agent,
                session=spec.session,
                state=state,
                turn=self._conversation.turn,
                tokens=self._prompt_tokens + self._completion_tokens,
                parent=spec.parent,
                goal=spec.goal[:GOAL_CHARS],
                waits_for=waits_for,
                age_s=round(time.monotonic() - self._born, 3),
            )
        )


def _innermost(bug: BaseException) -> BaseException:
    while isinstance(bug, BaseExceptionGroup):
        bug = bug.exceptions[0]
    return bug


def _now_ms() -> int:
    return int(time.time() * 1000)
