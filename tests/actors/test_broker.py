"""The broker, end to end in one process: real journal, real pidfds, fake peers."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import subprocess
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from covey.actors.broker import Broker, Configured
from covey.actors.ports import PeerLeft, Request
from covey.actors.runtime.errors import ActorDown
from covey.actors.runtime.ref import ActorRef
from covey.protocol.errors import OutboxFull
from covey.protocol.ids import CallId, Incarnation, SessionId
from covey.protocol.messages.base import Done, Failed, Wire
from covey.protocol.messages.broker import (
    Acquire,
    BrokerRequest,
    Budgets,
    BudgetsQuery,
    BudgetView,
    Destination,
    Granted,
    Policy,
    PolicyQuery,
    Refusal,
    Refused,
    Release,
    ReleaseAll,
    Unlimited,
)
from covey.protocol.messages.ledger import CallRecorded, CallStatus, LedgerRecord
from covey.protocol.peer import Owner, Peer
from covey.protocol.settings import ProviderSettings
from covey.storage.lease_journal import LeaseJournal, read_lease_journal
from covey.storage.owners import me, owner_of

SOON_S = 5.0
ZAI_URL = "https://api.z.ai/api/coding/paas/v4"
ZAI = Destination(base_url=ZAI_URL, credential="1f2e3d4c5b6a")

Answer = TypeVar("Answer", bound=Wire)


class FakeLedger:
    """Takes records; refuses the next `refusals` of them."""

    def __init__(self) -> None:
        self.records: list[LedgerRecord] = []
        self.refusals = 0

    def record(self, record: LedgerRecord) -> None:
        if self.refusals:
            self.refusals -= 1
            raise OutboxFull(1)
        self.records.append(record)

    async def flush(self, *, timeout_s: float = 10.0) -> None:
        raise NotImplementedError

    async def query(self, query: Any, *, timeout_s: float = 10.0) -> Any:
        raise NotImplementedError


class Clock:
    """Time that tests move by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Child:
    """A process that holds slots, as far as the kernel can tell."""

    def __init__(self, number: int) -> None:
        self.process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        owner = owner_of(self.process.pid)
        assert owner is not None
        self.peer = peer(number, owner)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def peer(number: int = 1, owner: Owner | None = None) -> Peer:
    return Peer(role="client", name=f"client {number}", incarnation=Incarnation(f"inc_{number}"), owner=owner or me())


def providers(limit: int | None = 1, *, timeout_s: float = 0.0) -> dict[str, ProviderSettings]:
    zai = ProviderSettings(name="zai", base_url=ZAI_URL, max_concurrent=limit, acquire_timeout_seconds=timeout_s)
    free = ProviderSettings(name="free", base_url="http://127.0.0.1:9/v1")
    return {"zai": zai, "free": free}


