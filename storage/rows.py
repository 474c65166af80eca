"""Records as rows, and back."""

from __future__ import annotations

from typing import Final, cast

import msgspec

from ..protocol.ids import AgentId, CallId, Incarnation, SessionId
from ..protocol.messages.ledger import (
    CallRecorded,
    CallRow,
    CallStatus,
    ChildRestarted,
    MessageAppended,
    SessionEnded,
    SessionOpened,
)
from ..protocol.transcript import Message, Role, ToolCall
from ..protocol.usage import Usage
from .database import Row, Value

OPENED_COLUMNS: Final = ("session", "agent", "goal", "source", "provider", "model", "parent", "opened_at_ms")
ENDED_COLUMNS: Final = ("session", "outcome", "result", "error", "ended_at_ms")
MESSAGE_COLUMNS: Final = ("session", "idx", "role", "content", "tool_calls", "tool_call_id", "at_ms")
TOKEN_COLUMNS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)
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
    *TOKEN_COLUMNS,
)

RESTART_COLUMNS: Final = ("incarnation", "child", "reason", "at_ms")

MAX_TOKENS: Final = 1 << 40
"""A count beyond this, or below 0, is no report: the call's usage is unknown. It also keeps all sums exact."""

_NO_TOKENS: Final[Row] = (None,) * len(TOKEN_COLUMNS)
_json = msgspec.json.Encoder()
_tool_calls = msgspec.json.Decoder(tuple[ToolCall, ...])


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
    )


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
        *_tokens(record.usage),
    )


def restart_row(record: ChildRestarted) -> Row:
    """Return `RESTART_COLUMNS`."""
    return (record.incarnation, record.child, record.reason, record.at_ms)


def message_of(row: Row) -> Message:
    """Read role, content, tool_calls and tool_call_id."""
    role, content, tool_calls, tool_call_id = row
    return Message(
        role=Role(cast(str, role)),
        content=cast(str, content),
        tool_calls=_tool_calls.decode(cast(str, tool_calls)) if tool_calls is not None else (),
        tool_call_id=cast("str | None", tool_call_id),
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
        usage=_usage([named[column] for column in TOKEN_COLUMNS]),
        session=cast("SessionId | None", named["session"]),
        agent=cast("AgentId | None", named["agent"]),
        task=cast("str | None", named["task"]),
        model_answered=cast("str | None", named["model_answered"]),
        response_id=cast("str | None", named["response_id"]),
        waited_ms=cast("float | None", named["waited_ms"]),
        first_byte_ms=cast("float | None", named["first_byte_ms"]),
        duration_ms=cast("float | None", named["duration_ms"]),
        fault=cast("str | None", named["fault"]),
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


def _tokens(usage: Usage | None) -> Row:
    if usage is None:
        return _NO_TOKENS
    tokens = (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning)
    return tokens if all(0 <= count <= MAX_TOKENS for count in tokens) else _NO_TOKENS


def _usage(tokens: list[Value]) -> Usage | None:
    if tokens[0] is None:
        return None
    read, written, cache_read, cache_write, reasoning = cast("list[int]", tokens)
    return Usage(input=read, output=written, cache_read=cache_read, cache_write=cache_write, reasoning=reasoning)
