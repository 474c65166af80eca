"""Records as rows, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar, cast

import msgspec

from ..protocol.ids import AgentId, CallId, Incarnation, SessionId
from ..protocol.messages.ledger import (
    CallRecorded,
    CallRow,
    CallStatus,
    ChildRestarted,
    DeadLetter,
    GenerationAdvanced,
    LetterRow,
    MessageAppended,
    MessageRow,
    MessagesCompacted,
    Place,
    SearchHit,
    SessionEnded,
    SessionOpened,
    SessionRow,
    SwarmEnded,
    SwarmOpened,
    SwarmRow,
    TaskEnded,
    TaskRow,
    TaskStarted,
    TurnLeased,
    TurnReleased,
)
from ..protocol.transcript import Message, Role, Signed, ToolCall
from ..protocol.usage import Usage
from .database import Row, Value
from .schema import TOKEN_COLUMNS

OPENED_COLUMNS: Final = (
    "session",
    "agent",
    "goal",
    "source",
    "provider",
    "model",
    "parent",
    "opened_at_ms",
    "base_url",
    "profile",
    "swarm",
    "conversation",
)
ENDED_COLUMNS: Final = ("session", "outcome", "result", "error", "ended_at_ms")
TOUCHED_COLUMNS: Final = ("session", "doing")
LINEAGE_COLUMNS: Final = ("session", "parent")
MESSAGE_COLUMNS: Final = (
    "session",
    "idx",
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "at_ms",
    "api_content",
    "display_kind",
    "display_metadata",
    "signed",
)
COMPACTION_COLUMNS: Final = ("session", "first", "upto", "summary", "at_ms")
USAGE_COLUMNS: Final = (*TOKEN_COLUMNS, "cache_write_1h_tokens", "usage_raw", "cost_estimated_nusd")
"""What a report of usage says, and what was made of it: all of one report, or nothing."""
CALL_COLUMNS: Final = (
    "call",
    "session",
    "agent",
    "task",
    "provider",
    "base_url",
    "model",
    "model_answered",
    "response_id",
    "status",
    "fault",
    "started_at_ms",
    "waited_ms",
    "first_byte_ms",
    "duration_ms",
    "fault_code",
    "parent",
    "parent_agent",
    "profile",
    *USAGE_COLUMNS,
    "cost_actual_nusd",
)
CONVERSATION_COLUMNS: Final = ("source", "conversation", "generation", "session", "reason", "at_ms")
SWARM_OPENED_COLUMNS: Final = ("swarm", "source", "name", "tasks", "parent", "profile", "opened_at_ms")
SWARM_ENDED_COLUMNS: Final = ("swarm", "outcome", "ended_at_ms")
TASK_STARTED_COLUMNS: Final = ("swarm", "idx", "goal", "session", "agent", "started_at_ms")
TASK_ENDED_COLUMNS: Final = ("swarm", "idx", "outcome", "error", "ended_at_ms")
TURN_COLUMNS: Final = ("session", "lease", "holder", "leased_at_ms", "until_ms", "released_at_ms")
LETTER_COLUMNS: Final = ("receiver", "kind", "reason", "body", "sender", "at_ms")
SESSION_ROW_COLUMNS: Final = (
    "session",
    "agent",
    "goal",
    "source",
    "profile",
    "provider",
    "model",
    "base_url",
    "parent",
    "swarm",
    "conversation",
    "doing",
    "opened_at_ms",
    "active_at_ms",
    "outcome",
    "result",
    "error",
    "ended_at_ms",
)
"""As they are named in `SessionRow`; activity, row and the number of messages stand before them."""
SWARM_ROW_COLUMNS: Final = (
    "swarm",
    "source",
    "name",
    "tasks",
    "parent",
    "profile",
    "opened_at_ms",
    "outcome",
    "ended_at_ms",
)
TASK_ROW_COLUMNS: Final = ("goal", "session", "agent", "started_at_ms", "outcome", "error", "ended_at_ms")

RESTART_COLUMNS: Final = ("incarnation", "child", "reason", "at_ms")

MAX_TOKENS: Final = 1 << 40
"""A count beyond this, or below 0, is no report: the call's usage is unknown. It also keeps all sums exact."""

NANO: Final = 1_000_000_000
MAX_COST_USD: Final = 1_000_000.0
"""A cost beyond this, or below 0, is none. Nine thousand of them fit into a sum."""
MAX_BODY: Final = 4096

_NO_TOKENS: Final[Row] = (None,) * (len(USAGE_COLUMNS) - 1)
T = TypeVar("T")

_json = msgspec.json.Encoder()
_tool_calls = msgspec.json.Decoder(tuple[ToolCall, ...])
_signed = msgspec.json.Decoder(tuple[Signed, ...])


def opened_row(record: SessionOpened) -> Row:
    """Return `OPENED_COLUMNS`."""
    return (
        record.session,
        record.agent,
        record.goal,
        record.source,
        record.provider,
        record.model,
        record.parent,
        record.at_ms,
        record.base_url,
        record.profile,
        record.swarm,
        record.conversation,
    )


