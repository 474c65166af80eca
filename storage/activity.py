"""Which sessions a commit concerned: what the list of sessions is in the order of.

Activity is the number of a commit, not a time: clocks go backwards. Sessions of one commit are in the order of their
rows. Only sessions that have a row are touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from ..protocol.ids import SessionId
from ..protocol.messages.ledger import (
    CallRecorded,
    LedgerRecord,
    MessageAppended,
    SessionEnded,
    SessionOpened,
    SessionTouched,
)
from .database import Database

TOUCH: Final = (
    "UPDATE sessions SET activity = (SELECT coalesce(max(activity), 0) + 1 FROM sessions),"
    " active_at_ms = touched.value ->> 1"
    " FROM json_each(?) AS touched WHERE sessions.session = touched.value ->> 0"
)
_INT64: Final = 1 << 63


def touch(database: Database, records: Iterable[LedgerRecord]) -> None:
    """Note, within the transaction that is open, that the sessions of these records were active."""
    at_ms: dict[SessionId, int] = {}
    for record in records:
        match record:
            case MessageAppended() | SessionOpened() | SessionTouched() | SessionEnded():
                at_ms[record.session] = record.at_ms
            case CallRecorded(session=session) if session is not None:
                at_ms[session] = record.started_at_ms
            case _:
                pass
    # Names that are no text and times that are no numbers of SQLite's are in no row either.
    sound = [[name, at] for name, at in at_ms.items() if is_text(name) and -_INT64 <= at < _INT64]
    if sound:
        database.execute(TOUCH, (msgspec.json.encode(sound).decode(),))


def is_text(name: str) -> bool:
    """Whether it can be written down."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
