"""kill -9 of the ledger under load: everything it acknowledged is there, once, and the file is sound."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from covey.protocol.ids import Incarnation
from covey.storage.orphans import adopt
from covey.storage.store import Store

SENDERS = 4

# A ledger that loads itself: every sender goes on after what `state.db` says, minus a few to send again, with at most
# 8 batches on their way. It prints `sender upto` for every acknowledgement.
LEDGER = """
import asyncio, os, sys
from pathlib import Path
from covey.actors.ledger import LedgerWriter
from covey.protocol.ids import CallId, Incarnation, SessionId
from covey.protocol.messages.ledger import CallRecorded, CallStatus, MessageAppended
from covey.protocol.transcript import Message, Role
from covey.protocol.usage import Usage

home, starts = Path(sys.argv[1]), [int(text) for text in sys.argv[2:]]

def record(sender, seq):
    if seq % 3 == 0:
        return CallRecorded(call=CallId(f"call_{sender}_{seq}"), provider="p", base_url="u", model="m",
            status=CallStatus.COMPLETED, started_at_ms=seq, usage=Usage(input=1, output=1))
    return MessageAppended(session=SessionId(f"ses_{sender}"), index=seq, at_ms=seq,
        message=Message(role=Role.USER, content="x" * (seq % 700)))

async def main():
    writer = LedgerWriter(home / "state.db", home / "outbox")
    await writer.start()
    window = asyncio.Semaphore(8 * len(starts))
    following = list(starts)

    def acknowledged(sender, upto):
        os.write(1, f"{sender} {upto}\\n".encode())
        window.release()

    while True:
        for sender in range(len(starts)):
            await window.acquire()
            first = following[sender]
            following[sender] = first + 1 + first % 60
            entries = [(seq, record(sender, seq)) for seq in range(first, following[sender])]
            writer.submit(Incarnation(f"inc_{sender}"), entries, lambda upto, sender=sender: acknowledged(sender, upto))

asyncio.run(main())
"""


def run_until_killed(home: Path, starts: list[int], acknowledgements: int) -> list[tuple[int, int]]:
    """Run the ledger, kill it after so many acknowledgements; return all that it got out."""
    ledger = subprocess.Popen(
        [sys.executable, "-P", "-c", LEDGER, str(home), *map(str, starts)], stdout=subprocess.PIPE, text=True
    )
    assert ledger.stdout is not None
    lines = [ledger.stdout.readline() for _ in range(acknowledgements)]
    ledger.kill()
    lines += ledger.stdout.read().splitlines(keepends=True)
    ledger.stdout.close()
    ledger.wait()
    pairs = [line.split() for line in lines if line.endswith("\n")]
    return [(int(sender), int(upto)) for sender, upto in pairs]


def rows_of(database: Path, sql: str) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return list(connection.execute(sql).fetchall())
    finally:
        connection.close()


def kept_numbers(database: Path, sender: int) -> Iterator[int]:
    for (index,) in rows_of(database, f"SELECT idx FROM messages WHERE session = 'ses_{sender}'"):
        yield int(str(index))
    for (call,) in rows_of(database, f"SELECT call FROM calls WHERE call LIKE 'call\\_{sender}\\_%' ESCAPE '\\'"):
        yield int(str(call).rpartition("_")[2])


@pytest.mark.kill
def test_what_a_killed_ledger_had_acknowledged_is_there_once(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    database = tmp_path / "state.db"
    acknowledged = [0] * SENDERS
    starts = [1] * SENDERS

    for turn in range(6):
        for sender, upto in run_until_killed(tmp_path, starts, chance.randrange(1, 400)):
            acknowledged[sender] = max(acknowledged[sender], upto)
        store = Store(database)
        committed = [store.committed_upto(Incarnation(f"inc_{sender}")) for sender in range(SENDERS)]
        store.close()

        place = f"seed {seed}, turn {turn}"
        assert rows_of(database, "PRAGMA integrity_check") == [("ok",)], place
        for sender in range(SENDERS):
            assert committed[sender] >= acknowledged[sender], place
            assert sorted(kept_numbers(database, sender)) == list(range(1, committed[sender] + 1)), place
        starts = [max(1, upto + 1 - chance.randrange(0, 100)) for upto in committed]

    assert all(acknowledged)
    assert list(adopt(tmp_path / "outbox")) == []
