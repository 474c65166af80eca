"""Clients of other hosts: what they can do, when they are believed to live, and what outlives them."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from covey import Fleet
from covey.actors.broker import Broker
from covey.actors.ports import Request
from covey.bench.provider_options import ProviderOptions
from covey.bench.provider_process import ProviderProcess
from covey.protocol.errors import FleetLost, FleetUnreachable, KeyRefused, RemoteError, UsageError
from covey.protocol.ids import CallId, Incarnation
from covey.protocol.messages.broker import Acquire, BrokerReply, Destination, Granted, Renew
from covey.protocol.messages.fleet import AgentState, Shutdown
from covey.protocol.messages.ledger import CallRecorded, CallStatus
from covey.protocol.messages.remote import RemoteBrokerRequest
from covey.protocol.peer import Peer
from covey.protocol.settings import ProviderSettings
from covey.protocol.usage import Usage
from covey.storage.lease_journal import LeaseJournal
from covey.storage.outbox import Outbox
from covey.storage.owners import me
from covey.supervisor.client import AsyncFleet
from covey.supervisor.doors import network_door
from covey.supervisor.gate import Gate
from covey.supervisor.home import Home
from covey.supervisor.hub import Hub
from covey.supervisor.keys import KeyRing, new_pair, write_secret
from covey.supervisor.launch import StartFailed, launch
from covey.supervisor.network import CannotListen, NetworkAddress, listen_at
from covey.supervisor.sockets import make_context

URL = "https://api.z.ai/api/coding/paas/v4"


class Site:
    """A fleet's home with keys for `laptop` and `desk`, and a folder for what they keep themselves."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder / "home")
        self.folder = folder
        self.keys = KeyRing(self.home)
        self.keys.new_server()
        for name in ("laptop", "desk", "stranger"):
            pair = new_pair()
            write_secret(folder / f"{name}.secret", pair)
            if name != "stranger":
                self.keys.allow(name, pair.public)
        self.address = f"tcp://127.0.0.1:{free_ports()}"
        self.server_key = self.keys.folder / "server.public"
        self.home.config.write_text(f"fleet:\n  listen: {self.address}\n  workers: 1\n")

    def arguments(self, name: str = "laptop") -> dict[str, Any]:
        return {
            "server_key": self.server_key,
            "key_file": self.folder / f"{name}.secret",
            "spool": self.folder / "spool",
        }

    def remote(self, name: str = "laptop", **more: Any) -> Any:
        return Fleet.remote(self.address, **{**self.arguments(name), **more})


def free_ports() -> int:
    """The first of three free ports in a row."""
    for port in range(30_000 + os.getpid() % 1000 * 3, 60_000, 3):
        try:
            for one in listen_at(NetworkAddress("127.0.0.1", port)).values():
                one.remove()
        except CannotListen:
            continue
        return port
    raise AssertionError("no three free ports in a row")


@pytest.fixture
def site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="cvr-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Site(Path(folder))


def down(site: Site) -> None:
    command = [sys.executable, "-P", "-m", "covey", "down", "--home", str(site.home.path), "--timeout", "5"]
    subprocess.run(command, capture_output=True, timeout=30)


@pytest.fixture
def fleet(site: Site) -> Iterator[Site]:
    launch(site.home)
    yield site
    down(site)


# --- a whole fleet -----------------------------------------------------------------------------------------------


def test_a_fleet_that_shall_listen_without_a_key_does_not_start(site: Site) -> None:
    (site.keys.folder / "server.secret").unlink()

    with pytest.raises(StartFailed, match="covey keys new server"):
        launch(site.home)


def test_a_fleet_that_cannot_have_its_port_does_not_start(site: Site) -> None:
    port = NetworkAddress.parse(site.address).port
    with socket.create_server(("127.0.0.1", port + 1)), pytest.raises(StartFailed, match="cannot listen"):
        launch(site.home)


