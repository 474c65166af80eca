"""Which row of which table a record is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from ..protocol.ids import SessionId
from ..protocol.messages.ledger import (
    CallRecorded,
    ChildRestarted,
    DeadLetter,
    GenerationAdvanced,
    LedgerRecord,
    MessageAppended,
    MessagesCompacted,
    SessionEnded,
    SessionOpened,
    SessionTouched,
    SwarmEnded,
    SwarmOpened,
    TaskEnded,
    TaskStarted,
    TurnLeased,
    TurnReleased,
)
from ..protocol.messages.tokens import RouteChosen, TokensCounted
from . import rows, writes
from .activity import is_text
from .bulk import Bulk
from .database import Row


def rows_of(record: LedgerRecord) -> Iterator[tuple[Bulk, Row]]:
    """The rows of a record in the order they are written; counts of tokens are none of them (`token_tables`)."""
    match record:
        case MessageAppended():
            yield writes.MESSAGES, rows.message_row(record)
        case CallRecorded():
            yield writes.CALLS, rows.call_row(record)
            if record.session is not None and record.parent is not None and _is_lineage(record.session, record.parent):
                yield writes.LINEAGE, (record.session, record.parent)
        case SessionOpened():
            yield writes.OPENED, rows.opened_row(record)
        case SessionTouched():
            if record.doing is not None:
                yield writes.TOUCHED, (record.session, record.doing)
        case SessionEnded():
            yield writes.ENDED, rows.ended_row(record)
        case MessagesCompacted():
            yield writes.COMPACTIONS, rows.compaction_row(record)
        case ChildRestarted():
            yield writes.RESTARTS, rows.restart_row(record)
        case _:
            yield _rarer(record)


def _is_lineage(session: SessionId, parent: SessionId) -> bool:
    # What is no text is no row of a call either, and put aside once.
    return session != parent and is_text(session) and is_text(parent)


def _rarer(
    record: GenerationAdvanced
    | SwarmOpened
    | TaskStarted
    | TaskEnded
    | SwarmEnded
    | TurnLeased
    | TurnReleased
    | DeadLetter
    | TokensCounted
    | RouteChosen,
) -> tuple[Bulk, Row]:
    match record:
        case GenerationAdvanced():
            return writes.CONVERSATIONS, rows.generation_row(record)
        case SwarmOpened():
            return writes.SWARMS_OPENED, rows.swarm_opened_row(record)
        case TaskStarted():
            return writes.TASKS_STARTED, rows.task_started_row(record)
        case TaskEnded():
            return writes.TASKS_ENDED, rows.task_ended_row(record)
        case SwarmEnded():
            return writes.SWARMS_ENDED, rows.swarm_ended_row(record)
        case TurnLeased() | TurnReleased():
            return writes.TURNS, rows.turn_row(record)
        case DeadLetter():
            return writes.DEAD_LETTERS, rows.letter_row(record)
        case TokensCounted() | RouteChosen():
            raise AssertionError("counts are worked in by `token_tables`")
        case _:
            assert_never(record)
