"""kill -9 of the ledger again and again while eight processes hand records over, and of them in the end.

20 rounds; as many as COVEY_KILL_SEEDS says if that is more.
"""

from __future__ import annotations

import os
import random
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import pytest

from covey.bench.ledger_service import LedgerProcess, socket_path

SENDERS = 8
ROUNDS = max(20, int(os.environ.get("COVEY_KILL_SEEDS", "0")))
WAIT_S = 30.0

# Hands over a few numbered messages at a time; prints up to which number they are kept, as soon as it knows.
SENDER = """
import asyncio, os, sys
from pathlib import Path
from covey.protocol.ids import Incarnation, SessionId
from covey.protocol.messages.ledger import LedgerReply, MessageAppended
from covey.protocol.peer import Peer
from covey.protocol.transcript import Message, Role
from covey.storage.outbox import Outbox
from covey.storage.owners import me
from covey.supervisor.link import Link
from covey.supervisor.records import Records
from covey.supervisor.sockets import make_context

home, name, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

async def main():
    life = Incarnation(f"inc_{name}")
    peer = Peer(role="test", name=name, incarnation=life, owner=me())
    link = Link(make_context(), path=str(home / "ledger.sock"), service="ledger", me=peer, replies=LedgerReply)
    records = Records(link, Outbox(home / "outbox", role="test", incarnation=life))
    seq = 0
    while True:
        for _ in range(1 + (seed + seq) % 40):
            text = Message(role=Role.USER, content="x" * (seq % 500))
            records.record(MessageAppended(session=SessionId(f"ses_{name}"), index=seq, message=text, at_ms=seq))
            seq += 1
        await records.flush(timeout_s=120)
        os.write(1, b"%d\\n" % seq)

asyncio.run(main())
"""


class Sender:
    def __init__(self, home: Path, name: str, seed: int) -> None:
        self.name = name
        self.acknowledged = 0
        self._rest = b""
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-c", SENDER, str(home), name, str(seed)], stdout=subprocess.PIPE, bufsize=0
        )

    def fileno(self) -> int:
        assert self._child.stdout is not None
        return self._child.stdout.fileno()

    def read(self) -> None:
        """Take what it has printed; there is something, or it has ended."""
        *lines, self._rest = (self._rest + os.read(self.fileno(), 1 << 16)).split(b"\n")
        self.acknowledged = max([self.acknowledged, *map(int, lines)])

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()
        assert self._child.stdout is not None
        if not self._child.stdout.closed:
            self.read()
            self._child.stdout.close()


@pytest.fixture
def home() -> Iterator[Path]:
    with TemporaryDirectory(prefix="cvk-") as folder:
        (Path(folder) / "outbox").mkdir()
        yield Path(folder)


def read_for(senders: list[Sender], seconds: float) -> None:
    """At least once, all that is there now."""
    end = time.monotonic() + seconds
    while ready := select.select(senders, [], [], max(0.0, end - time.monotonic()))[0]:
        for sender in ready:
            sender.read()
        if time.monotonic() >= end + 0.1:
            return


def read_until_all_go_on(senders: list[Sender], place: str) -> None:
    before = {sender.name: sender.acknowledged for sender in senders}
    end = time.monotonic() + WAIT_S
    while any(sender.acknowledged == before[sender.name] for sender in senders):
        assert time.monotonic() < end, f"{place}: not everybody is served"
        read_for(senders, 0.005)


def check(home: Path, senders: list[Sender], place: str) -> None:
    """Nobody has the database open; what it holds is all there was, in order, once."""
    database = apsw.Connection(str(home / "state.db"))
    try:
        database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)], place
        for sender in senders:
            found = database.execute(
                "SELECT count(*), count(DISTINCT idx), coalesce(min(idx), 0), coalesce(max(idx) + 1, 0)"
                " FROM messages WHERE session = ?",
                (f"ses_{sender.name}",),
            ).fetchall()
            count, distinct, first, last = (int(str(number)) for number in found[0])
            assert (count, distinct, first) == (last, last, 0), (place, sender.name)
            assert last >= sender.acknowledged, (place, sender.name)
    finally:
        database.close()


@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.timeout(60 + 10 * ROUNDS)
def test_whatever_the_moment_a_ledger_is_killed_at_all_it_acknowledged_is_there_once(home: Path) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(socket_path(home))
        listener.listen(64)
        ledger = LedgerProcess(home, listener)
        stack.callback(ledger.kill)
        ledger.serve()
        senders = [Sender(home, f"s{number}", chance.randrange(40)) for number in range(SENDERS)]
        for sender in senders:
            stack.callback(sender.kill)
        read_until_all_go_on(senders, "at the start")

        for turn in range(ROUNDS):
            place = f"seed {seed}, round {turn}"
            successor = LedgerProcess(home, listener)
            stack.callback(successor.kill)
            if chance.random() < 0.5:
                read_until_all_go_on(senders, place)
            read_for(senders, chance.random() * 0.1)
            ledger.kill()
            read_for(senders, 0.02)  # what they were told before that
            check(home, senders, place)
            ledger = successor
            ledger.serve()
        read_until_all_go_on(senders, "after the last round")

        for sender in senders:
            sender.kill()
        end = time.monotonic() + WAIT_S
        while os.listdir(home / "outbox"):
            assert time.monotonic() < end, f"seed {seed}: {os.listdir(home / 'outbox')} is not adopted"
            time.sleep(0.01)
        ledger.end()
        check(home, senders, f"seed {seed}, in the end")
