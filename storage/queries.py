"""The reader's statements. Each runs through an index; none leaves a cursor open."""

from __future__ import annotations

from typing import Final, cast

from ..protocol.ids import SessionId
from ..protocol.messages.ledger import (
    Calls,
    CallsQuery,
    Restarts,
    RestartsQuery,
    Totals,
    TotalsQuery,
    Transcript,
    TranscriptQuery,
)
from ..protocol.transcript import Message
from .database import Database, Row
from .rows import CALL_COLUMNS, RESTART_COLUMNS, call_of, message_of, restart_of

_INT64: Final = (1 << 63) - 1

TRANSCRIPT: Final = (
    "SELECT idx, role, content, tool_calls, tool_call_id FROM messages WHERE session = ? AND idx >= 0 ORDER BY idx"
)
OUTCOME: Final = "SELECT outcome, result, error FROM sessions WHERE session = ?"
CALLS: Final = f"SELECT id, {', '.join(CALL_COLUMNS)} FROM calls WHERE id > ? ORDER BY id LIMIT ?"
RESTARTS: Final = (
    f"SELECT {', '.join(RESTART_COLUMNS)} FROM restarts WHERE at_ms >= ? ORDER BY at_ms DESC, id DESC LIMIT ?"
)
INBOX: Final = "SELECT incarnation, seq FROM inbox"

# Nothing is ever deleted and a conflict takes no id: the last id is the number of rows, found in a gigabyte at once.
ROWS: Final = (
    "SELECT coalesce((SELECT max(id) FROM sessions), 0) + coalesce((SELECT max(id) FROM messages), 0)"
    " + coalesce((SELECT max(id) FROM calls), 0)"
)

_SUMS: Final = (
    "SELECT count(*) FILTER (WHERE status <> 'refused'),"
    " count(*) FILTER (WHERE status <> 'refused' AND input_tokens IS NULL),"
    " count(*) FILTER (WHERE status = 'refused'),"
    " coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0), coalesce(sum(cache_read_tokens), 0),"
    " coalesce(sum(cache_write_tokens), 0), coalesce(sum(reasoning_tokens), 0) FROM calls"
)
_COUNTS: Final = "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM messages)"
TOTALS: Final = (_SUMS, _COUNTS)
SESSION_TOTALS: Final = (
    f"{_SUMS} WHERE session = ?1",
    "SELECT (SELECT count(*) FROM sessions WHERE session = ?1), (SELECT count(*) FROM messages WHERE session = ?1)",
)


def transcript(database: Database, query: TranscriptQuery) -> Transcript:
    """Return the messages from index 0 up to the first gap."""
    messages: list[Message] = []
    for idx, *message in database.execute(TRANSCRIPT, (query.session,)):
        if idx != len(messages):
            break
        messages.append(message_of(tuple(message)))
    outcome, result, error = (database.execute(OUTCOME, (query.session,)) or [(None, None, None)])[0]
    return Transcript(
        messages=tuple(messages),
        outcome=cast("str | None", outcome),
        result=cast("str | None", result),
        error=cast("str | None", error),
    )


def totals(database: Database, query: TotalsQuery) -> Totals:
    """Return the sums over what is known, and how much is not."""
    sums, counts = _totals_rows(database, query.session)
    calls, unknown, refused, read, written, cache_read, cache_write, reasoning = cast("tuple[int, ...]", sums)
    sessions, messages = cast("tuple[int, int]", counts)
    return Totals(
        calls=calls,
        unknown_calls=unknown,
        refused_calls=refused,
        prompt_tokens=read + cache_read + cache_write,
        completion_tokens=written + reasoning,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        reasoning_tokens=reasoning,
        sessions=sessions,
        messages=messages,
    )


def calls(database: Database, query: CallsQuery) -> Calls:
    """Return rows in the order they were first recorded."""
    after, limit = min(max(query.after, 0), _INT64), min(max(query.limit, 0), _INT64)
    return Calls(rows=tuple(call_of(row) for row in database.execute(CALLS, (after, limit))))


def restarts(database: Database, query: RestartsQuery) -> Restarts:
    """Return the newest restarts since a time, oldest first."""
    since_ms, limit = min(max(query.since_ms, -_INT64), _INT64), min(max(query.limit, 0), _INT64)
    newest_first = [restart_of(row) for row in database.execute(RESTARTS, (since_ms, limit))]
    return Restarts(restarts=tuple(reversed(newest_first)))


def _totals_rows(database: Database, session: SessionId | None) -> tuple[Row, Row]:
    sums, counts = TOTALS if session is None else SESSION_TOTALS
    values = () if session is None else (session,)
    return database.execute(sums, values)[0], database.execute(counts, values)[0]
