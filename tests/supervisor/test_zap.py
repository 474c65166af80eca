"""Gates on 127.0.0.1: who comes in, who does not, and what happens when the one who decides is dead."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from covey.actors.ports import Request
from covey.protocol import frames
from covey.protocol.errors import AskTimeout, KeyRefused
from covey.protocol.ids import Incarnation
from covey.protocol.messages.base import Done
from covey.protocol.messages.broker import BrokerReply, PolicyQuery
from covey.protocol.messages.remote import RemoteBrokerRequest
from covey.protocol.peer import Peer
from covey.storage.owners import me
from covey.supervisor.gate import Gate
from covey.supervisor.home import Home
from covey.supervisor.hub import Hub
from covey.supervisor.keys import KeyProblem, KeyRing, Pair, new_pair
from covey.supervisor.link import Link
from covey.supervisor.sockets import ClientCurve, make_context, make_network_dealer, make_network_router
from covey.supervisor.zap import ADDRESS, DOMAIN

NOT_IN_S = 0.7
"""How long somebody who must not come in is given to do so; those who may need some 20 ms."""


class Site:
    """A home with keys, and a gate in front of a service that says `Done` to everything."""

    def __init__(self, folder: Path) -> None:
        self.keys = KeyRing(Home(folder / "home"))
        self.server = self.keys.new_server()
        self.laptop = new_pair()
        self.keys.allow("laptop", self.laptop.public)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.at = "tcp://127.0.0.1:%d" % self.listener.getsockname()[1]  # noqa: UP031 - the port is a number
        self.asked: list[Request[Any]] = []
        self.lives = 0

    def gate(self, context: Any, on_request: Callable[[Request[Any]], None] | None = None) -> Gate:
        def done(request: Request[Any]) -> None:
            self.asked.append(request)
            request.reply(Done())

        return Gate(
            context,
            at=self.at,
            listener_fd=self.listener.fileno(),
            keys=self.keys,
            open_hub=lambda sock: Hub(
                context,
                socket=sock,
                me=self.peer("broker"),
                requests=RemoteBrokerRequest,
                on_request=on_request or done,
            ),
        )

    def peer(self, role: str) -> Peer:
        self.lives += 1
        return Peer(role=role, name=role, incarnation=Incarnation(f"life-{self.lives}"), owner=me())

    def link(self, context: Any, own: Pair | None = None, *, server: Pair | None = None, role: str = "client") -> Link:
        own = own or self.laptop
        curve = ClientCurve(
            server_key=(server or self.server).public.encode(), public=own.public.encode(), secret=own.secret
        )
        return Link(context, path=self.at, service="broker", me=self.peer(role), replies=BrokerReply, curve=curve)


@pytest.fixture
def site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="cvz-", dir="/tmp") as folder:
        site = Site(Path(folder))
        yield site
        site.listener.close()


def run(work: Callable[[Any, Any], Awaitable[None]]) -> None:
    """Run with a context for the service and one for its clients, as in two processes."""

    async def main() -> None:
        here, there = make_context(), make_context()
        try:
            async with asyncio.timeout(20):
                await work(here, there)
        finally:
            there.destroy(linger=0)
            here.destroy(linger=0)

    asyncio.run(main())


async def must_not_come_in(site: Site, link: Link) -> None:
    with pytest.raises((AskTimeout, KeyRefused)):
        await link.ask(PolicyQuery(), timeout_s=NOT_IN_S)
    assert site.asked == []
    link.close()


def test_who_is_allowed_comes_in_and_is_called_by_the_name_of_the_key(site: Site) -> None:
    async def work(here: Any, there: Any) -> None:
        gate = site.gate(here)
        link = site.link(there, role="worker")

        assert await link.ask(PolicyQuery(), timeout_s=5) == Done()

        peer = site.asked[0].peer
        assert (peer.role, peer.name) == ("client", "worker@laptop")
        assert peer.owner.is_remote
        assert peer.owner.boot_id == f"remote:laptop:{me().boot_id}"
        assert not me().is_remote
        link.close()
        gate.close()

    run(work)


def test_a_key_that_is_not_allowed_is_refused_and_told_so(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    async def work(here: Any, there: Any) -> None:
        gate = site.gate(here)
        stranger = new_pair()
        link = site.link(there, stranger)

        with pytest.raises(KeyRefused, match="covey keys allow"):
            await link.ask(PolicyQuery(), timeout_s=5)

        assert site.asked == []
        assert gate.zap.refused >= 1
        text = caplog.text + "".join(str(vars(record)) for record in caplog.records)
        assert "stranger_refused" in text
        for pair in (stranger, site.server, site.laptop):
            assert pair.secret.decode() not in text
            assert pair.public not in text
        link.close()
        gate.close()

    caplog.set_level(logging.INFO)
    run(work)


def test_a_client_with_the_key_of_another_server_does_not_talk_to_us(site: Site) -> None:
    async def work(here: Any, there: Any) -> None:
        gate = site.gate(here)

        await must_not_come_in(site, site.link(there, server=new_pair()))

        assert gate.zap.accepted == 0
        gate.close()

    run(work)


def test_a_client_without_a_key_does_not_come_in(site: Site) -> None:
    async def work(here: Any, there: Any) -> None:
        gate = site.gate(here)
        plain = there.socket(zmq.DEALER)
        monitor = plain.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        plain.connect(site.at)

        plain.send(b"let me in")

        assert await asyncio.to_thread(monitor.poll, 5_000), "it was not even cut off"
        event = int.from_bytes(monitor.recv_multipart()[0][:2], "little")
        assert event == zmq.EVENT_DISCONNECTED
        assert gate.peers() == []
        assert site.asked == []
        plain.disable_monitor()
        monitor.close()
        plain.close()
        gate.close()

    run(work)


def test_nobody_comes_in_while_the_one_who_decides_is_dead(site: Site) -> None:
    async def work(here: Any, there: Any) -> None:
        gate = site.gate(here)
        gate.zap.close()

        await must_not_come_in(site, site.link(there))
        await must_not_come_in(site, site.link(there, new_pair()))

        gate.close()

    run(work)


def test_nobody_comes_in_while_the_one_who_decides_is_deaf(site: Site) -> None:
    async def work(here: Any, there: Any) -> None:
        gate = site.gate(here)
        gate.zap._pump.close()

        await must_not_come_in(site, site.link(there))

        gate.close()

    run(work)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param([b"500", b"broken", b"", b""], id="an error of its own"),
        pytest.param([b"300", b"later", b"", b""], id="not now"),
        pytest.param([b"2000", b"OK", b"x", b""], id="no status"),
        pytest.param([b"", b"", b"", b""], id="nothing"),
        pytest.param([b"200"], id="half an answer"),
    ],
)
def test_nobody_comes_in_by_an_answer_that_is_no_permission(site: Site, answer: list[bytes]) -> None:
    async def work(here: Any, there: Any) -> None:
        gate = site.gate(here)
        gate.zap._answer = lambda question: [*question[:4], *answer]  # type: ignore[method-assign]

        await must_not_come_in(site, site.link(there))

        gate.close()

    run(work)


def test_nobody_comes_in_where_there_never_was_anybody_to_decide(site: Site) -> None:
    async def work(here: Any, there: Any) -> None:
        router = make_network_router(
            here, at=site.at, listener_fd=os.dup(site.listener.fileno()), secret=site.server.secret, domain=DOMAIN
        )
        hub = Hub(
            here, socket=router, me=site.peer("broker"), requests=RemoteBrokerRequest, on_request=site.asked.append
        )

        await must_not_come_in(site, site.link(there))
        await must_not_come_in(site, site.link(there, new_pair()))

        assert hub.peers() == []
        hub.close()

    run(work)


def test_who_decides_is_there_before_the_door(site: Site) -> None:
    async def work(here: Any, there: Any) -> None:
        second = here.socket(zmq.REP)

        def open_hub(socket: Any) -> Hub:
            with pytest.raises(zmq.ZMQError, match="Address already in use"):
                second.bind(ADDRESS)
            return Hub(
                here, socket=socket, me=site.peer("broker"), requests=RemoteBrokerRequest, on_request=lambda _: None
            )

        Gate(here, at=site.at, listener_fd=site.listener.fileno(), keys=site.keys, open_hub=open_hub).close()
        second.close()

    run(work)


def test_without_anybody_to_decide_there_is_no_door(site: Site) -> None:
    async def work(here: Any, there: Any) -> None:
        taken = here.socket(zmq.REP)
        taken.bind(ADDRESS)

        with pytest.raises(zmq.ZMQError, match="Address already in use"):
            site.gate(here)

        await must_not_come_in(site, site.link(there))
        taken.close()

    run(work)


def test_a_gate_without_a_server_key_is_not_opened(site: Site) -> None:
    async def work(here: Any, there: Any) -> None:
        (site.keys.folder / "server.secret").unlink()

        with pytest.raises(KeyProblem, match="covey keys new server"):
            site.gate(here)

    run(work)


def test_a_key_that_is_allowed_later_comes_in(site: Site) -> None:
    async def work(here: Any, there: Any) -> None:
        gate = site.gate(here)
        desk = new_pair()
        refused = site.link(there, desk)
        with pytest.raises(KeyRefused):
            await refused.ask(PolicyQuery(), timeout_s=5)
        refused.close()

        site.keys.allow("desk", desk.public)

        link = site.link(there, desk)
        assert await link.ask(PolicyQuery(), timeout_s=5) == Done()
        link.close()
        gate.close()

    run(work)


def test_a_revoked_key_is_cut_off_and_nobody_else_is(site: Site) -> None:
    async def work(here: Any, there: Any) -> None:
        desk = new_pair()
        site.keys.allow("desk", desk.public)
        kept: asyncio.Queue[Request[Any]] = asyncio.Queue()
        gate = site.gate(here, kept.put_nowait)
        revoked, other = site.link(there), site.link(there, desk)
        asked = [asyncio.create_task(link.ask(PolicyQuery(), timeout_s=10)) for link in (revoked, other)]
        assert {(await kept.get()).peer.name for _ in range(2)} == {"client@laptop", "client@desk"}

        site.keys.revoke("laptop")

        with pytest.raises(KeyRefused):
            await asked[0]
        repeated = await kept.get()
        assert repeated.peer.name == "client@desk"
        repeated.reply(Done())
        assert await asked[1] == Done()
        with pytest.raises(KeyRefused):
            await revoked.ask(PolicyQuery(), timeout_s=5)
        assert kept.empty()
        for link in (revoked, other):
            link.close()
        gate.close()

    run(work)


def test_a_list_that_cannot_be_trusted_any_more_lets_nobody_in(site: Site) -> None:
    async def work(here: Any, there: Any) -> None:
        gate = site.gate(here)
        site.keys.clients.chmod(0o777)
        site.keys.clients.joinpath("mallory.public").write_text(f"{new_pair().public}\n")

        await must_not_come_in(site, site.link(there))

        gate.close()

    run(work)


def test_what_is_the_trees_own_cannot_be_asked_from_outside(site: Site) -> None:
    async def work(here: Any, there: Any) -> None:
        from covey.protocol.errors import RemoteError
        from covey.protocol.messages.broker import Revoke

        gate = site.gate(here)
        link = site.link(there)

        with pytest.raises(RemoteError, match="ProtocolError"):
            await link.ask(Revoke(agents=()), timeout_s=5)

        assert site.asked == []
        link.close()
        gate.close()

    run(work)


@pytest.mark.parametrize("where", ["alone", "first", "last", "twice"])
def test_whatever_a_hello_says_and_wherever_it_stands_nobody_is_taken_for_a_process_of_this_host(
    site: Site, where: str
) -> None:
    async def work(here: Any, there: Any) -> None:
        gate = site.gate(here)
        worker = Peer(role="worker", name="worker-1", incarnation=Incarnation("life-of-a-worker"), owner=me())
        hello, other = (
            frames.encode(frames.Hello(version=frames.VERSION, peer=worker)),
            frames.encode(frames.Stranger()),
        )
        said = {
            "alone": hello,
            "first": frames.bundle([hello, other]),
            "last": frames.bundle([other, hello]),
            "twice": frames.bundle([hello, hello]),
        }
        curve = ClientCurve(
            server_key=site.server.public.encode(), public=site.laptop.public.encode(), secret=site.laptop.secret
        )
        dealer = make_network_dealer(there, identity="worker:life-of-a-worker", curve=curve)
        dealer.setsockopt(zmq.IMMEDIATE, 0)
        dealer.connect(site.at)

        dealer.send(said[where])

        assert await asyncio.to_thread(dealer.poll, 5_000), "the hello was not answered"
        (peer,) = gate.peers()
        assert (peer.role, peer.name, peer.owner.is_remote) == ("client", "worker-1@laptop", True)
        dealer.close()
        gate.close()

    run(work)


def test_a_bundle_with_a_hello_and_something_wrong_is_refused_whole(site: Site) -> None:
    async def work(here: Any, there: Any) -> None:
        gate = site.gate(here)
        worker = Peer(role="worker", name="worker-1", incarnation=Incarnation("life-of-a-worker"), owner=me())
        hello = frames.encode(frames.Hello(version=frames.VERSION, peer=worker))
        curve = ClientCurve(
            server_key=site.server.public.encode(), public=site.laptop.public.encode(), secret=site.laptop.secret
        )
        dealer = make_network_dealer(there, identity="worker:life-of-a-worker", curve=curve)
        dealer.setsockopt(zmq.IMMEDIATE, 0)
        dealer.connect(site.at)

        dealer.send(frames.bundle([hello, b"\x81\xa4type\xa4none"]))
        dealer.send(b"")
        dealer.send_multipart([hello, hello])
        link = site.link(there)
        assert await link.ask(PolicyQuery(), timeout_s=5) == Done()

        assert [peer.name for peer in gate.peers()] == ["client@laptop"]
        link.close()
        dealer.close()
        gate.close()

    run(work)


def test_garbage_on_the_wire_does_no_harm(site: Site) -> None:
    async def work(here: Any, there: Any) -> None:
        gate = site.gate(here)
        host, port = site.at.removeprefix("tcp://").split(":")
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, os.urandom(4096), b""):
            with socket.create_connection((host, int(port)), timeout=5) as raw:
                raw.sendall(garbage)

        link = site.link(there)
        assert await link.ask(PolicyQuery(), timeout_s=10) == Done()

        link.close()
        gate.close()

    run(work)
