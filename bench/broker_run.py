"""The broker benchmark's run: a private fleet with a real broker, and client processes that share its slots.

Acquires and the bare round trips beside them alternate in small slices, so that a slow moment of the machine meets
both. Nothing is ever sent to a provider: what is measured ends with the grant.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from ..protocol.errors import SlotTimeout
from ..protocol.frames import Ask, encode
from ..protocol.messages.broker import Acquire, Destination, Priority
from ..protocol.session import body_of
from ..supervisor.client import AsyncFleet, new_call_id
from ..supervisor.home import Home
from ..supervisor.visit import visit
from .broker_client import MODEL, ClientProcess, Work
from .broker_floor import BareEnd, bare_end
from .broker_rules import Rules, rules_with
from .broker_spans import Spans, finished, hand_overs, held
from .sampling import pss_mb
from .strangers import Strangers

WIDE: Final = 256
"""Slots of the account that nobody has to wait for."""
FEW: Final = 8
"""Slots that `CROWD` processes share."""
CROWD: Final = 16
HOLD_S: Final = 0.020
WAITERS: Final = 4
"""Processes that hand one slot around."""
HURRIED: Final = 8
"""Processes that acquire and release as fast as they can."""
LANES: Final = 16
"""Of each of those."""
WARM_UP_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    slices: int = 40
    trips: int = 50
    """In one slice."""
    pause_s: float = 0.001
    """Before each round trip: a fleet asks one now and one then."""
    stretch_s: float = 3.0
    """How long each kind of crowd runs."""
    waiters: int = 10_000
    probes: int = 300
    rules: int = 2_000


@dataclass(slots=True)
class Crowded:
    """The same figures with nobody and with the whole crowd in the queue. Seconds, and bytes of the broker."""

    refused_empty: list[float] = field(default_factory=list)
    """To ask for a slot that is taken and be told so: a place in the queue and out of it."""
    refused_full: list[float] = field(default_factory=list)
    granted_full: list[float] = field(default_factory=list)
    """Grants of another account's free slots meanwhile."""
    hand_overs: list[float] = field(default_factory=list)
    waiter_bytes: float = 0.0


@dataclass(slots=True)
class BrokerRun:
    """What was measured. Times in seconds."""

    bare: list[float] = field(default_factory=list)
    acquire: list[float] = field(default_factory=list)
    hand_overs: list[float] = field(default_factory=list)
    per_s: float = 0.0
    broker_us: float = 0.0
    """Processor time of the broker for one acquire and its release, while as many as possible came."""
    shared_per_s: float = 0.0
    shared_held: list[float] = field(default_factory=list)
    crowded: Crowded = field(default_factory=Crowded)
    rules_few: Rules = field(default_factory=lambda: Rules([], [], 0.0))
    rules_many: Rules = field(default_factory=lambda: Rules([], [], 0.0))
    load_before: float = 0.0
    strangers_cpus: float = 0.0
    """Processors that programs of others used meanwhile, on the average."""


async def measure(plan: Plan) -> BrokerRun:
    """Run all of it."""
    run = BrokerRun(load_before=os.getloadavg()[0])
    run.rules_few = rules_with(FEW, rounds=plan.rules)
    run.rules_many = rules_with(plan.waiters, rounds=plan.rules)
    async with AsyncExitStack() as stack:
        home = _furnish(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="covey-brk-"))))
        fleet = await stack.enter_async_context(visit(home, name="bench"))
        broker = await _broker_pid(fleet)
        strangers = Strangers(roots=[os.getpid()])
        with bare_end(request_bytes=_request_bytes()) as bare:
            await _uncontended(run, plan, fleet, bare)
        clients = stack.enter_context(_clients(home, CROWD))
        await _handed_around(run, plan, clients[:WAITERS])
        await _hurried(run, plan, clients[:HURRIED], broker)
        await _shared(run, plan, clients)
        await _queued(run, plan, fleet, clients[:HURRIED], broker)
        run.strangers_cpus = strangers.cpus()
    return run


# --- one by one ------------------------------------------------------------------------------------------------------


async def _uncontended(run: BrokerRun, plan: Plan, fleet: AsyncFleet, bare: BareEnd) -> None:
    for _ in range(plan.slices):
        run.bare += bare.trips(plan.trips, pause_s=plan.pause_s)
        run.acquire += await _acquires(fleet, plan.trips, pause_s=plan.pause_s)


async def _acquires(fleet: AsyncFleet, count: int, *, pause_s: float) -> list[float]:
    took = []
    for _ in range(count):
        await asyncio.sleep(pause_s)
        request = _ask("wide")
        began = time.perf_counter()
        grant = await fleet.slots.acquire(request)
        took.append(time.perf_counter() - began)
        fleet.slots.release(request, grant)
    return took


async def _refusals(fleet: AsyncFleet, count: int, *, pause_s: float) -> list[float]:
    took = []
    for _ in range(count):
        await asyncio.sleep(pause_s)
        request = _ask("one", timeout_s=0.0)
        began = time.perf_counter()
        try:
            await fleet.slots.acquire(request)
        except SlotTimeout:
            took.append(time.perf_counter() - began)
        else:
            raise AssertionError("the slot is taken for as long as this is measured")
    return took


