"""The floor of the ledger benchmark: one process that has the records already and commits them, batch after batch.

And what a process reads that has nothing to do with the ledger.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from ..actors.ledger_mail import MAX_GROUP_RECORDS
from ..protocol.ids import Incarnation, SessionId
from ..protocol.messages.ledger import MessageAppended
from ..protocol.transcript import Message, Role
from ..storage.queries import CALLS
from ..storage.readonly import Reader
from ..storage.store import Store
from .ledger_client import record

NAME: Final = "floor"
_RECORDS: Final = 20_000
_LONG: Final = 1 << 20


class Bare(msgspec.Struct, frozen=True, kw_only=True):
    """Records per second, and CPU seconds of each."""

    per_s: float
    cpu: float


def bare(home: Path, seconds: float) -> Bare:
    """What a bare loop does, in a process of its own, as the ledger's is."""
    code = f"from covey.bench.ledger_floor import main; main({str(home)!r}, {seconds!r})"
    done = subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True)
    return msgspec.json.decode(done.stdout, type=Bare)


def main(home: str, seconds: float) -> None:
    """Commit for so long, and print what came of it."""
    # Each run has a database of its own: a record that is there already costs next to nothing.
    store = Store(Path(home) / f"floor-{time.monotonic_ns()}.db")
    life = Incarnation(NAME)
    committed, took, cpu, at = 0, 0.0, 0.0, time.perf_counter()
    while took < seconds:
        batch = [(life, seq, record(NAME, seq)) for seq in range(committed + 1, committed + MAX_GROUP_RECORDS + 1)]
        began, cpu_began = time.perf_counter(), time.process_time()
        store.apply(batch)
        if store.maintain(idle_s=0.0, since_last_s=began - at):
            at = began
        took += time.perf_counter() - began
        cpu += time.process_time() - cpu_began
        committed += len(batch)
    store.close()
    sys.stdout.buffer.write(msgspec.json.encode(Bare(per_s=committed / took, cpu=cpu / committed)))


def fill(database: Path, size: int) -> None:
    """Make a state.db of about that many bytes, that has seen calls and long messages."""
    store = Store(database)
    life = Incarnation("filler")
    store.apply([(life, seq, record("filler", seq)) for seq in range(1, _RECORDS + 1)])
    for seq in range(_RECORDS + 1, _RECORDS + 1 + size // _LONG):
        store.apply([(life, seq, _long(seq))])
        store.maintain(idle_s=0.0, since_last_s=1.0)
    store.close()
    os.sync()  # else what is measured next waits for this


def _long(seq: int) -> MessageAppended:
    # Hidden: no search has to find its words.
    message = Message(role=Role.TOOL, content="x" * _LONG)
    return MessageAppended(session=SessionId("ses_filler"), index=seq, message=message, at_ms=0, display_kind="hidden")


class ReaderProcess:
    """A program that reads state.db for itself: short statements, one after another, until it is killed."""

    def __init__(self, database: Path) -> None:
        code = f"from covey.bench.ledger_floor import read; read({str(database)!r})"
        self._child = subprocess.Popen([sys.executable, "-P", "-c", code], stdin=subprocess.PIPE)

    def kill(self) -> None:
        """SIGKILL, and wait for its end. Idempotent."""
        self._child.kill()
        self._child.wait()
        assert self._child.stdin is not None, "opened as a pipe"
        self._child.stdin.close()


def read(database: str) -> None:
    """Read until killed."""
    with Reader(Path(database)) as reader:
        while True:
            reader.rows(CALLS, (0, 200))
            time.sleep(0.005)