class Bench:
    """One running broker and its journal's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = FakeLedger()
        self.ref: ActorRef | None = None

    async def start(self, settings: dict[str, ProviderSettings], *, life: str = "life", **more: Any) -> None:
        journal = LeaseJournal(self.folder / "leases", life=life)
        self.ref = await Broker.start_ready(
            providers=settings, journal=journal, ledger=self.ledger, name="broker", **more
        )

    async def stop(self) -> None:
        assert self.ref is not None
        self.ref.kill()
        await self.ref.stopped(deadline_s=SOON_S)

    def ask(self, who: Peer, body: BrokerRequest) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.tell(Request(peer=who, body=body, reply=answer.set_result))
        return answer

    def tell(self, message: object) -> None:
        assert self.ref is not None
        self.ref.tell(message)

    async def get(self, who: Peer, body: BrokerRequest, kind: type[Answer]) -> Answer:
        answer = await soon(self.ask(who, body))
        assert isinstance(answer, kind), answer
        return answer

    async def acquire(self, who: Peer, call: str, **more: Any) -> Granted:
        return await self.get(who, acquire(call, **more), Granted)

    async def budget(self) -> BudgetView:
        (view,) = (await self.get(peer(), BudgetsQuery(), Budgets)).budgets
        return view


def acquire(call: str, destination: Destination = ZAI, **more: Any) -> Acquire:
    return Acquire(call=CallId(call), destination=destination, model="glm-5", **more)


async def soon(answer: asyncio.Future[Answer]) -> Answer:
    async with asyncio.timeout(SOON_S):
        return await answer


@pytest.fixture
def children() -> Iterator[list[Child]]:
    made = [Child(number) for number in range(10, 14)]
    yield made
    for child in made:
        child.end()


@asynccontextmanager
async def broker(
    folder: Path, settings: dict[str, ProviderSettings] | None = None, **more: Any
) -> AsyncIterator[Bench]:
    bench = Bench(folder)
    await bench.start(settings or providers(), **more)
    try:
        yield bench
    finally:
        await bench.stop()


async def test_a_slot_is_granted_waited_for_and_handed_over(tmp_path: Path) -> None:
    async with broker(tmp_path) as bench:
        first = await bench.acquire(peer(1), "a")
        second = bench.ask(peer(2), acquire("b"))

        assert (first.budget, first.limit, first.in_flight) == ("zai:1f2e3d4c5b6a", 1, 1)
        await bench.get(peer(1), Release(call=CallId("a")), Done)
        assert isinstance(await soon(second), Granted)


async def test_every_request_may_be_repeated(tmp_path: Path) -> None:
    async with broker(tmp_path) as bench:
        await bench.acquire(peer(1), "a")
        await bench.acquire(peer(1), "a")
        earlier, later = bench.ask(peer(2), acquire("b")), bench.ask(peer(2), acquire("b"))

        for _ in range(2):
            await bench.get(peer(1), Release(call=CallId("a")), Done)

        assert isinstance(await soon(later), Granted)
        assert not earlier.done()
        view = await bench.budget()
        assert (view.granted, view.in_flight, view.peak_in_flight) == (2, 1, 1)


async def test_a_destination_without_a_budget_passes(tmp_path: Path) -> None:
    async with broker(tmp_path) as bench:
        for url in ("http://127.0.0.1:9/v1", "https://elsewhere.example/v1", "https://api.z.ai.evil.example/v1"):
            await bench.get(peer(), acquire("a", Destination(base_url=url)), Unlimited)


async def test_the_policy_names_the_destinations_that_have_a_budget(tmp_path: Path) -> None:
    async with broker(tmp_path) as bench:
        policy = await bench.get(peer(), PolicyQuery(), Policy)

    assert [(one.provider, one.base_url, one.max_concurrent) for one in policy.limits] == [("zai", ZAI_URL, 1)]


async def test_a_configured_budget_is_listed_before_anybody_asked(tmp_path: Path) -> None:
    async with broker(tmp_path, providers(7)) as bench:
        before = await bench.budget()
        await bench.acquire(peer(), "a", agent="ag_1", session=SessionId("ses_1"))
        after = await bench.budget()

    assert (before.key, before.limit, before.in_flight) == ("zai:none", 7, 0)
    assert (after.key, after.in_flight) == ("zai:1f2e3d4c5b6a", 1)
    assert [(h.call, h.pid, h.holder, h.agent, h.session) for h in after.holders] == [
        ("a", os.getpid(), "client 1", "ag_1", "ses_1")
    ]


async def test_both_dialects_of_an_account_share_its_budget_and_another_key_has_its_own(tmp_path: Path) -> None:
    async with broker(tmp_path) as bench:
        await bench.acquire(peer(), "a")
        anthropic = Destination(base_url="https://api.z.ai/api/anthropic", credential=ZAI.credential)

        await bench.get(peer(), acquire("b", anthropic, timeout_s=0.0), Refused)
        await bench.get(peer(), acquire("c", Destination(base_url=ZAI_URL, credential="another")), Granted)


async def test_a_wait_ends_at_its_timeout_with_the_facts(tmp_path: Path) -> None:
    clock = Clock()
    async with broker(tmp_path, providers(timeout_s=0.02), clock=clock) as bench:
        await bench.acquire(peer(), "a")
        by_default = bench.ask(peer(), acquire("b"))
        by_request = bench.ask(peer(), acquire("c", timeout_s=0.01))
        await bench.budget()
        clock.now += 0.05

        first, second = await soon(by_request), await soon(by_default)

    assert (first.call, first.reason, first.limit, first.queued) == ("c", Refusal.TIMEOUT, 1, 1)
    assert (second.call, second.reason, second.queued) == ("b", Refusal.TIMEOUT, 0)


async def test_one_timer_serves_all_deadlines(tmp_path: Path) -> None:
    async with broker(tmp_path, clock=Clock()) as bench:
        await bench.acquire(peer(), "a")
        for n in range(9):
            bench.ask(peer(), acquire(f"b{n}", timeout_s=9.0 - n))
        await bench.budget()

        assert bench.ref is not None
        assert len(bench.ref._cell._timers or ()) == 1


async def test_over_the_fleet_s_queue_bound_callers_are_refused_at_once(tmp_path: Path) -> None:
    async with broker(tmp_path, queue_bound=1) as bench:
        await bench.acquire(peer(), "a")
        bench.ask(peer(), acquire("b"))

        refused = await bench.get(peer(), acquire("c"), Refused)

    assert (refused.reason, refused.queued) == (Refusal.QUEUE_FULL, 1)


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(acquire("a", hold_s=0.0), id="no time to hold"),
        pytest.param(acquire("a", hold_s=float("inf")), id="for ever"),
        pytest.param(acquire("a", timeout_s=float("nan")), id="no number"),
        pytest.param(acquire("a", timeout_s=-1.0), id="negative"),
        pytest.param(acquire(""), id="no name"),
    ],
)
async def test_a_request_that_cannot_be_meant_is_refused_and_changes_nothing(tmp_path: Path, ask: Acquire) -> None:
    async with broker(tmp_path) as bench:
        failed = await bench.get(peer(), ask, Failed)

        assert failed.kind == "UsageError"
        assert (await bench.budget()).granted == 0


async def test_a_call_of_another_process_is_refused_and_its_waiter_still_served(tmp_path: Path) -> None:
    async with broker(tmp_path) as bench:
        await bench.acquire(peer(1), "a")
        waiting = bench.ask(peer(2), acquire("b"))

        await bench.get(peer(3), acquire("b"), Failed)

        await bench.get(peer(1), Release(call=CallId("a")), Done)
        assert isinstance(await soon(waiting), Granted)


@pytest.mark.parametrize("goodbye", ["release all", "left"])
async def test_whoever_leaves_gives_back_slots_and_places(tmp_path: Path, goodbye: str) -> None:
    async with broker(tmp_path) as bench:
        await bench.acquire(peer(1), "a")
        own, other = bench.ask(peer(1), acquire("b")), bench.ask(peer(2), acquire("c"))

        if goodbye == "left":
            bench.tell(PeerLeft(peer(1)))
        else:
            await bench.get(peer(1), ReleaseAll(), Done)

        assert isinstance(await soon(other), Granted)
        assert (await soon(own)).reason is Refusal.WITHDRAWN


@pytest.mark.kill
async def test_a_killed_holder_s_slot_is_free_well_under_100_ms(tmp_path: Path, children: list[Child]) -> None:
    lags = []
    async with broker(tmp_path) as bench:
        await bench.acquire(children[0].peer, "c0")
        for n, (holder, heir) in enumerate(itertools.pairwise(children), start=1):
            waiting = bench.ask(heir.peer, acquire(f"c{n}"))
            await bench.budget()
            killed_at = time.perf_counter()
            holder.kill()
            await soon(waiting)
            lags.append(time.perf_counter() - killed_at)

        lost = bench.ledger.records

    print("killed to granted to the next, ms:", [round(lag * 1000, 2) for lag in lags])
    assert min(lags) < 0.1
    assert [record.call for record in lost if isinstance(record, CallRecorded)] == ["c0", "c1", "c2"]


@pytest.mark.kill
async def test_a_lost_call_is_recorded_with_unknown_usage_if_it_is_accounted(
    tmp_path: Path, children: list[Child]
) -> None:
    async with broker(tmp_path, providers(2)) as bench:
        await bench.acquire(children[0].peer, "a", agent="ag_1", session=SessionId("ses_1"))
        await bench.acquire(children[0].peer, "b", accounted=False)

        children[0].kill()
        await bench.acquire(children[1].peer, "c")
        await bench.acquire(children[1].peer, "d")

    (record,) = bench.ledger.records
    assert isinstance(record, CallRecorded)
    assert (record.call, record.status, record.usage) == ("a", CallStatus.LOST, None)
    assert (record.provider, record.base_url, record.model) == ("zai", ZAI_URL, "glm-5")
    assert (record.session, record.agent) == ("ses_1", "ag_1")
    assert abs(record.started_at_ms - time.time() * 1000) < 60_000


@pytest.mark.kill
async def test_a_lost_call_the_ledger_has_no_room_for_frees_its_slot_and_is_recorded_later(
    tmp_path: Path, children: list[Child], monkeypatch: pytest.MonkeyPatch, until: Callable[..., Any]
) -> None:
    monkeypatch.setattr("covey.actors.broker.REPORT_AGAIN_S", 0.01)
    async with broker(tmp_path) as bench:
        bench.ledger.refusals = 30
        await bench.acquire(children[0].peer, "a")
        children[0].kill()

        await bench.acquire(children[1].peer, "b")
        assert list(read_lease_journal(tmp_path / "leases")[0].leases) == ["a", "b"]
        bench.ledger.refusals = 0
        await until(lambda: bool(bench.ledger.records))

        assert [record.call for record in bench.ledger.records if isinstance(record, CallRecorded)] == ["a"]
        await bench.budget()
        assert list(read_lease_journal(tmp_path / "leases")[0].leases) == ["b"]


@pytest.mark.kill
async def test_a_killed_waiter_leaves_the_queue(tmp_path: Path, children: list[Child]) -> None:
    async with broker(tmp_path) as bench:
        await bench.acquire(children[0].peer, "a")
        withdrawn = bench.ask(children[1].peer, acquire("b"))
        heir = bench.ask(children[2].peer, acquire("c"))
        await bench.budget()

        children[1].kill()
        assert (await soon(withdrawn)).reason is Refusal.WITHDRAWN

        await bench.get(children[0].peer, Release(call=CallId("a")), Done)
        assert isinstance(await soon(heir), Granted)
        assert bench.ledger.records == []


@pytest.mark.kill
async def test_an_ask_of_a_process_that_is_dead_by_now_leaves_nothing(tmp_path: Path, children: list[Child]) -> None:
    children[0].end()
    async with broker(tmp_path) as bench:
        await bench.acquire(children[0].peer, "a")

        await bench.acquire(children[1].peer, "b")

        assert [holder.call for holder in (await bench.budget()).holders] == ["b"]


@pytest.mark.kill
async def test_a_stopped_holder_keeps_its_slot_until_its_own_deadline(
    tmp_path: Path, children: list[Child], caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    async with broker(tmp_path, clock=clock) as bench:
        await bench.acquire(children[0].peer, "a", hold_s=30.0)
        os.kill(children[0].process.pid, signal.SIGSTOP)
        heir = bench.ask(children[1].peer, acquire("b"))

        clock.now += 29.9
        assert (await bench.budget()).queued == 1
        assert not heir.done()
        clock.now += 0.2
        with caplog.at_level(logging.WARNING):
            bench.tell(PeerLeft(peer(99)))
            assert isinstance(await soon(heir), Granted)

    assert [record.__dict__["event"] for record in caplog.records] == ["lease_overdue"]
    assert bench.ledger.records == []


async def test_a_changed_limit_counts_at_once_and_leases_survive(tmp_path: Path) -> None:
    async with broker(tmp_path) as bench:
        await bench.acquire(peer(), "a")
        waiting = bench.ask(peer(), acquire("b"))

        bench.tell(Configured(providers(2)))
        assert isinstance(await soon(waiting), Granted)

        bench.tell(Configured(providers(1)))
        view = await bench.budget()
        assert (view.limit, view.in_flight) == (1, 2)


@pytest.mark.kill
async def test_a_successor_knows_living_holders_and_frees_the_dead_ones(tmp_path: Path, children: list[Child]) -> None:
    settings = providers(3)
    bench = Bench(tmp_path)
    await bench.start(settings)
    for n, child in enumerate(children[:3]):
        await bench.acquire(child.peer, f"c{n}")
    lost_place = bench.ask(children[3].peer, acquire("c3"))
    await bench.budget()
    await bench.stop()
    children[0].end()

    await bench.start(settings)
    waiting = bench.ask(children[3].peer, acquire("c3"))
    beyond = bench.ask(children[3].peer, acquire("c4"))
    granted = await soon(waiting)
    again = await bench.acquire(children[1].peer, "c1")

    assert (granted.in_flight, again.in_flight) == (3, 3)
    assert not beyond.done()
    assert not lost_place.done()
    assert [record.call for record in bench.ledger.records if isinstance(record, CallRecorded)] == ["c0"]
    view = await bench.budget()
    assert [holder.call for holder in view.holders] == ["c1", "c2", "c3"]
    assert (view.granted, view.peak_in_flight) == (4, 3)
    await bench.stop()


@pytest.mark.kill
async def test_over_many_restarts_the_limit_holds_and_nothing_is_granted_twice(
    tmp_path: Path, children: list[Child]
) -> None:
    """Callers work on while the broker is replaced again and again; each resends what was not answered."""
    limit, rounds = 2, 12
    bench = Bench(tmp_path)
    await bench.start(providers(limit))
    inside: set[str] = set()
    served: list[str] = []
    peak = restarts = 0
    replaced = asyncio.Event()

    async def sure(who: Peer, body: BrokerRequest) -> Any:
        """Ask, and ask each new broker again, until one answers."""
        while True:
            changed = asyncio.ensure_future(replaced.wait())
            waits: list[asyncio.Future[Any]] = [changed]
            with suppress(ActorDown):
                waits.append(bench.ask(who, body))
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
            if waits[-1] is not changed and waits[-1].done():
                return waits[-1].result()

    async def caller(child: Child, name: str) -> None:
        nonlocal peak
        for n in range(rounds):
            call = f"{name}.{n}"
            assert isinstance(await sure(child.peer, acquire(call)), Granted)
            assert call not in served
            served.append(call)
            inside.add(call)
            peak = max(peak, len(inside))
            await asyncio.sleep(0.001)
            inside.remove(call)
            assert isinstance(await sure(child.peer, Release(call=CallId(call))), Done)

    async def replacing() -> None:
        nonlocal replaced, restarts
        while True:
            await asyncio.sleep(0.004)
            await bench.stop()
            await bench.start(providers(limit))
            restarts += 1
            replaced.set()
            replaced = asyncio.Event()

    chaos = asyncio.ensure_future(replacing())
    async with asyncio.timeout(30):
        await asyncio.gather(*(caller(child, f"{n}{m}") for n, child in enumerate(children) for m in range(2)))
    chaos.cancel()
    await asyncio.gather(chaos, return_exceptions=True)

    assert restarts >= 5
    assert peak <= limit
    assert len(served) == 8 * rounds
    if not bench.ref or not bench.ref.is_alive():
        await bench.start(providers(limit))
    view = await bench.budget()
    assert (view.in_flight, view.queued, view.granted, view.peak_in_flight) == (0, 0, 8 * rounds, limit)
    await bench.stop()


BROKER = """
import asyncio, sys
from pathlib import Path
import msgspec
from covey.actors.broker import Broker
from covey.actors.ports import Request
from covey.protocol.messages.broker import BrokerRequest
from covey.protocol.peer import Peer
from covey.protocol.settings import ProviderSettings
from covey.storage.lease_journal import LeaseJournal