def ended_row(record: SessionEnded) -> Row:
    """Return `ENDED_COLUMNS`."""
    return (record.session, record.outcome, record.result, record.error, record.at_ms)


def message_row(record: MessageAppended) -> Row:
    """Return `MESSAGE_COLUMNS`."""
    message = record.message
    tool_calls = _json.encode(message.tool_calls).decode() if message.tool_calls else None
    return (
        record.session,
        record.index,
        message.role.value,
        message.content,
        tool_calls,
        message.tool_call_id,
        record.at_ms,
        record.api_content if record.api_content != message.content else None,
        record.display_kind,
        record.display_metadata,
        _json.encode(message.signed).decode() if message.signed else None,
    )


def compaction_row(record: MessagesCompacted) -> Row:
    """Return `COMPACTION_COLUMNS`."""
    return (record.session, record.first, record.upto, record.summary, record.at_ms)


def call_row(record: CallRecorded) -> Row:
    """Return `CALL_COLUMNS`."""
    return (
        record.call,
        record.session,
        record.agent,
        record.task,
        record.provider,
        record.base_url,
        record.model,
        record.model_answered,
        record.response_id,
        record.status.value,
        record.fault,
        record.started_at_ms,
        record.waited_ms,
        record.first_byte_ms,
        record.duration_ms,
        record.fault_code,
        record.parent,
        record.parent_agent,
        record.profile,
        *_usage_columns(record.usage, record.cost_estimated_usd),
        nano_usd(record.cost_actual_usd),
    )


def restart_row(record: ChildRestarted) -> Row:
    """Return `RESTART_COLUMNS`."""
    return (record.incarnation, record.child, record.reason, record.at_ms)


def generation_row(record: GenerationAdvanced) -> Row:
    """Return `CONVERSATION_COLUMNS`, as for the first step."""
    return (record.source, record.conversation, 1, record.session, record.reason, record.at_ms)


def swarm_opened_row(record: SwarmOpened) -> Row:
    """Return `SWARM_OPENED_COLUMNS`."""
    return (record.swarm, record.source, record.name, record.tasks, record.parent, record.profile, record.at_ms)


def swarm_ended_row(record: SwarmEnded) -> Row:
    """Return `SWARM_ENDED_COLUMNS`."""
    return (record.swarm, record.outcome, record.at_ms)


def task_started_row(record: TaskStarted) -> Row:
    """Return `TASK_STARTED_COLUMNS`."""
    return (record.swarm, record.index, record.goal, record.session, record.agent, record.at_ms)


def task_ended_row(record: TaskEnded) -> Row:
    """Return `TASK_ENDED_COLUMNS`."""
    return (record.swarm, record.index, record.outcome, record.error, record.at_ms)


def turn_row(record: TurnLeased | TurnReleased) -> Row:
    """Return `TURN_COLUMNS`."""
    if isinstance(record, TurnReleased):
        return (record.session, record.lease, None, None, None, record.at_ms)
    return (record.session, record.lease, record.holder, record.at_ms, record.until_ms, None)


def letter_row(record: DeadLetter) -> Row:
    """Return `LETTER_COLUMNS`."""
    return (record.receiver, record.kind, record.reason, record.body[:MAX_BODY], record.sender, record.at_ms)


def message_of(row: Row) -> Message:
    """Read role, content, tool_calls, tool_call_id and signed."""
    role, content, tool_calls, tool_call_id, signed = row
    return Message(
        role=Role(cast(str, role)),
        content=cast(str, content),
        tool_calls=_tool_calls.decode(cast(str, tool_calls)) if tool_calls is not None else (),
        tool_call_id=cast("str | None", tool_call_id),
        signed=_signed.decode(cast(str, signed)) if signed is not None else (),
    )


def message_row_of(row: Row) -> MessageRow:
    """Read compacted and `MESSAGE_COLUMNS` but the session."""
    compacted, idx, role, content, tool_calls, tool_call_id, at_ms, *shown = row
    api_content, display_kind, display_metadata, signed = cast("list[str | None]", shown)
    return MessageRow(
        index=cast(int, idx),
        message=message_of((role, content, tool_calls, tool_call_id, signed)),
        at_ms=cast(int, at_ms),
        api_content=api_content,
        display_kind=display_kind,
        display_metadata=display_metadata,
        compacted=bool(compacted),
    )


def session_of(row: Row) -> SessionRow:
    """Read activity, id, the last message's index and `SESSION_ROW_COLUMNS`."""
    activity, number, last, *columns = row
    named = dict(zip(SESSION_ROW_COLUMNS, columns, strict=True))
    place = Place(activity=cast(int, activity), row=cast(int, number))
    return _struct(SessionRow, named, place=place, messages=cast(int, last) + 1 if last is not None else 0)


