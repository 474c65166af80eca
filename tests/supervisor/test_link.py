"""Links and hubs over real sockets: a service that is killed and replaced answers as if it had never been away."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import zmq
from msgspec import Raw

from covey.actors.ports import PeerLeft, Request
from covey.protocol.errors import (
    AskTimeout,
    FleetLost,
    LinkClosed,
    LinkFull,
    MailboxFull,
    MessageTooLarge,
    RemoteError,
)
from covey.protocol.frames import (
    MAX_FRAME_BYTES,
    VERSION,
    Ask,
    Hello,
    Ping,
    Pong,
    Welcome,
    bundle,
    decode_frame,
    encode,
)
from covey.protocol.ids import CallId, Incarnation
from covey.protocol.messages.base import Done, Failed
from covey.protocol.messages.broker import BrokerReply, BrokerRequest, PolicyQuery, Release, ReleaseAll
from covey.protocol.messages.fleet import StopLocal, WorkerReply, WorkerRequest
from covey.protocol.peer import Peer
from covey.protocol.session import body_of
from covey.storage.owners import me
from covey.supervisor import outflow
from covey.supervisor.hub import Hub
from covey.supervisor.link import Link
from covey.supervisor.sockets import make_context, make_dealer


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
        self.bare: list[zmq.Socket[bytes]] = []

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


async def until(holds: Callable[[], bool], *, within_s: float = 10.0) -> None:
    """Wait for what nobody sends a message about."""
    ends = asyncio.get_running_loop().time() + within_s
    while not holds():
        assert asyncio.get_running_loop().time() < ends, "it did not come true"
        await asyncio.sleep(0.002)


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


# --- what peers may do to a hub --------------------------------------------------------------------------------------


def hello(peer: Peer) -> bytes:
    return encode(Hello(version=VERSION, peer=peer, attempt=1, next_seq=1, window=10))


async def said(dealer: zmq.Socket[bytes], *, within_s: float = 10.0) -> bytes:
    """The next message a bare socket gets."""
    ends = asyncio.get_running_loop().time() + within_s
    while not dealer.poll(0):
        assert asyncio.get_running_loop().time() < ends, "nothing came"
        await asyncio.sleep(0.002)
    return dealer.recv()


def bare(context: Any, wire: Wire, peer: Peer) -> zmq.Socket[bytes]:
    """A socket that says what it likes."""
    dealer = make_dealer(context, path=wire.path, identity=f"{peer.role}:{peer.incarnation}")
    dealer.setsockopt(zmq.IMMEDIATE, 0)
    dealer.setsockopt(zmq.MAXMSGSIZE, -1)
    dealer.connect(f"ipc://{wire.path}")
    wire.bare.append(dealer)  # closed with its context
    return dealer


def test_a_message_larger_than_allowed_costs_its_sender_the_connection_and_it_goes_on_afterwards(wire: Wire) -> None:
    async def work(context: Any) -> None:
        hub = wire.hub(context, lambda request: request.reply(Done()))
        peer = wire.peer("client")
        dealer = bare(context, wire, peer)
        monitor = dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        dealer.send(hello(peer))
        assert isinstance(decode_frame(await said(dealer)), Welcome)
        link = wire.link(context)

        dealer.send(bytes(MAX_FRAME_BYTES + 1))
        await said(monitor)

        dealer.send(encode(Ping(seq=0)))
        assert isinstance(decode_frame(await said(dealer)), Pong)
        assert await link.ask(PolicyQuery(), timeout_s=5) == Done()
        assert hub.protocol_errors == 0
        link.close()
        hub.close()

    run(work)


def test_a_request_too_large_for_a_link_is_refused_here_and_the_link_goes_on(wire: Wire) -> None:
    async def work(context: Any) -> None:
        hub = wire.hub(context, lambda request: request.reply(Done()))
        link = wire.link(context)
        await link.opened(timeout_s=5)

        with pytest.raises(MessageTooLarge):
            await link.ask(Release(call=CallId("x" * MAX_FRAME_BYTES)), timeout_s=5)

        assert await link.ask(PolicyQuery(), timeout_s=5) == Done()
        link.close()
        hub.close()

    run(work)


def test_an_answer_too_large_for_a_link_reaches_the_asker_as_a_failure(wire: Wire) -> None:
    async def work(context: Any) -> None:
        hub = wire.hub(context, lambda request: request.reply(Failed(kind="x", message="y" * MAX_FRAME_BYTES)))
        link = wire.link(context)

        with pytest.raises(RemoteError, match="MessageTooLarge"):
            await link.ask(PolicyQuery(), timeout_s=10)

        link.close()
        hub.close()

    run(work)


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([b"\xc1"], id="no frame"),
        pytest.param([b""], id="nothing"),
        pytest.param([b"\x91" * 100_000 + b"\xc0"], id="nested a hundred thousand times"),
        pytest.param([b"client:forged", encode(Ping(seq=0)), b""], id="several parts"),
    ],
)
def test_nonsense_from_one_peer_is_counted_and_does_not_touch_the_others(wire: Wire, parts: list[bytes]) -> None:
    async def work(context: Any) -> None:
        hub = wire.hub(context, lambda request: request.reply(Done()))
        link = wire.link(context)
        await link.opened(timeout_s=5)
        peer = wire.peer("client")
        dealer = bare(context, wire, peer)

        for _ in range(3):
            dealer.send_multipart(parts)
        dealer.send(hello(peer))

        assert isinstance(decode_frame(await said(dealer)), Welcome)
        assert await link.ask(PolicyQuery(), timeout_s=5) == Done()
        assert hub.protocol_errors == 3
        link.close()
        hub.close()

    run(work)


def test_frames_that_were_bundled_are_taken_one_by_one(wire: Wire) -> None:
    async def work(context: Any) -> None:
        got: list[Any] = []
        hub = wire.hub(context, lambda request: got.append(request.body))
        peer = wire.peer("client")
        dealer = bare(context, wire, peer)
        asks = [encode(Ask(id=number, seq=number, body=Raw(body_of(PolicyQuery())))) for number in (1, 2)]

        dealer.send(bundle([hello(peer), *asks]))

        assert isinstance(decode_frame(await said(dealer)), Welcome)
        await until(lambda: len(got) == 2)
        hub.close()

    run(work)


def test_our_own_errors_in_serving_a_request_are_its_answer(wire: Wire) -> None:
    async def work(context: Any) -> None:
        def on_request(request: Request[Any]) -> None:
            raise MailboxFull("broker", 5, request)

        hub = wire.hub(context, on_request)
        link = wire.link(context)

        with pytest.raises(RemoteError, match="MailboxFull"):
            await link.ask(PolicyQuery(), timeout_s=5)

        link.close()
        hub.close()

    run(work)


def test_a_fault_in_serving_one_request_does_not_hold_up_the_next(wire: Wire) -> None:
    async def work(context: Any) -> None:
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, what: faults.append(what))

        def on_request(request: Request[Any]) -> None:
            if isinstance(request.body, ReleaseAll):
                raise ValueError("a fault of ours")
            request.reply(Done())

        hub = wire.hub(context, on_request)
        link = wire.link(context)
        await link.opened(timeout_s=5)
        link.post(ReleaseAll())

        # Both are in one message; half a second is less than the tick that would look again at last.
        assert await link.ask(PolicyQuery(), timeout_s=0.5) == Done()

        assert [str(fault["exception"]) for fault in faults] == ["a fault of ours"]
        link.close()
        hub.close()

    run(work)


# --- flow ------------------------------------------------------------------------------------------------------------


def test_a_peer_that_sends_much_does_not_keep_another_from_being_served(wire: Wire) -> None:
    async def work(context: Any) -> None:
        hub = wire.hub(context, lambda request: request.reply(Done()))
        busy, other = wire.link(context), wire.link(context)
        await busy.opened(timeout_s=5)
        await other.opened(timeout_s=5)
        asks = [asyncio.create_task(busy.ask(PolicyQuery(), timeout_s=20)) for _ in range(20_000)]
        await asyncio.sleep(0)

        await other.ask(PolicyQuery(), timeout_s=5)

        assert sum(not ask.done() for ask in asks) > 10_000
        await asyncio.gather(*asks)
        busy.close()
        other.close()
        hub.close()

    run(work)


def test_a_link_takes_no_more_than_its_bound_and_says_so(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(context: Any) -> None:
        link = wire.link(context)
        link._session._asks._most = 3
        asks = [asyncio.create_task(link.ask(PolicyQuery(), timeout_s=20)) for _ in range(3)]
        await asyncio.sleep(0)

        with pytest.raises(LinkFull):
            await link.ask(PolicyQuery(), timeout_s=5)

        hub = wire.hub(context, lambda request: request.reply(Done()))
        assert await asyncio.gather(*asks) == [Done()] * 3
        link.close()
        hub.close()

    run(work)


def test_answers_that_a_full_pipe_had_to_drop_are_missed_and_given_again(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(context: Any) -> None:
        requests: list[Request[Any]] = []
        hub = wire.hub(context, requests.append)
        link = wire.link(context)
        asks = [asyncio.create_task(link.ask(PolicyQuery(), timeout_s=15)) for _ in range(20)]
        await until(lambda: len(requests) == 20)

        # In one turn, so all but the first wait to be bundled, and there is no room for so many.
        with monkeypatch.context() as narrow:
            narrow.setattr(outflow, "MAX_FRAMES", 3)
            for request in requests:
                request.reply(Done())

        assert await asyncio.gather(*asks) == [Done()] * 20
        assert link._session.losses > 0
        link.close()
        hub.close()

    run(work)


def test_tells_of_one_turn_all_arrive_in_order(wire: Wire) -> None:
    async def work(context: Any) -> None:
        got: list[Any] = []

        def on_request(request: Request[Any]) -> None:
            got.append(request.body)
            request.reply(Done())

        hub = wire.hub(context, on_request)
        link = wire.link(context)
        await link.opened(timeout_s=5)

        for number in range(5000):
            link.tell(Release(call=CallId(str(number))))
        await link.ask(PolicyQuery(), timeout_s=10)

        assert [body.call for body in got[:-1]] == [str(number) for number in range(5000)]
        link.close()
        hub.close()

    run(work)


def test_deadlines_of_many_asks_end_each_its_own(wire: Wire) -> None:
    async def work(context: Any) -> None:
        hub = wire.hub(context, lambda request: None)
        link = wire.link(context)
        ended: list[int] = []

        async def ask(number: int, timeout_s: float) -> None:
            with pytest.raises(AskTimeout):
                await link.ask(PolicyQuery(), timeout_s=timeout_s)
            ended.append(number)

        await asyncio.gather(ask(2, 0.2), ask(0, 0.05), ask(3, 0.3), ask(1, 0.1))

        assert ended == [0, 1, 2, 3]
        assert link._session.unanswered == 0
        link.close()
        hub.close()

    run(work)


# --- silence ---------------------------------------------------------------------------------------------------------


def test_a_process_of_the_tree_that_says_nothing_is_told_of_once(wire: Wire) -> None:
    async def work(context: Any) -> None:
        silent: asyncio.Queue[tuple[Peer, float]] = asyncio.Queue()
        hub = wire.hub(
            context, lambda request: None, silence_s=0.3, on_silent=lambda peer, s: silent.put_nowait((peer, s))
        )
        worker = wire.peer("worker")
        dealer = bare(context, wire, worker)
        dealer.send(hello(worker))

        peer, silent_s = await asyncio.wait_for(silent.get(), 5)

        assert peer == worker
        assert silent_s >= 0.3
        # It answers again: what it hears first are the pings that it was sent meanwhile.
        assert isinstance(decode_frame(await said(dealer)), Welcome)
        assert isinstance(decode_frame(await said(dealer)), Ping)
        dealer.send(encode(Pong(seq=0)))
        await asyncio.wait_for(silent.get(), 5)
        assert silent.empty()
        hub.close()

    run(work)


def test_a_process_that_only_answers_pings_is_not_silent(wire: Wire) -> None:
    async def work(context: Any) -> None:
        silent: list[Peer] = []
        hub = wire.hub(context, lambda request: None, silence_s=0.5, on_silent=lambda peer, s: silent.append(peer))
        worker = wire.peer("worker")
        dealer = bare(context, wire, worker)
        dealer.send(hello(worker))
        assert isinstance(decode_frame(await said(dealer)), Welcome)

        for _ in range(15):
            assert isinstance(decode_frame(await said(dealer)), Ping)
            dealer.send(encode(Pong(seq=0)))

        assert silent == []
        hub.close()

    run(work)


def test_programs_outside_the_tree_are_not_watched(wire: Wire) -> None:
    async def work(context: Any) -> None:
        silent: asyncio.Queue[Peer] = asyncio.Queue()
        hub = wire.hub(context, lambda request: None, silence_s=0.2, on_silent=lambda peer, s: silent.put_nowait(peer))
        client, worker = wire.peer("client"), wire.peer("worker")
        for peer in (client, worker):
            bare(context, wire, peer).send(hello(peer))

        assert await asyncio.wait_for(silent.get(), 5) == worker
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(silent.get(), 0.5)
        hub.close()

    run(work)


def test_nobody_is_blamed_for_the_time_in_which_the_hub_itself_stood_still(wire: Wire) -> None:
    async def work(context: Any) -> None:
        silent: list[Peer] = []
        hub = wire.hub(context, lambda request: None, silence_s=0.3, on_silent=lambda peer, s: silent.append(peer))
        worker = wire.peer("worker")
        dealer = bare(context, wire, worker)
        dealer.send(hello(worker))
        assert isinstance(decode_frame(await said(dealer)), Welcome)

        time.sleep(0.5)  # noqa: ASYNC251 - that is the situation
        # Nobody asked it meanwhile; now it is asked, and has its whole time to answer.
        assert isinstance(decode_frame(await said(dealer)), Ping)

        assert silent == []
        hub.close()

    run(work)


# --- the end ---------------------------------------------------------------------------------------------------------


def test_a_draining_link_finishes_what_was_asked_and_takes_nothing_new(wire: Wire) -> None:
    async def work(context: Any) -> None:
        requests: asyncio.Queue[Request[Any]] = asyncio.Queue()
        left: asyncio.Queue[PeerLeft] = asyncio.Queue()
        hub = wire.hub(context, requests.put_nowait, on_left=left.put_nowait)
        link = wire.link(context)
        asked = asyncio.create_task(link.ask(PolicyQuery(), timeout_s=10))
        request = await requests.get()
        drained = asyncio.create_task(link.drain(timeout_s=10))
        await asyncio.sleep(0)

        with pytest.raises(LinkClosed):
            await link.ask(PolicyQuery(), timeout_s=5)
        link.post(ReleaseAll())  # nothing: the goodbye gives back everything
        assert left.empty()
        request.reply(Done())

        assert await asked == Done()
        assert await drained
        await asyncio.wait_for(left.get(), 5)
        assert requests.empty()
        hub.close()

    run(work)


def test_a_drain_that_takes_too_long_ends_all_the_same(wire: Wire) -> None:
    async def work(context: Any) -> None:
        hub = wire.hub(context, lambda request: None)
        link = wire.link(context)
        asked = asyncio.create_task(link.ask(PolicyQuery(), timeout_s=10))
        await link.opened(timeout_s=5)

        assert not await link.drain(timeout_s=0.1)

        with pytest.raises(asyncio.CancelledError):
            await asked
        hub.close()

    run(work)


def test_a_second_link_of_one_process_gets_its_own_answers(wire: Wire) -> None:
    async def work(context: Any) -> None:
        served: list[Any] = []

        def on_request(request: Request[Any]) -> None:
            served.append(request.body)
            request.reply(Failed(kind=type(request.body).__name__, message=""))

        hub = wire.hub(context, on_request)
        me = wire.peer("client")
        first = Link(context, path=wire.path, service="broker", me=me, replies=BrokerReply)
        with pytest.raises(RemoteError, match="PolicyQuery"):
            await first.ask(PolicyQuery(), timeout_s=5)
        first._session.close()  # the goodbye is lost
        first.close()

        second = Link(context, path=wire.path, service="broker", me=me, replies=BrokerReply)

        with pytest.raises(RemoteError, match="ReleaseAll"):
            await second.ask(ReleaseAll(), timeout_s=5)
        second.close()
        hub.close()

    run(work)


def test_a_late_answer_to_a_closed_link_is_not_given_to_the_next_one_of_that_process(wire: Wire) -> None:
    async def work(context: Any) -> None:
        requests: asyncio.Queue[Request[Any]] = asyncio.Queue()
        hub = wire.hub(context, requests.put_nowait)
        me = wire.peer("client")
        first = Link(context, path=wire.path, service="broker", me=me, replies=BrokerReply)
        given_up = asyncio.create_task(first.ask(PolicyQuery(), timeout_s=10))
        old = await requests.get()
        first._session.close()  # the goodbye is lost
        first.close()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        second = Link(context, path=wire.path, service="broker", me=me, replies=BrokerReply)
        asked = asyncio.create_task(second.ask(ReleaseAll(), timeout_s=10))
        new = await requests.get()

        old.reply(Failed(kind="Old", message="not for you"))
        new.reply(Done())

        assert await asked == Done()
        second.close()
        hub.close()

    run(work)
