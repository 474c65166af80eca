"""Links and hubs over real sockets: a service that is killed and replaced answers as if it had never been away."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import zmq

from covey.actors.ports import PeerLeft, Request
from covey.protocol.errors import AskTimeout, FleetLost, RemoteError
from covey.protocol.ids import Incarnation
from covey.protocol.messages.base import Done, Failed
from covey.protocol.messages.broker import BrokerReply, BrokerRequest, PolicyQuery, ReleaseAll
from covey.protocol.messages.fleet import StopLocal, WorkerReply, WorkerRequest
from covey.protocol.peer import Peer
from covey.storage.owners import me
from covey.supervisor.hub import Hub
from covey.supervisor.link import Link
from covey.supervisor.sockets import make_context


@pytest.fixture
def wire() -> Iterator[Wire]:
    with TemporaryDirectory(prefix="cv") as folder:
        wire = Wire(Path(folder))
        yield wire
        wire.listener.close()


class Wire:
    """A listening socket that outlives the services on it, as the root keeps it."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "service.sock")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(64)
        self.lives = 0

    def peer(self, role: str) -> Peer:
        self.lives += 1
        return Peer(role=role, name=role, incarnation=Incarnation(f"life-{self.lives}"), owner=me())

    def hub(self, context: Any, on_request: Callable[[Request[Any]], None], **more: Any) -> Hub:
        return Hub(
            context,
            path=self.path,
            listener_fd=os.dup(self.listener.fileno()),
            me=self.peer("broker"),
            requests=BrokerRequest,
            on_request=on_request,
            **more,
        )

    def link(self, context: Any, **more: Any) -> Link:
        return Link(context, path=self.path, service="broker", me=self.peer("client"), replies=BrokerReply, **more)


def run(work: Callable[[Any], Awaitable[None]]) -> None:
    async def main() -> None:
        context = make_context()
        try:
            async with asyncio.timeout(20):
                await work(context)
        finally:
            context.destroy(linger=0)

    asyncio.run(main())


def test_an_ask_is_answered(wire: Wire) -> None:
    async def work(context: Any) -> None:
        hub = wire.hub(context, lambda request: request.reply(Done()))
        link = wire.link(context)

        assert await link.ask(PolicyQuery(), timeout_s=5) == Done()

        link.close()
        hub.close()

    run(work)


def test_what_was_asked_while_the_service_was_away_is_answered_by_its_successor(wire: Wire) -> None:
    async def work(context: Any) -> None:
        link = wire.link(context)
        asked = asyncio.create_task(link.ask(PolicyQuery(), timeout_s=10))
        await asyncio.sleep(0)

        hub = wire.hub(context, lambda request: request.reply(Done()))

        assert await asked == Done()
        link.close()
        hub.close()

    run(work)


def test_an_unanswered_ask_is_repeated_to_the_successor(wire: Wire) -> None:
    async def work(context: Any) -> None:
        heard = asyncio.Event()
        first_context = make_context()
        first = wire.hub(first_context, lambda request: heard.set())
        link = wire.link(context)
        asked = asyncio.create_task(link.ask(PolicyQuery(), timeout_s=10))
        await heard.wait()
        first._pump.close()  # as a kill would: no goodbye
        first_context.destroy(linger=0)

        second = wire.hub(context, lambda request: request.reply(Done()))

        assert await asked == Done()
        link.close()
        second.close()

    run(work)


def test_a_posted_request_is_repeated_until_it_is_answered(wire: Wire) -> None:
    async def work(context: Any) -> None:
        link = wire.link(context)
        link.post(ReleaseAll())
        got: list[Any] = []

        def on_request(request: Request[Any]) -> None:
            got.append(request.body)
            request.reply(Done())

        hub = wire.hub(context, on_request)

        assert await link.settle(timeout_s=5)
        assert got == [ReleaseAll()]
        link.close()
        hub.close()

    run(work)


def test_the_deadline_ends_an_ask_that_nobody_answers(wire: Wire) -> None:
    async def work(context: Any) -> None:
        hub = wire.hub(context, lambda request: None)
        link = wire.link(context)

        with pytest.raises(AskTimeout):
            await link.ask(PolicyQuery(), timeout_s=0.05)

        link.close()
        hub.close()

    run(work)