def swarm_of(row: Row) -> SwarmRow:
    """Read id, how many tasks have started, ended and been done, and `SWARM_ROW_COLUMNS`."""
    number, started, ended, done, *columns = row
    named = dict(zip(SWARM_ROW_COLUMNS, columns, strict=True))
    return _struct(SwarmRow, named, row=number, started=started, ended=ended, done=done)


def task_of(row: Row) -> TaskRow:
    """Read idx and `TASK_ROW_COLUMNS`."""
    idx, *columns = row
    return _struct(TaskRow, dict(zip(TASK_ROW_COLUMNS, columns, strict=True)), index=idx)


def letter_of(row: Row) -> LetterRow:
    """Read id and `LETTER_COLUMNS`."""
    number, *columns = row
    letter = _struct(DeadLetter, dict(zip(LETTER_COLUMNS, columns, strict=True)))
    return LetterRow(row=cast(int, number), letter=letter)


def hit_of(row: Row) -> SearchHit:
    """Read id, session, idx, role, at_ms, compacted and the snippet."""
    number, session, idx, role, at_ms, compacted, snippet = row
    return SearchHit(
        row=cast(int, number),
        session=SessionId(cast(str, session)),
        index=cast(int, idx),
        role=cast(str, role),
        at_ms=cast(int, at_ms),
        compacted=bool(compacted),
        snippet=cast(str, snippet),
    )


def call_of(row: Row) -> CallRow:
    """Read id and `CALL_COLUMNS`."""
    number, *columns = row
    named: dict[str, Value] = dict(zip(CALL_COLUMNS, columns, strict=True))
    record = CallRecorded(
        call=CallId(cast(str, named["call"])),
        provider=cast(str, named["provider"]),
        base_url=cast(str, named["base_url"]),
        model=cast(str, named["model"]),
        status=CallStatus(cast(str, named["status"])),
        started_at_ms=cast(int, named["started_at_ms"]),
        usage=_usage(named),
        session=cast("SessionId | None", named["session"]),
        agent=cast("AgentId | None", named["agent"]),
        task=cast("str | None", named["task"]),
        model_answered=cast("str | None", named["model_answered"]),
        response_id=cast("str | None", named["response_id"]),
        waited_ms=cast("float | None", named["waited_ms"]),
        first_byte_ms=cast("float | None", named["first_byte_ms"]),
        duration_ms=cast("float | None", named["duration_ms"]),
        fault=cast("str | None", named["fault"]),
        fault_code=cast("str | None", named["fault_code"]),
        cost_estimated_usd=usd(named["cost_estimated_nusd"]),
        cost_actual_usd=usd(named["cost_actual_nusd"]),
        parent=cast("SessionId | None", named["parent"]),
        parent_agent=cast("AgentId | None", named["parent_agent"]),
        profile=cast("str | None", named["profile"]),
    )
    return CallRow(row=cast(int, number), record=record)


def restart_of(row: Row) -> ChildRestarted:
    """Read `RESTART_COLUMNS`."""
    incarnation, child, reason, at_ms = row
    return ChildRestarted(
        incarnation=Incarnation(cast(str, incarnation)),
        child=cast(str, child),
        reason=cast(str, reason),
        at_ms=cast(int, at_ms),
    )


def nano_usd(dollars: float | None) -> int | None:
    """Return a cost in billionths of a dollar; None for what is no cost."""
    # Written so that what is not a number fails it too.
    return round(dollars * NANO) if dollars is not None and 0 <= dollars <= MAX_COST_USD else None


def usd(nano: Value) -> float | None:
    """Return a stored cost, or a sum of them, in dollars."""
    return cast(int, nano) / NANO if nano is not None else None


def _usage_columns(usage: Usage | None, cost_usd: float | None) -> Row:
    if usage is None:
        return (*_NO_TOKENS, nano_usd(cost_usd))
    tokens = (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning, usage.cache_write_1h)
    if not all(0 <= count <= MAX_TOKENS for count in tokens):
        return (*_NO_TOKENS, None)
    raw = (usage.raw or "") if usage.is_adjusted else None
    return (*tokens, raw, nano_usd(cost_usd))


def _usage(named: Mapping[str, Value]) -> Usage | None:
    if named["input_tokens"] is None:
        return None
    read, written, cache_read, cache_write, reasoning = cast("list[int]", [named[column] for column in TOKEN_COLUMNS])
    raw = cast("str | None", named["usage_raw"])
    return Usage(
        input=read,
        output=written,
        cache_read=cache_read,
        cache_write=cache_write,
        cache_write_1h=cast("int | None", named["cache_write_1h_tokens"]) or 0,
        reasoning=reasoning,
        is_adjusted=raw is not None,
        raw=raw or None,
    )


def _struct(kind: type[T], named: Mapping[str, Value], **more: object) -> T:
    # The columns are STRICT, and named as the fields are.
    return kind(**named, **more)