class Line(msgspec.Struct):
    peer: Peer
    body: BrokerRequest


async def main():
    providers = {"zai": ProviderSettings(name="zai", base_url="https://api.z.ai/v4", max_concurrent=3)}
    journal = LeaseJournal(Path(sys.argv[1]), life="life")
    ref = await Broker.start_ready(providers=providers, journal=journal, ledger=None, name="broker")
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        asked = msgspec.json.decode(line, type=Line)
        ref.tell(Request(peer=asked.peer, body=asked.body, reply=lambda wire: print(wire.call, flush=True)))

asyncio.run(main())
"""


@pytest.mark.kill
async def test_a_broker_killed_among_grants_leaves_every_answered_one_to_its_successor(
    tmp_path: Path, children: list[Child]
) -> None:
    broker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BROKER, str(tmp_path / "leases"), stdin=PIPE, stdout=PIPE, cwd="/"
    )
    assert broker.stdin is not None
    assert broker.stdout is not None
    for n in range(6):
        line = {"peer": children[n % 3].peer, "body": acquire(f"c{n}")}
        broker.stdin.write(msgspec.json.encode(line) + b"\n")
    answered = [(await broker.stdout.readline()).decode().strip() for _ in range(3)]
    broker.kill()
    await broker.communicate()
    children[1].end()

    bench = Bench(tmp_path)
    await bench.start(providers(3))
    resent = [bench.ask(children[n % 3].peer, acquire(f"c{n}")) for n in (3, 5)]
    granted, _ = await asyncio.wait(resent, return_when=asyncio.FIRST_COMPLETED, timeout=SOON_S)

    assert sorted(answered) == ["c0", "c1", "c2"]
    assert len(granted) == 1
    assert sorted(holder.call for holder in (await bench.budget()).holders) == ["c0", "c2", "c3"]
    assert [record.call for record in bench.ledger.records if isinstance(record, CallRecorded)] == ["c1"]
    await bench.stop()