@pytest.mark.kill
def test_a_remote_client_does_what_a_local_one_does(fleet: Site) -> None:
    with fleet.remote() as remote:
        with remote.slot(URL, model="glm", api_key="k", timeout=5.0) as slot:
            slot.record_usage({"prompt_tokens": 7, "completion_tokens": 5})
            budgets = {budget.provider: budget for budget in remote.status().budgets}
            assert budgets["zai"].in_flight == 1
            assert [holder.holder for holder in budgets["zai"].holders] == ["client@laptop"]
        remote.record_usage({"prompt_tokens": 1, "completion_tokens": 1}, base_url=URL, model="glm")
        remote.flush()
        assert remote.totals().prompt_tokens == 8
        assert remote.agents() == ()
        assert {process.role for process in remote.status().processes} >= {"root", "ledger", "broker"}

    with Fleet.connect(fleet.home.path, start=False) as local:
        assert local.totals().calls == 2
        assert all(budget.in_flight == 0 for budget in local.status().budgets or ())


@pytest.mark.kill
def test_an_agent_can_be_run_from_another_host(site: Site) -> None:
    with ProviderProcess(ProviderOptions(limit=2, think_s=0.01, chunk_pace_s=0.001)) as provider:
        text = site.home.config.read_text()
        site.home.config.write_text(
            f"providers:\n  sim:\n    base_url: {provider.base_url}\nmodel:\n  provider: sim\n  name: sim-1\n{text}"
        )
        launch(site.home)
        try:
            with site.remote() as remote:
                with pytest.raises(UsageError, match="absolute path on the host of the fleet"):
                    remote.spawn("say: hello")
                agent = remote.spawn("say: hello", workspace=site.folder)

                assert agent.result().outcome is AgentState.DONE
        finally:
            down(site)


@pytest.mark.kill
def test_the_services_of_a_fleet_can_be_killed_under_a_remote_client(fleet: Site) -> None:
    with fleet.remote() as remote:
        with remote.slot(URL, model="glm", timeout=5.0) as slot:
            for name in ("broker", "ledger"):
                pid = next(process.pid for process in remote.status().processes if process.name == name)
                os.kill(pid, signal.SIGKILL)
            slot.record_usage({"prompt_tokens": 2, "completion_tokens": 1})
        with remote.slot(URL, model="glm", timeout=10.0):
            pass
        remote.flush()
        assert remote.totals().prompt_tokens == 2


@pytest.mark.kill
def test_who_may_not_come_in_is_told_what_to_do(fleet: Site) -> None:
    with pytest.raises(KeyRefused, match="covey keys allow"), fleet.remote("stranger"):
        pass
    with (
        pytest.raises(FleetUnreachable, match=r"server\.public"),
        fleet.remote(server_key=new_pair().public, timeout=0.5),
    ):
        pass


def ask_again_and_again(fleet: Fleet) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        fleet.status()


@pytest.mark.kill
def test_a_revoked_client_is_cut_off_and_another_one_is_not(fleet: Site) -> None:
    with fleet.remote() as laptop, fleet.remote("desk") as desk:
        laptop.status()

        fleet.keys.revoke("laptop")

        with pytest.raises(KeyRefused):
            ask_again_and_again(laptop)
        assert desk.status().processes
        with desk.slot(URL, model="glm", timeout=5.0):
            pass
        with pytest.raises(KeyRefused), fleet.remote("laptop"):
            pass


@pytest.mark.kill
def test_a_remote_client_cannot_stop_the_fleet(fleet: Site) -> None:
    async def work() -> None:
        async with Fleet.aremote(fleet.address, **fleet.arguments()) as remote:
            with pytest.raises(RemoteError, match="ProtocolError"):
                await remote.root.ask(Shutdown(reason="because"), timeout_s=5.0)
            assert (await remote.status()).processes

    asyncio.run(work())


def recorded(number: int) -> CallRecorded:
    return CallRecorded(
        call=CallId(f"call_{number}"),
        provider="zai",
        base_url=URL,
        model="glm",
        status=CallStatus.COMPLETED,
        started_at_ms=0,
        usage=Usage(input=1, output=1),
    )


