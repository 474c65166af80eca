"""The reader's statements about transcripts, sums and calls. Each runs through an index; none leaves a cursor open."""

from __future__ import annotations

from typing import Final, cast

from ..protocol.messages.ledger import (
    Calls,
    CallsQuery,
    MessageRow,
    Restarts,
    RestartsQuery,
    Totals,
    TotalsQuery,
    Transcript,
    TranscriptQuery,
)
from .database import Database, Row
from .rows import CALL_COLUMNS, MESSAGE_COLUMNS, RESTART_COLUMNS, call_of, message_row_of, restart_of
from .sums import SUMS, TREE, sums_of

_INT64: Final = (1 << 63) - 1

TRANSCRIPT: Final = (
    f"SELECT compacted, {', '.join(MESSAGE_COLUMNS[1:])} FROM messages WHERE session = ? AND idx >= 0 ORDER BY idx"
)
COMPACTIONS: Final = "SELECT summary, first FROM compactions WHERE session = ?"
OUTCOME: Final = "SELECT outcome, result, error FROM sessions WHERE session = ?"
CALLS: Final = f"SELECT id, {', '.join(CALL_COLUMNS)} FROM calls WHERE id > ? ORDER BY id LIMIT ?"
SESSION_CALLS: Final = (
    f"SELECT id, {', '.join(CALL_COLUMNS)} FROM calls WHERE session = ? AND id > ? ORDER BY id LIMIT ?"
)
RESTARTS: Final = (
    f"SELECT {', '.join(RESTART_COLUMNS)} FROM restarts WHERE at_ms >= ? ORDER BY at_ms DESC, id DESC LIMIT ?"
)
INBOX: Final = "SELECT incarnation, seq FROM inbox"

# Nothing is ever deleted and a conflict takes no id: the last id is the number of rows, found in a gigabyte at once.
ROWS: Final = (
    "SELECT coalesce((SELECT max(id) FROM sessions), 0) + coalesce((SELECT max(id) FROM messages), 0)"
    " + coalesce((SELECT max(id) FROM calls), 0)"
)

TOTALS: Final = (
    f"SELECT {SUMS} FROM calls",
    "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM messages)",
)
SESSION_TOTALS: Final = (
    f"SELECT {SUMS} FROM calls WHERE session = ?1",
    "SELECT (SELECT count(*) FROM sessions WHERE session = ?1), (SELECT count(*) FROM messages WHERE session = ?1)",
)
TREE_TOTALS: Final = (
    f"{TREE} SELECT {SUMS} FROM tree CROSS JOIN calls ON calls.session = tree.session",
    f"{TREE} SELECT count(sessions.id), coalesce(sum((SELECT count(*) FROM messages WHERE session = tree.session)), 0)"
    " FROM tree LEFT JOIN sessions ON sessions.session = tree.session",
)


def transcript(database: Database, query: TranscriptQuery) -> Transcript:
    """Return the messages from index 0 up to the first gap, summaries in the place of what they stand for."""
    stored: list[MessageRow] = []
    for row in database.execute(TRANSCRIPT, (query.session,)):
        message = message_row_of(row)
        if message.index != len(stored):
            break
        stored.append(message)
    shown = [message for message in stored if query.compacted or not message.compacted]
    if not query.compacted:
        places = {row[0]: row[1] for row in database.execute(COMPACTIONS, (query.session,))}
        shown.sort(key=lambda message: cast(int, places.get(message.index, message.index)))
    outcome, result, error = (database.execute(OUTCOME, (query.session,)) or [(None, None, None)])[0]
    return Transcript(
        messages=tuple(message.message for message in shown),
        outcome=cast("str | None", outcome),
        result=cast("str | None", result),
        error=cast("str | None", error),
        next_index=len(stored) if len(shown) != len(stored) else None,
        rows=tuple(shown) if query.rows else (),
    )


def totals(database: Database, query: TotalsQuery) -> Totals:
    """Return the sums over what is known, and how much is not."""
    found, counts = _totals_rows(database, query)
    sums = sums_of(found)
    sessions, messages = cast("tuple[int, int]", counts)
    cache_read, cache_write = sums.cache_read_tokens or 0, sums.cache_write_tokens or 0
    return Totals(
        calls=sums.calls,
        unknown_calls=sums.unknown_calls,
        refused_calls=sums.refused_calls,
        prompt_tokens=(sums.input_tokens or 0) + cache_read + cache_write,
        completion_tokens=(sums.output_tokens or 0) + (sums.reasoning_tokens or 0),
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        reasoning_tokens=sums.reasoning_tokens or 0,
        sessions=sessions,
        messages=messages,
        cost_usd=sums.cost_usd,
        cost_known_calls=sums.cost_known_calls,
        cost_estimated_usd=sums.cost_estimated_usd,
        cost_actual_usd=sums.cost_actual_usd,
    )


def calls(database: Database, query: CallsQuery) -> Calls:
    """Return rows in the order they were first recorded."""
    page = (min(max(query.after, 0), _INT64), min(max(query.limit, 0), _INT64))
    if query.session is None:
        rows = database.execute(CALLS, page)
    else:
        rows = database.execute(SESSION_CALLS, (query.session, *page))
    return Calls(rows=tuple(call_of(row) for row in rows))


def restarts(database: Database, query: RestartsQuery) -> Restarts:
    """Return the newest restarts since a time, oldest first."""
    since_ms, limit = min(max(query.since_ms, -_INT64), _INT64), min(max(query.limit, 0), _INT64)
    newest_first = [restart_of(row) for row in database.execute(RESTARTS, (since_ms, limit))]
    return Restarts(restarts=tuple(reversed(newest_first)))


def _totals_rows(database: Database, query: TotalsQuery) -> tuple[Row, Row]:
    if query.session is None:
        sums, counts = TOTALS
        return database.execute(sums)[0], database.execute(counts)[0]
    sums, counts = TREE_TOTALS if query.tree else SESSION_TOTALS
    values = (query.session,)
    return database.execute(sums, values)[0], database.execute(counts, values)[0]
