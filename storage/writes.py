"""The writer's statements: one per kind of record, each of which may be repeated and come in any order.

A later account of a call wins if it knows more: any status over `lost`, then usage over none, then what was charged
over nothing. Where each knows what the other does not, the row takes all from the winner but what only the loser
knows: its usage, as a whole with what was made of it, and what was charged.
"""

from __future__ import annotations

from typing import Final

from .bulk import Bulk
from .rows import (
    CALL_COLUMNS,
    COMPACTION_COLUMNS,
    CONVERSATION_COLUMNS,
    ENDED_COLUMNS,
    LETTER_COLUMNS,
    LINEAGE_COLUMNS,
    MESSAGE_COLUMNS,
    OPENED_COLUMNS,
    RESTART_COLUMNS,
    SWARM_ENDED_COLUMNS,
    SWARM_OPENED_COLUMNS,
    TASK_ENDED_COLUMNS,
    TASK_STARTED_COLUMNS,
    TOUCHED_COLUMNS,
    TURN_COLUMNS,
    USAGE_COLUMNS,
)

_KNOWS: Final = "({0}.status <> 'lost', {0}.input_tokens IS NOT NULL, {0}.cost_actual_nusd IS NOT NULL)"
_KNOWS_MORE: Final = f"{_KNOWS.format('excluded')} > {_KNOWS.format('calls')}"
_HAS_FIRST: Final = "(excluded.{0} IS NOT NULL AND calls.{0} IS NULL)"


def _account(column: str) -> str:
    newer, older = f"excluded.{column}", f"calls.{column}"
    if column in USAGE_COLUMNS:
        newer, older = _of_one_report(column, "excluded", "calls"), _of_one_report(column, "calls", "excluded")
    elif column == "cost_actual_nusd":
        newer, older = f"coalesce({newer}, {older})", f"coalesce({older}, {newer})"
    return f"{column} = iif({_KNOWS_MORE}, {newer}, {older})"


def _of_one_report(column: str, winner: str, loser: str) -> str:
    return f"iif({winner}.input_tokens IS NULL, coalesce({loser}.{column}, {winner}.{column}), {winner}.{column})"


def _overwrite(columns: tuple[str, ...]) -> str:
    return ", ".join(f"{column} = excluded.{column}" for column in columns)


def _fill(table: str, columns: tuple[str, ...]) -> str:
    return ", ".join(f"{column} = coalesce(excluded.{column}, {table}.{column})" for column in columns)


OPENED: Final = Bulk(
    "sessions",
    OPENED_COLUMNS,
    f"ON CONFLICT (session) DO UPDATE SET {_fill('sessions', OPENED_COLUMNS[1:])} WHERE sessions.agent IS NULL",
)

ENDED: Final = Bulk(
    "sessions",
    ENDED_COLUMNS,
    f"ON CONFLICT (session) DO UPDATE SET {_overwrite(ENDED_COLUMNS[1:])} WHERE sessions.outcome IS NULL",
)

TOUCHED: Final = Bulk(
    "sessions",
    TOUCHED_COLUMNS,
    "ON CONFLICT (session) DO UPDATE SET doing = excluded.doing WHERE excluded.doing IS NOT sessions.doing",
)

# What a call says of a session nobody opened here: without a row it would be in no tree.
LINEAGE: Final = Bulk(
    "sessions",
    LINEAGE_COLUMNS,
    "ON CONFLICT (session) DO UPDATE SET parent = excluded.parent WHERE sessions.parent IS NULL",
)

MESSAGES: Final = Bulk("messages", MESSAGE_COLUMNS, "ON CONFLICT (session, idx) DO NOTHING")

COMPACTIONS: Final = Bulk("compactions", COMPACTION_COLUMNS, "ON CONFLICT (session, first, upto) DO NOTHING")

CALLS: Final = Bulk(
    "calls",
    CALL_COLUMNS,
    f"ON CONFLICT (call) DO UPDATE SET {', '.join(_account(column) for column in CALL_COLUMNS[1:])} "
    f"WHERE {_KNOWS_MORE} OR {_HAS_FIRST.format('input_tokens')} OR {_HAS_FIRST.format('cost_actual_nusd')}",
)

CONVERSATIONS: Final = Bulk(
    "conversations",
    CONVERSATION_COLUMNS,
    "ON CONFLICT (source, conversation) DO UPDATE SET generation = conversations.generation + 1,"
    f" {_overwrite(('session', 'reason', 'at_ms'))}"
    " WHERE excluded.session IS NULL OR excluded.session IS NOT conversations.session",
)

SWARMS_OPENED: Final = Bulk(
    "swarms",
    SWARM_OPENED_COLUMNS,
    f"ON CONFLICT (swarm) DO UPDATE SET {_overwrite(SWARM_OPENED_COLUMNS[1:])} WHERE swarms.opened_at_ms IS NULL",
)

SWARMS_ENDED: Final = Bulk(
    "swarms",
    SWARM_ENDED_COLUMNS,
    f"ON CONFLICT (swarm) DO UPDATE SET {_overwrite(SWARM_ENDED_COLUMNS[1:])} WHERE swarms.outcome IS NULL",
)

TASKS_STARTED: Final = Bulk(
    "tasks",
    TASK_STARTED_COLUMNS,
    f"ON CONFLICT (swarm, idx) DO UPDATE SET {_overwrite(TASK_STARTED_COLUMNS[2:])} WHERE tasks.started_at_ms IS NULL",
)

TASKS_ENDED: Final = Bulk(
    "tasks",
    TASK_ENDED_COLUMNS,
    f"ON CONFLICT (swarm, idx) DO UPDATE SET {_overwrite(TASK_ENDED_COLUMNS[2:])} WHERE tasks.outcome IS NULL",
)

# Leases and releases in one statement, because their order among each other is what they are about.
TURNS: Final = Bulk(
    "turn_leases",
    TURN_COLUMNS,
    "ON CONFLICT (session) DO UPDATE SET lease = excluded.lease,"
    f" {_fill('turn_leases', ('holder', 'leased_at_ms', 'until_ms'))}, released_at_ms = excluded.released_at_ms"
    " WHERE iif(excluded.lease = turn_leases.lease, turn_leases.released_at_ms IS NULL,"
    " excluded.released_at_ms IS NULL"
    " AND (turn_leases.released_at_ms IS NOT NULL OR turn_leases.until_ms <= excluded.leased_at_ms))",
)

DEAD_LETTERS: Final = Bulk("dead_letters", LETTER_COLUMNS, "")

RESTARTS: Final = Bulk("restarts", RESTART_COLUMNS, "ON CONFLICT (incarnation) DO NOTHING")

INBOX: Final = Bulk(
    "inbox",
    ("incarnation", "seq"),
    "ON CONFLICT (incarnation) DO UPDATE SET seq = excluded.seq WHERE excluded.seq > inbox.seq",
)

UNSTORABLE: Final = Bulk("unstorable", ("incarnation", "seq", "problem", "record"), "")
