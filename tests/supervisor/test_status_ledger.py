"""What `covey status` says of the ledger's troubles."""

from __future__ import annotations

import pytest

from covey.protocol.messages.ledger import LedgerStats
from covey.supervisor.cli.status import _ledger_troubles


def stats(**fields: object) -> LedgerStats:
    sizes = {"rows": 1, "backlog": 0, "committed": 1, "duplicates": 0, "db_bytes": 4096, "wal_bytes": 70_000_000}
    return LedgerStats(**{**sizes, **fields})  # type: ignore[arg-type]


def test_of_a_sound_ledger_there_is_nothing_to_say() -> None:
    assert list(_ledger_troubles(stats())) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"fault": "the disk is full"}, "nothing is committed now: the disk is full; records wait"),
        ({"fault": "it was moved", "is_fault_lasting": True, "journaled": 7}, "7 records are kept in state.db.pending"),
        ({"foreign_writes": 3}, "somebody else wrote to state.db 3 times"),
        ({"is_wal_large": True}, "the WAL of state.db has 70 MB"),
    ],
)
def test_each_trouble_is_said_with_what_it_means(fields: dict[str, object], words: str) -> None:
    (said,) = _ledger_troubles(stats(**fields))

    assert words in said