# --- many at once ----------------------------------------------------------------------------------------------------


async def _handed_around(run: BrokerRun, plan: Plan, clients: list[ClientProcess]) -> None:
    work = Work(base_url=_url("one"), hold_s=0.002)
    run.hand_overs = hand_overs(await _stretch(clients, work, plan.stretch_s))


async def _hurried(run: BrokerRun, plan: Plan, clients: list[ClientProcess], broker: int) -> None:
    used = _cpu_s(broker)
    since, until, spans = await _window(clients, Work(base_url=_url("wide"), lanes=LANES), plan.stretch_s)
    done = finished(spans, since=since, until=until)
    run.per_s = done / (until - since)
    run.broker_us = (_cpu_s(broker) - used) / max(1, sum(len(one.released) for one in spans)) * 1e6


async def _shared(run: BrokerRun, plan: Plan, clients: list[ClientProcess]) -> None:
    since, until, spans = await _window(clients, Work(base_url=_url("few"), hold_s=HOLD_S), plan.stretch_s)
    run.shared_per_s = finished(spans, since=since, until=until) / (until - since)
    run.shared_held = held(spans)


async def _queued(run: BrokerRun, plan: Plan, fleet: AsyncFleet, clients: list[ClientProcess], broker: int) -> None:
    """The broker refuses whoever comes when its queue is full: so the last place is kept for those who are measured."""
    crowded = run.crowded
    holder = _ask("one", priority=Priority.INTERACTIVE)
    grant = await fleet.slots.acquire(holder)
    crowded.refused_empty = await _refusals(fleet, plan.probes, pause_s=plan.pause_s)
    before = pss_mb(broker)
    lanes = (plan.waiters - 1) // len(clients)
    await _begin(clients, Work(base_url=_url("one"), lanes=lanes))
    crowded.waiter_bytes = (pss_mb(broker) - before) * 2**20 / (lanes * len(clients))
    crowded.refused_full = await _refusals(fleet, plan.probes, pause_s=plan.pause_s)
    crowded.granted_full = await _acquires(fleet, plan.probes, pause_s=plan.pause_s)
    fleet.slots.release(holder, grant)
    # From here on the crowd hands the slot around, each one back to the end of the queue.
    await asyncio.sleep(plan.stretch_s / 2)
    crowded.hand_overs = hand_overs(await _end(clients))


async def _stretch(clients: list[ClientProcess], work: Work, stretch_s: float) -> list[Spans]:
    await _begin(clients, work)
    await asyncio.sleep(stretch_s)
    return await _end(clients)


async def _window(clients: list[ClientProcess], work: Work, stretch_s: float) -> tuple[float, float, list[Spans]]:
    await _begin(clients, work)
    await asyncio.sleep(WARM_UP_S)
    since = time.perf_counter()
    await asyncio.sleep(stretch_s)
    until = time.perf_counter()
    return since, until, await _end(clients)


async def _begin(clients: list[ClientProcess], work: Work) -> None:
    for client in clients:
        client.begin(work)
    for client in clients:
        await asyncio.to_thread(client.standing)


async def _end(clients: list[ClientProcess]) -> list[Spans]:
    for client in clients:
        client.rest()
    return [await asyncio.to_thread(client.spans) for client in clients]


# --- the fleet -------------------------------------------------------------------------------------------------------


def _furnish(folder: Path) -> Home:
    home = Home.locate(folder / "home")
    home.create()
    slots = {"wide": WIDE, "few": FEW, "one": 1}
    providers = "".join(
        f"  {name}:\n    base_url: {_url(name)}\n    max_concurrent: {count}\n    acquire_timeout_seconds: 0\n"
        for name, count in slots.items()
    )
    home.config.write_text(f"fleet:\n  workers: 1\nproviders:\n{providers}", encoding="utf-8")
    return home


def _url(account: str) -> str:
    return f"http://{account}.invalid/v1"


def _ask(account: str, *, timeout_s: float | None = None, priority: Priority = Priority.AGENT) -> Acquire:
    return Acquire(
        call=new_call_id(),
        destination=Destination(base_url=_url(account)),
        model=MODEL,
        priority=priority,
        timeout_s=timeout_s,
        accounted=False,
    )


def _request_bytes() -> int:
    """As many bytes as the link sends for one acquire."""
    return len(encode(Ask(id=10_000, seq=10_000, body=msgspec.Raw(body_of(_ask("wide"))))))


async def _broker_pid(fleet: AsyncFleet) -> int:
    (pid,) = (one.pid for one in (await fleet.status()).processes if one.role == "broker")
    return pid


@contextmanager
def _clients(home: Home, count: int) -> Iterator[list[ClientProcess]]:
    with ExitStack() as stack:
        clients = [ClientProcess(home, name=f"client-{number}") for number in range(count)]
        for client in clients:
            stack.callback(client.end)
        for client in clients:
            client.joined()
        yield clients


def _cpu_s(pid: int) -> float:
    """Processor time of all threads of that process so far."""
    from .sampling import cpu_ns

    return cpu_ns([pid]) / 1e9