@pytest.mark.kill
def test_what_a_dead_client_could_not_deliver_is_delivered_by_the_next_one_and_once(fleet: Site) -> None:
    door = network_door(fleet.address, **fleet.arguments())
    dead = Incarnation("dead-life")
    outbox = Outbox(door.outbox(), role="client", incarnation=dead)
    for number in range(1, 1001):
        outbox.append(number, recorded(number))
    outbox.close()

    with fleet.remote() as remote:
        deadline = time.monotonic() + 10
        while any(outbox.path.parent.glob("*dead-life*")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert remote.totals().calls == 1000

    # The same spool once more, as if its client had died before the ledger's answer came.
    outbox = Outbox(door.outbox(), role="client", incarnation=dead)
    for number in range(1, 1001):
        outbox.append(number, recorded(number))
    outbox.close()
    with fleet.remote() as remote:
        deadline = time.monotonic() + 10
        while any(outbox.path.parent.glob("*dead-life*")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert remote.totals().prompt_tokens == 1000


# --- how long somebody is believed to live -----------------------------------------------------------------------

TTL_S = 0.9

HOLD = """
import asyncio, sys
from covey.protocol.messages.broker import Acquire, BrokerReply, Destination
from covey.protocol.ids import CallId, Incarnation
from covey.protocol.peer import Peer
from covey.storage.owners import me
from covey.supervisor.doors import network_door
from covey.supervisor.slots import Slots
from covey.supervisor.sockets import make_context

async def main():
    address, server_key, key_file, spool, renews = sys.argv[1:]
    door = network_door(address, server_key=server_key, key_file=key_file, spool=spool)
    context = make_context()
    peer = Peer(role="client", name="holder", incarnation=Incarnation("holder"), owner=me())
    broker = door.link(context, "broker", me=peer, replies=BrokerReply)
    slots = await Slots.connect(broker)
    if renews == "renews":
        await door.settle_in(context, broker, me=peer, ttl_s=slots.policy.remote_ttl_s)
    await slots.acquire(Acquire(call=CallId("held"), destination=Destination(base_url=sys.argv[1]), model="m"))
    print("holds", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


class BrokerSite:
    """A real broker with one slot behind a real gate, in the loop of the test."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.context = make_context()
        self.renewals: asyncio.Queue[float] = asyncio.Queue()
        self._listeners = listen_at(NetworkAddress.parse(site.address))
        self._links: list[Any] = []
        self._holders: list[subprocess.Popen[bytes]] = []

    async def open(self) -> None:
        site = self.site
        site.home.prepare()
        # The destination is of no interest to the broker but for its name.
        zai = ProviderSettings(name="far", base_url=site.address, max_concurrent=1)
        self.broker = await Broker.start_ready(
            providers={"far": zai},
            journal=LeaseJournal(site.home.run / "leases.journal", life=Incarnation("life")),
            ledger=cast(Any, _NoLedger()),
            remote_ttl_s=TTL_S,
            name="broker",
            deadline_s=5.0,
        )
        us = Peer(role="broker", name="broker", incarnation=Incarnation("us"), owner=me())

        def on_request(request: Request[Any]) -> None:
            if isinstance(request.body, Renew):
                self.renewals.put_nowait(time.monotonic())
            self.broker.tell(request)

        self.gate = Gate(
            self.context,
            at=NetworkAddress.parse(site.address).of("broker"),
            listener_fd=self._listeners["broker.tcp"].fileno(),
            keys=site.keys,
            open_hub=lambda sock: Hub(
                self.context,
                socket=sock,
                me=us,
                requests=RemoteBrokerRequest,
                on_request=on_request,
                on_left=self.broker.tell,
            ),
        )

    def hold(self, renews: str) -> subprocess.Popen[bytes]:
        site = self.site
        words = [
            site.address,
            str(site.server_key),
            str(site.folder / "laptop.secret"),
            str(site.folder / "spool"),
            renews,
        ]
        holder = subprocess.Popen([sys.executable, "-P", "-c", HOLD, *words], stdout=subprocess.PIPE)
        self._holders.append(holder)
        return holder

    async def wait_for_slot(self) -> None:
        """As a client at a desk that renews for itself."""
        door = network_door(self.site.address, **self.site.arguments("desk"))
        us = Peer(role="client", name="waiter", incarnation=Incarnation("waiter"), owner=me())
        link = door.link(self.context, "broker", me=us, replies=BrokerReply)
        self._links.append(link)
        await door.settle_in(self.context, link, me=us, ttl_s=TTL_S)
        ask = Acquire(call=CallId("wanted"), destination=Destination(base_url=self.site.address), model="m")
        try:
            assert isinstance(await link.ask(ask, timeout_s=None), Granted)
        finally:
            await door.close()

    async def close(self) -> None:
        for holder in self._holders:
            end(holder)
        for link in self._links:
            link.close()
        self.gate.close()
        self.broker.stop()
        await self.broker.stopped(deadline_s=5.0)
        for listener in self._listeners.values():
            listener.remove()
        self.context.destroy(linger=0)


class _NoLedger:
    def record(self, record: object) -> None:
        """What the broker reports of lost calls is not of interest here."""


def with_broker(site: Site, work: Callable[[BrokerSite], Awaitable[None]]) -> None:
    async def main() -> None:
        broker = BrokerSite(site)
        await broker.open()
        try:
            async with asyncio.timeout(30):
                await work(broker)
        finally:
            await broker.close()

    asyncio.run(main())


async def held(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    readable, _, _ = await asyncio.to_thread(select.select, [process.stdout], [], [], 20)
    assert readable
    assert process.stdout.readline() == b"holds\n"


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.kill
def test_the_slot_of_a_killed_remote_client_is_free_after_the_ttl_and_not_before(site: Site) -> None:
    async def work(site: BrokerSite) -> None:
        holder = site.hold("renews")
        await held(holder)
        waiter = asyncio.create_task(site.wait_for_slot())
        for _ in range(2):
            await site.renewals.get()
        end(holder)
        killed = time.monotonic()

        await waiter

        took = time.monotonic() - killed
        # It was heard last at most one renewal before it died.
        assert TTL_S * 2 / 3 - 0.1 <= took <= TTL_S + 2.0

    with_broker(site, work)


@pytest.mark.kill
def test_renewals_keep_a_slot_for_as_long_as_they_come(site: Site) -> None:
    async def work(site: BrokerSite) -> None:
        holder = site.hold("renews")
        await held(holder)
        waiter = asyncio.create_task(site.wait_for_slot())
        began = time.monotonic()
        # Longer than twice the time that is believed without one.
        while await site.renewals.get() < began + 2.2 * TTL_S:
            assert not waiter.done()
        end(holder)
        await waiter

    with_broker(site, work)


@pytest.mark.kill
def test_a_client_that_lives_and_does_not_renew_loses_its_slot(site: Site) -> None:
    async def work(site: BrokerSite) -> None:
        holder = site.hold("is silent")
        await held(holder)

        await site.wait_for_slot()

        assert holder.poll() is None
        end(holder)

    with_broker(site, work)


@pytest.mark.kill
def test_a_client_whose_fleet_answers_no_more_ends_its_waits_after_the_ttl(site: Site) -> None:
    async def work(there: BrokerSite) -> None:
        door = network_door(site.address, **site.arguments("desk"))
        us = Peer(role="client", name="client", incarnation=Incarnation("client"), owner=me())
        link = door.link(there.context, "broker", me=us, replies=BrokerReply)
        lost: list[float] = []

        def fail() -> None:
            lost.append(time.monotonic())
            link.fail(FleetLost(door.where, "a request"))

        door.watch(fail)
        await door.settle_in(there.context, link, me=us, ttl_s=TTL_S)
        await there.renewals.get()
        ask = Acquire(call=CallId("kept"), destination=Destination(base_url=site.address), model="m")
        assert isinstance(await link.ask(ask, timeout_s=5), Granted)
        silent = time.monotonic()
        there.gate.close()

        with pytest.raises(FleetLost):
            await link.ask(Acquire(call=CallId("more"), destination=ask.destination, model="m"), timeout_s=None)

        assert TTL_S / 3 <= lost[0] - silent <= TTL_S + 2.0
        await door.close()
        link.close()

    with_broker(site, work)


def test_the_home_of_a_distant_fleet_is_not_ours_to_name(site: Site) -> None:
    async def work() -> None:
        fleet = AsyncFleet(network_door(site.address, **site.arguments()), name="client")
        with pytest.raises(UsageError, match="on another host"):
            _ = fleet.home
        await fleet.close()

    asyncio.run(work())
