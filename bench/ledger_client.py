"""A sender of the ledger benchmark: hands records over as agents do, through a spool and a link, in its own process.

It is told what to do by lines of JSON on its standard input, one at a time, and answers each with one line. It ends
when that input does.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from ..protocol.ids import AgentId, CallId, Incarnation, SessionId
from ..protocol.messages.ledger import CallRecorded, CallStatus, LedgerRecord, LedgerReply, MessageAppended
from ..protocol.peer import Peer
from ..protocol.transcript import Message, Role
from ..protocol.usage import Usage
from ..storage.outbox import Outbox
from ..storage.owners import me
from ..supervisor.link import Link
from ..supervisor.loops import run
from ..supervisor.records import Records
from ..supervisor.sockets import make_context
from .ledger_service import socket_path

READY_S: Final = 30.0
AHEAD: Final = 2048
"""Records a flooding sender has on their way at most."""
MADE_PER_S: Final = 12_000
TEXT: Final = "The quick brown fox looks at file 17 and finds nothing that it did not expect. " * 3

Line = TypeVar("Line", bound=msgspec.Struct)


class Flood(msgspec.Struct, frozen=True, kw_only=True, tag="flood"):
    """Hand over as much as is taken for so long. Answered by `Flooded`."""

    seconds: float


class Turns(msgspec.Struct, frozen=True, kw_only=True, tag="turns"):
    """Hand over a few records, wait until they are kept, pause, again, for so long. Answered by `Turned`."""

    seconds: float
    records: int = 4
    pause_s: float = 0.0


class Flooded(msgspec.Struct, frozen=True, kw_only=True):
    """How many records were kept within the time, and how many in the end."""

    kept: int
    handed: int


class Turned(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that each hand-over took, and seconds from the first of a turn until all of it was kept."""

    enqueue: tuple[float, ...]
    kept: tuple[float, ...]


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The sender is connected."""


class SenderProcess:
    """One sender in a process of its own. Blocking; owned by one thread."""

    def __init__(self, home: Path, *, name: str) -> None:
        code = f"from covey.bench.ledger_client import main; main({str(home)!r}, {name!r})"
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def ready(self) -> None:
        """Wait until it is connected."""
        self.answer(Ready)

    def tell(self, work: Flood | Turns) -> None:
        """Have it begin; `answer` waits for what came of it."""
        assert self._child.stdin is not None, "opened as a pipe"
        self._child.stdin.write(msgspec.json.encode(work) + b"\n")

    def answer(self, kind: type[Line]) -> Line:
        """Wait for its next line."""
        assert self._child.stdout is not None, "opened as a pipe"
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"a sender ended with {self._child.wait()} before it answered")
        return msgspec.json.decode(line, type=kind)

    def kill(self) -> None:
        """SIGKILL, and wait for its end. Idempotent."""
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None, "opened as a pipe"
            pipe.close()


def record(name: str, seq: int) -> LedgerRecord:
    """Record number `seq` of a sender: a message of an agent, or the account of its call, in turns."""
    session = SessionId(f"ses_{name}_{seq // 64}")
    if seq % 2:
        message = Message(role=Role.ASSISTANT, content=TEXT)
        return MessageAppended(session=session, index=seq // 2 % 32, message=message, at_ms=seq)
    return CallRecorded(
        call=CallId(f"call_{name}_{seq:08x}"),
        session=session,
        agent=AgentId("ag_0123456789ab"),
        provider="zai",
        base_url="https://provider.example/v4",
        model="glm-4.6",
        status=CallStatus.COMPLETED,
        started_at_ms=seq,
        usage=Usage(input=1200, output=80, cache_read=900),
        waited_ms=1.5,
        first_byte_ms=230.0,
        duration_ms=1830.0,
    )


def main(home: str, name: str) -> None:
    """Connect, and do what the lines say."""
    run(_serve(Path(home), name))


async def _serve(home: Path, name: str) -> None:
    life = Incarnation(f"{name}-{os.getpid()}")
    peer = Peer(role="bench", name=name, incarnation=life, owner=me())
    context = make_context()
    link = Link(context, path=socket_path(home), service="ledger", me=peer, replies=LedgerReply)
    records = Records(link, Outbox(home / "outbox", role="bench", incarnation=life))
    sender = _Sender(records, f"{name}_{os.getpid()}")
    await link.opened(timeout_s=READY_S)
    _say(Ready())
    while line := await asyncio.to_thread(sys.stdin.readline):
        match msgspec.json.decode(line, type=Flood | Turns):
            case Flood(seconds=seconds):
                _say(await sender.flood(seconds))
            case Turns() as turns:
                _say(await sender.turns(turns))
    await records.close(timeout_s=5.0)
    link.close()


class _Sender:
    def __init__(self, records: Records, name: str) -> None:
        self._records, self._name = records, name
        self._seq = 0
        self._made: deque[LedgerRecord] = deque()

    async def flood(self, seconds: float) -> Flooded:
        records = self._records
        before = self._seq
        # Made before, as the floor's are.
        self._made.extend(record(self._name, before + at) for at in range(1, int(seconds * MADE_PER_S)))
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            while records.backlog < AHEAD:
                for _ in range(64):
                    records.record(self._next())
            await asyncio.sleep(0.002)
        kept = self._seq - records.backlog - before
        self._made.clear()
        await records.flush(timeout_s=READY_S)
        return Flooded(kept=kept, handed=self._seq - before)

    async def turns(self, turns: Turns) -> Turned:
        enqueue: list[float] = []
        kept: list[float] = []
        end = time.perf_counter() + turns.seconds
        while (began := time.perf_counter()) < end:
            for _ in range(turns.records):
                one = self._next()
                handed = time.perf_counter()
                self._records.record(one)
                enqueue.append(time.perf_counter() - handed)
            await self._records.flush(timeout_s=READY_S)
            kept.append(time.perf_counter() - began)
            await asyncio.sleep(turns.pause_s)
        return Turned(enqueue=tuple(enqueue), kept=tuple(kept))

    def _next(self) -> LedgerRecord:
        self._seq += 1
        if self._made:
            return self._made.popleft()
        return record(self._name, self._seq)


def _say(line: Ready | Flooded | Turned) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()
