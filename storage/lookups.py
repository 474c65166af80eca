"""The reader's smaller statements: conversations, swarms and their tasks, leases of turns, dead letters."""

from __future__ import annotations

from typing import Final, cast

from ..protocol.messages.ledger import (
    DeadLetters,
    DeadLettersQuery,
    Generation,
    GenerationQuery,
    Swarms,
    SwarmsQuery,
    Tasks,
    TasksQuery,
    TurnLease,
    TurnLeaseQuery,
)
from .database import Database
from .rows import LETTER_COLUMNS, SWARM_ROW_COLUMNS, TASK_ROW_COLUMNS, letter_of, swarm_of, task_of

_INT64: Final = (1 << 63) - 1

GENERATION: Final = "SELECT generation FROM conversations WHERE source = ? AND conversation = ?"
_TASKS_OF: Final = "(SELECT count({}) FROM tasks WHERE tasks.swarm = swarms.swarm)"
_DONE: Final = "nullif(tasks.outcome = 'done', 0)"
SWARMS: Final = (
    f"SELECT id, {_TASKS_OF.format('started_at_ms')}, {_TASKS_OF.format('tasks.outcome')},"
    f" {_TASKS_OF.format(_DONE)}, {', '.join(SWARM_ROW_COLUMNS)}"
    " FROM swarms WHERE id < ? ORDER BY id DESC LIMIT ?"
)
TASKS: Final = f"SELECT idx, {', '.join(TASK_ROW_COLUMNS)} FROM tasks WHERE swarm = ? AND idx > ? ORDER BY idx LIMIT ?"
TURN_LEASE: Final = "SELECT lease, holder, until_ms FROM turn_leases WHERE session = ? AND released_at_ms IS NULL"
DEAD_LETTERS: Final = f"SELECT id, {', '.join(LETTER_COLUMNS)} FROM dead_letters WHERE id > ? ORDER BY id LIMIT ?"


def generation(database: Database, query: GenerationQuery) -> Generation:
    """Return how often a conversation was begun anew; 0 for one that never was."""
    found = database.execute(GENERATION, (query.source, query.conversation))
    return Generation(generation=cast(int, found[0][0]) if found else 0)


def swarms(database: Database, query: SwarmsQuery) -> Swarms:
    """Return a page of swarms, the newest first."""
    before = _INT64 if query.before is None else _int64(query.before)
    rows = database.execute(SWARMS, (before, max(_int64(query.limit), 0)))
    return Swarms(rows=tuple(swarm_of(row) for row in rows))


def tasks(database: Database, query: TasksQuery) -> Tasks:
    """Return a page of a swarm's tasks."""
    rows = database.execute(TASKS, (query.swarm, _int64(query.after), max(_int64(query.limit), 0)))
    return Tasks(rows=tuple(task_of(row) for row in rows))


def turn_lease(database: Database, query: TurnLeaseQuery) -> TurnLease:
    """Return who has the turn of a session."""
    found = database.execute(TURN_LEASE, (query.session,))
    if not found:
        return TurnLease()
    lease, holder, until_ms = found[0]
    return TurnLease(
        lease=cast("str | None", lease),
        holder=cast("str | None", holder),
        until_ms=cast("int | None", until_ms),
    )


def dead_letters(database: Database, query: DeadLettersQuery) -> DeadLetters:
    """Return a page of dead letters."""
    rows = database.execute(DEAD_LETTERS, (max(_int64(query.after), 0), max(_int64(query.limit), 0)))
    return DeadLetters(rows=tuple(letter_of(row) for row in rows))


def _int64(number: int) -> int:
    return min(max(number, -_INT64), _INT64)