def test_a_failed_answer_is_raised(wire: Wire) -> None:
    async def work(context: Any) -> None:
        hub = wire.hub(context, lambda request: request.reply(Failed(kind="Refused", message="not today")))
        link = wire.link(context)

        with pytest.raises(RemoteError, match="not today"):
            await link.ask(PolicyQuery(), timeout_s=5)

        link.close()
        hub.close()

    run(work)


def test_a_lost_fleet_ends_every_wait(wire: Wire) -> None:
    async def work(context: Any) -> None:
        link = wire.link(context)
        asked = asyncio.create_task(link.ask(PolicyQuery(), timeout_s=None))
        await asyncio.sleep(0)

        link.fail(FleetLost("home", "a request"))

        with pytest.raises(FleetLost):
            await asked
        with pytest.raises(FleetLost):
            await link.ask(PolicyQuery(), timeout_s=5)
        link.close()

    run(work)


def test_a_goodbye_is_told_to_the_service(wire: Wire) -> None:
    async def work(context: Any) -> None:
        left: asyncio.Queue[PeerLeft] = asyncio.Queue()
        hub = wire.hub(context, lambda request: request.reply(Done()), on_left=left.put_nowait)
        link = wire.link(context)
        await link.opened(timeout_s=5)

        link.close()

        assert (await left.get()).peer.role == "client"
        hub.close()

    run(work)


def test_the_service_can_ask_its_peer(wire: Wire) -> None:
    async def work(context: Any) -> None:
        opened: asyncio.Queue[Peer] = asyncio.Queue()
        hub = wire.hub(context, lambda request: None, on_opened=opened.put_nowait, replies=WorkerReply)
        link = wire.link(context, requests=WorkerRequest, on_request=lambda request: request.reply(Done()))

        answer = await hub.ask(await opened.get(), StopLocal(agents=()), timeout_s=5)

        assert answer == Done()
        link.close()
        hub.close()

    run(work)


def test_forgetting_a_peer_ends_what_it_was_asked(wire: Wire) -> None:
    async def work(context: Any) -> None:
        opened: asyncio.Queue[Peer] = asyncio.Queue()
        hub = wire.hub(context, lambda request: None, on_opened=opened.put_nowait, replies=WorkerReply)
        link = wire.link(context, requests=WorkerRequest, on_request=lambda request: None)
        peer = await opened.get()
        asked = asyncio.create_task(hub.ask(peer, StopLocal(agents=()), timeout_s=5))
        await asyncio.sleep(0)

        hub.forget(peer.incarnation, peer.role)

        with pytest.raises(RemoteError, match="PeerGone"):
            await asked
        link.close()
        hub.close()

    run(work)


def test_thousands_of_asks_in_one_turn_all_come_back(wire: Wire) -> None:
    async def work(context: Any) -> None:
        hub = wire.hub(context, lambda request: request.reply(Done()))
        link = wire.link(context)
        await link.opened(timeout_s=5)

        answers = await asyncio.gather(*(link.ask(PolicyQuery(), timeout_s=15) for _ in range(5000)))

        assert answers == [Done()] * 5000
        link.close()
        hub.close()

    run(work)


def test_the_sockets_are_set_up_as_the_options_say(wire: Wire) -> None:
    from covey.supervisor.sockets import OPTIONS, make_dealer, make_router

    context = make_context()
    router = make_router(context, path=wire.path, listener_fd=os.dup(wire.listener.fileno()))
    dealer = make_dealer(context, path=wire.path, identity="client:1")

    for one in (router, dealer):
        assert one.getsockopt(zmq.LINGER) == 0
        assert one.getsockopt(zmq.SNDHWM) == one.getsockopt(zmq.RCVHWM) == OPTIONS.high_water
        assert one.getsockopt(zmq.MAXMSGSIZE) == OPTIONS.max_message_bytes
        assert one.getsockopt(zmq.HEARTBEAT_IVL) == OPTIONS.heartbeat_interval_ms
        assert one.getsockopt(zmq.SNDTIMEO) == 0
    assert dealer.getsockopt(zmq.IMMEDIATE) == 1
    assert dealer.getsockopt(zmq.ROUTING_ID) == b"client:1"
    context.destroy(linger=0)
