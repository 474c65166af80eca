"""Going on with a session that was kept.

One that never ended goes on as itself: its agent is run again and reads its transcript. One that ended stays as it is,
and a new session begins with a copy of what was said. Either way a new word of the user may come last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, assert_never, cast

import msgspec

from ..protocol.errors import RemoteError, UsageError
from ..protocol.ids import AgentId, SessionId
from ..protocol.messages.broker import Priority
from ..protocol.messages.fleet import AgentSpec, AgentState, Spawn
from ..protocol.messages.ledger import (
    MessageAppended,
    SessionOpened,
    SessionQuery,
    SessionRow,
    Sessions,
    Transcript,
    TranscriptQuery,
)
from ..protocol.settings import ModelSettings
from ..protocol.transcript import Message, Role, repair
from ..storage.outbox import SUFFIX
from .client import DEFAULT_TOOLS, AsyncFleet, new_agent_id, new_session_id
from .handles import AsyncAgent
from .home import Home
from .running import running_root

SOURCE: Final = "resume"
FLUSH_EACH: Final = 1000
"""So many copied messages wait for the ledger at once."""
TAKEN_IN_S: Final = 10.0
LOOK_S: Final = 0.05


class GoOn(msgspec.Struct, frozen=True):
    """The session itself goes on; `said` is its new message number `index`, if there is one."""

    index: int
    said: Message | None


class BeginAnew(msgspec.Struct, frozen=True):
    """A new session begins with these messages."""

    messages: tuple[Message, ...]


Plan = GoOn | BeginAnew


def plan(row: SessionRow, transcript: Transcript, text: str | None) -> Plan:
    """How to go on; raises `UsageError` where there is nothing to go on with."""
    said = Message(role=Role.USER, content=text) if text and text.strip() else None
    if row.agent is not None and row.outcome is None:
        index = len(transcript.messages) if transcript.next_index is None else transcript.next_index
        # Before its first message the word would stand in the place of its goal.
        return GoOn(index, said if index else None)
    if not transcript.messages:
        raise UsageError(f"session {row.session} has no transcript: there is nothing to go on with")
    before = repair(message for message in transcript.messages if message.role is not Role.SYSTEM)
    messages = before if said is None else (*before, said)
    if not messages or (messages[-1].role is Role.ASSISTANT and not messages[-1].tool_calls):
        raise UsageError(
            f"session {row.session} said its last word ({row.outcome or 'open'}); say what it is to do next: "
            f'covey sessions resume {row.session} "TEXT"'
        )
    return BeginAnew(messages)


def left_spools(home: Home) -> tuple[Path, ...]:
    """What senders of an earlier fleet left for the next ledger; asked while no fleet runs."""
    return tuple(home.outbox.glob(f"*{SUFFIX}")) if running_root(home) is None else ()


async def taken_in(spools: Iterable[Path], *, timeout_s: float = TAKEN_IN_S) -> None:
    """Return once the ledger has all of them; what a program keeps that still lives is not waited for longer."""
    deadline = time.monotonic() + timeout_s
    while any(spool.exists() for spool in spools) and time.monotonic() < deadline:  # noqa: ASYNC110 - files tell nobody
        await asyncio.sleep(LOOK_S)


async def resume(
    fleet: AsyncFleet,
    session: SessionId,
    *,
    text: str | None,
    model: str | None,
    workspace: Path | None,
    max_turns: int,
) -> AsyncAgent:
    """Run an agent that goes on; `max_turns` are those from now on. Raises `UsageError` while it runs already."""
    (row,) = cast(Sessions, await fleet.records.query(SessionQuery(session=session))).rows
    transcript = cast(Transcript, await fleet.records.query(TranscriptQuery(session=session)))
    views = {view.id: view.state for view in await fleet.agents() if view.session == row.session}
    if running := next((agent for agent, state in views.items() if not state.is_final), None):
        raise UsageError(f"session {row.session} is not over: agent {running} is {views[running].value}")
    spec = _spec(row, views, text=text, model=model, workspace=workspace)
    match plan(row, transcript, text):
        case GoOn(index=index, said=said):
            if said is not None:
                fleet.records.record(MessageAppended(session=row.session, index=index, message=said, at_ms=_now_ms()))
            before = transcript.messages
        case BeginAnew(messages=before):
            spec = msgspec.structs.replace(spec, agent=new_agent_id(), session=new_session_id())
            spec = msgspec.structs.replace(spec, tree=spec.agent)
            await _copy(fleet, row, spec, before)
        case other:
            assert_never(other)
    await fleet.flush()
    turns = sum(message.role is Role.ASSISTANT for message in before)
    spec = msgspec.structs.replace(spec, max_turns=turns + max_turns)
    try:
        await fleet.root.ask(Spawn(spec=spec), timeout_s=30.0)
    except RemoteError as error:
        if error.kind == "UsageError":
            raise UsageError(error.message) from None
        raise
    return AsyncAgent(fleet, spec)


def _spec(
    row: SessionRow, known: dict[AgentId, AgentState], *, text: str | None, model: str | None, workspace: Path | None
) -> AgentSpec:
    # An agent that the fleet remembers as ended would not be started a second time.
    agent = row.agent if row.agent is not None and row.agent not in known else new_agent_id()
    return AgentSpec(
        agent=agent,
        session=row.session,
        goal=row.goal or text or "",
        context=text,  # read only where nothing was said yet
        model=_model(row, model),
        workspace=str((workspace or Path.cwd()).resolve()),
        tools=DEFAULT_TOOLS,
        parent_session=row.parent,
        tree=agent,
        max_turns=0,
        source=row.source or SOURCE,
        conversation=row.conversation,
        priority=Priority.INTERACTIVE,
    )


def _model(row: SessionRow, asked: str | None) -> ModelSettings | None:
    if asked is not None:
        return ModelSettings(provider="", name=asked)
    return ModelSettings(provider=row.provider, name=row.model) if row.provider and row.model else None


async def _copy(fleet: AsyncFleet, row: SessionRow, spec: AgentSpec, messages: tuple[Message, ...]) -> None:
    at_ms = _now_ms()
    fleet.records.record(
        SessionOpened(
            session=spec.session,
            agent=spec.agent,
            goal=spec.goal,
            source=SOURCE,
            provider=spec.model.provider or None if spec.model else None,
            model=spec.model.name if spec.model else None,
            profile=row.profile,
            conversation=row.conversation or row.session,
            at_ms=at_ms,
        )
    )
    for index, message in enumerate(messages):
        fleet.records.record(MessageAppended(session=spec.session, index=index, message=message, at_ms=at_ms))
        if index % FLUSH_EACH == FLUSH_EACH - 1:
            await fleet.flush()


def _now_ms() -> int:
    return int(time.time() * 1000)
