"""`covey db import hermes`: bring over what a hermes-agent kept.

With a running fleet the records go to its ledger like any other program's; without one this process owns state.db for
as long as it takes. Either way each record is kept once, and an import that was killed can be run again.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...protocol.errors import UsageError
from ...protocol.ids import Incarnation
from ...protocol.messages.ledger import MessageAppended
from ...storage.hermes import Hermes
from ...storage.hermes_import import Counted, Ours, records
from ..running import running_root
from .db_words import many, progress
from .output import print_json, print_line

if TYPE_CHECKING:
    from ...protocol.messages.ledger import LedgerRecord
    from ..home import Home

BATCH: Final = 512
BATCH_CHARS: Final = 8 << 20
"""Well below what an outbox takes before something is acknowledged."""
FLUSH_S: Final = 120.0

OnProgress = Callable[[int, int], None]


def import_db(home: Home, path: Path, *, is_rehearsal: bool, as_json: bool) -> int:
    """Import; says how much was found, how much of it was new, and what was left out."""
    source = path / "state.db" if path.is_dir() else path
    if not source.is_file():
        raise UsageError(f"{source} does not exist; say where the state.db of hermes-agent is")
    if home.state_db.exists() and source.samefile(home.state_db):
        raise UsageError(f"{source} is this home's own state.db")
    counted = Counted()
    with Hermes(source) as theirs, progress() as shown:
        version = theirs.version

        def say(done: int, of: int) -> None:
            shown.say(f"{done:,} of {many(of, 'message')}, {counted.messages_new:,} new")

        if is_rehearsal:
            _rehearse(home, theirs, counted, say)
        elif running_root(home) is not None:
            asyncio.run(_through_the_fleet(home, theirs, counted, say))
        else:
            _alone(home, theirs, counted, say)
    if as_json:
        print_json(_plain(source, version, is_rehearsal, counted))
    else:
        _say(source, is_rehearsal, counted)
    return 0


def _rehearse(home: Home, theirs: Hermes, counted: Counted, say: OnProgress) -> None:
    ours = Ours(home.state_db)
    try:
        for _ in records(theirs, ours, counted, say):
            pass
    finally:
        ours.close()


def _alone(home: Home, theirs: Hermes, counted: Counted, say: OnProgress) -> None:
    from ...storage.store import Store

    home.create()
    store = Store(home.state_db)
    try:
        ours = Ours(home.state_db)
        try:
            sender, seq = Incarnation(f"{os.getpid()}-{secrets.token_hex(6)}"), 1
            for batch in _batches(records(theirs, ours, counted, say)):
                store.apply([(sender, number, record) for number, record in enumerate(batch, seq)])
                seq += len(batch)
                store.maintain(idle_s=0.0, since_last_s=60.0)
        finally:
            ours.close()
    finally:
        store.close()


async def _through_the_fleet(home: Home, theirs: Hermes, counted: Counted, say: OnProgress) -> None:
    from ..client import AsyncFleet

    ours = Ours(home.state_db)
    try:
        fleet = await AsyncFleet.join(home, name="covey db import")
        try:
            for batch in _batches(records(theirs, ours, counted, say)):
                for record in batch:
                    fleet.records.record(record)
                # One batch at a time: other programs' records do not wait behind an import.
                await fleet.flush(timeout_s=FLUSH_S)
        finally:
            await fleet.close()
    finally:
        ours.close()


def _batches(records: Iterator[LedgerRecord]) -> Iterator[list[LedgerRecord]]:
    batch: list[LedgerRecord] = []
    chars = 0
    for record in records:
        batch.append(record)
        chars += len(record.message.content) if isinstance(record, MessageAppended) else 0
        if len(batch) >= BATCH or chars >= BATCH_CHARS:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


def _plain(source: Path, version: int | None, is_rehearsal: bool, counted: Counted) -> dict[str, Any]:
    return {"path": str(source), "version": version, "dry_run": is_rehearsal, **msgspec.structs.asdict(counted)}


def _say(source: Path, is_rehearsal: bool, counted: Counted) -> None:
    did = "would bring over" if is_rehearsal else "brought over"
    print_line(f"{source}: {many(counted.sessions, 'session')}, {many(counted.messages, 'message')}")
    print_line(
        f"{did} {many(counted.sessions_new, 'session')}, {many(counted.messages_new, 'message')} and the usage of"
        f" {many(counted.api_calls, 'call')} ({counted.prompt_tokens:,} prompt tokens, {counted.completion_tokens:,}"
        " completion tokens)"
    )
    left = {
        "taken back by their users": counted.messages_rewound,
        "empty, or notes of the program's own": counted.messages_not_kept,
        "of no session": counted.messages_without_session,
    }
    for why, count in left.items():
        if count:
            print_line(f"left out: {many(count, 'message')} {why}")
    if counted.sessions_changed:
        print_line(
            f"{many(counted.sessions_changed, 'session')} had messages rewritten since an earlier import;"
            " they stay here as they were brought over"
        )
