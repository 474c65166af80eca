"""The ledger benchmark's run: senders in processes of their own, one ledger, and bare loops beside them.

Floods and bare loops take turns, so that a slow moment of the machine meets both.
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..protocol.ids import Incarnation
from ..protocol.messages.ledger import LedgerReply, LedgerStatsQuery
from ..protocol.peer import Peer
from ..storage.identity import wal_size
from ..storage.owners import me
from ..supervisor.link import Link
from ..supervisor.sockets import make_context
from .ledger_client import Flood, Flooded, SenderProcess, Turned, Turns
from .ledger_floor import Bare, ReaderProcess, bare, fill
from .ledger_service import LedgerProcess, socket_path
from .sampling import cpu_ns, pss_mb
from .strangers import Strangers

WAIT_S: Final = 30.0
LOOK_S: Final = 0.02
READERS: Final = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    senders: int = 8
    rounds: int = 3
    flood_s: float = 2.0
    turns_s: float = 3.0
    pause_s: float = 0.02
    """Between two turns of a sender: an agent's messages come with its calls."""
    large_bytes: int = 1 << 30
    restarts: int = 3


@dataclass(slots=True)
class LedgerRun:
    """What was measured; times in seconds, rates in records per second."""

    rates: list[float] = field(default_factory=list)
    bare: list[Bare] = field(default_factory=list)
    ledger_cpu: list[float] = field(default_factory=list)
    """CPU seconds of the ledger's process for one record."""
    enqueue: list[float] = field(default_factory=list)
    kept: list[float] = field(default_factory=list)
    large_kept: list[float] = field(default_factory=list)
    rate_beside_readers: float = 0.0
    wal_bytes: int = 0
    """At its largest, under floods and readers."""
    restarts: list[float] = field(default_factory=list)
    large_bytes: int = 0
    idle_cpu_percent: float = 0.0
    pss_mb: float = 0.0
    strangers_cpus: float = 0.0


async def measure(plan: Plan) -> LedgerRun:
    """Run all of it."""
    run, strangers = LedgerRun(), Strangers(roots=[os.getpid()])
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cvl-")))
        for number in range(plan.rounds):
            # Each on a file of its own, as old as the floor's.
            run.bare.append(bare(folder, plan.flood_s))
            fresh = _House(folder / f"fresh-{number}", stack)
            _flood(run, fresh, plan)
            fresh.end()
        small = _House(folder / "small", stack)
        _alone(run, small, plan)
        _flood_beside_readers(run, small, plan)
        run.kept = _turns(small, plan)
        run.pss_mb = pss_mb(small.ledger.pid)
        small.end()
        (folder / "large").mkdir()
        fill(folder / "large" / "state.db", plan.large_bytes)
        large = _House(folder / "large", stack)
        run.large_kept = _turns(large, plan)
        run.large_bytes = os.stat(large.home / "state.db").st_size
        for _ in range(plan.restarts):
            run.restarts.append(await _restart(large))
        run.strangers_cpus = strangers.cpus()
    return run


class _House:
    """A ledger, and the senders that work with it; all of it ends with `stack`."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.home, self._stack = home, stack
        (home / "outbox").mkdir(parents=True)
        self._listener = socket.socket(socket.AF_UNIX)
        stack.callback(self._listener.close)
        self._listener.bind(socket_path(home))
        self._listener.listen(64)
        self.ledger = self.warm()
        self.ledger.serve()

    def warm(self) -> LedgerProcess:
        """Another ledger, that waits for its turn."""
        ledger = LedgerProcess(self.home, self._listener)
        self._stack.callback(ledger.kill)
        return ledger

    def senders(self, count: int, stack: ExitStack) -> list[SenderProcess]:
        """So many senders, connected; they end with `stack`."""
        senders = [SenderProcess(self.home, name=f"s{number}") for number in range(count)]
        for sender in senders:
            stack.callback(sender.kill)
        for sender in senders:
            sender.ready()
        return senders

    def end(self) -> None:
        """Let the ledger close."""
        self.ledger.end()


def _alone(run: LedgerRun, house: _House, plan: Plan) -> None:
    """One sender that has the machine to itself: what a hand-over costs its caller. Then nobody: what rest costs."""
    with ExitStack() as stack:
        (sender,) = house.senders(1, stack)
        sender.tell(Turns(seconds=plan.turns_s, pause_s=0.002))
        run.enqueue = list(sender.answer(Turned).enqueue)
    time.sleep(0.5)
    before, began = cpu_ns([house.ledger.pid]), time.perf_counter_ns()
    time.sleep(plan.turns_s)
    run.idle_cpu_percent = (cpu_ns([house.ledger.pid]) - before) / (time.perf_counter_ns() - began) * 100


def _flood(run: LedgerRun, house: _House, plan: Plan) -> None:
    with ExitStack() as stack:
        senders = house.senders(plan.senders, stack)
        cpu_began = cpu_ns([house.ledger.pid])
        flooded = _flooded(senders, plan)
        cpu = (cpu_ns([house.ledger.pid]) - cpu_began) / 1e9
    run.rates.append(sum(one.kept for one in flooded) / plan.flood_s)
    run.ledger_cpu.append(cpu / sum(one.handed for one in flooded))


def _flood_beside_readers(run: LedgerRun, house: _House, plan: Plan) -> None:
    with ExitStack() as stack:
        senders = house.senders(plan.senders, stack)
        for reader in [ReaderProcess(house.home / "state.db") for _ in range(READERS)]:
            stack.callback(reader.kill)
        with _WalWatch(house.home / "state.db") as watch:
            flooded = _flooded(senders, plan, seconds=plan.flood_s * plan.rounds)
    run.wal_bytes = watch.largest
    run.rate_beside_readers = sum(one.kept for one in flooded) / plan.flood_s / plan.rounds


def _flooded(senders: list[SenderProcess], plan: Plan, *, seconds: float | None = None) -> list[Flooded]:
    for sender in senders:
        sender.tell(Flood(seconds=seconds or plan.flood_s))
    return [sender.answer(Flooded) for sender in senders]


def _turns(house: _House, plan: Plan) -> list[float]:
    with ExitStack() as stack:
        senders = house.senders(plan.senders, stack)
        for sender in senders:
            sender.tell(Turns(seconds=plan.turns_s, pause_s=plan.pause_s))
        return [kept for sender in senders for kept in sender.answer(Turned).kept]


async def _restart(house: _House) -> float:
    """From the kill of a ledger at work to the first answer of its successor."""
    context = make_context()
    life = Incarnation(f"probe-{time.monotonic_ns()}")
    link = Link(
        context,
        path=socket_path(house.home),
        service="ledger",
        me=Peer(role="bench", name="probe", incarnation=life, owner=me()),
        replies=LedgerReply,
    )
    with ExitStack() as stack:
        await link.opened(timeout_s=WAIT_S)
        successor = house.warm()
        (sender,) = house.senders(1, stack)
        sender.tell(Flood(seconds=60.0))
        await asyncio.sleep(0.5)
        began = time.perf_counter()
        house.ledger.kill()
        sender.kill()
        successor.serve()
        house.ledger = successor
        await link.ask(LedgerStatsQuery(), timeout_s=WAIT_S)
        took = time.perf_counter() - began
    link.close()
    context.destroy(linger=0)
    return took


class _WalWatch:
    """Looks at the size of a WAL until it is left; `largest` is the largest it saw."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self.largest = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> _WalWatch:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(LOOK_S):
            self.largest = max(self.largest, wal_size(self._database))
