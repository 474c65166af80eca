"""The link benchmark's run: the same round trips through a link and a hub, and through bare sockets beside them.

Small slices of each alternate, so that a slow moment of the machine meets all of them.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import msgspec
import zmq

from ..protocol.errors import AskTimeout
from ..protocol.frames import Ask, encode
from ..protocol.ids import Incarnation
from ..protocol.peer import Peer
from ..protocol.session import body_of
from ..storage.owners import me
from ..supervisor.link import Link
from ..supervisor.pump import NOBLOCK, Pump
from ..supervisor.sockets import make_context, make_dealer
from .link_service import ECHO, NOTE, Count, CountQuery, LinkReply, ServiceProcess

WAIT_S: Final = 20.0
NOTES_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    rounds: int = 6
    slices: int = 6
    round_trips: int = 50
    """In one slice of one round."""
    pause_s: float = 0.001
    """Between two round trips that are not back to back: asks of a fleet come one now and one then."""
    pipelined: int = 12_000
    in_flight: int = 256
    tells: int = 12_000
    kills: int = 7


@dataclass(slots=True)
class LinkRun:
    """What was measured; times in seconds, rates per second. `spaced` trips have a pause before them."""

    link_trips: list[float] = field(default_factory=list)
    loop_trips: list[float] = field(default_factory=list)
    bare_trips: list[float] = field(default_factory=list)
    link_spaced: list[float] = field(default_factory=list)
    loop_spaced: list[float] = field(default_factory=list)
    bare_spaced: list[float] = field(default_factory=list)
    link_rates: list[float] = field(default_factory=list)
    bare_rates: list[float] = field(default_factory=list)
    tell_rates: list[float] = field(default_factory=list)
    tells_lost: int = 0
    reconnects: list[float] = field(default_factory=list)


async def measure(plan: Plan) -> LinkRun:
    """Run all of it."""
    run = LinkRun()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cvl-")))
        ends = _Ends(folder, stack)
        service = ends.start("hub")
        for process in (service, ends.start("bare"), ends.start("loop")):
            process.serve()
        context = make_context()
        stack.callback(context.destroy, linger=0)
        bare, loop = _dealer(context, ends.paths["bare"]), _LoopEnd(_dealer(context, ends.paths["loop"]))
        stack.callback(loop.close)
        link = Link(context, path=ends.paths["hub"], service="bench", me=_peer(), replies=LinkReply)
        stack.callback(link.close)
        await link.opened(timeout_s=WAIT_S)
        for _ in range(plan.rounds):
            await _round(run, plan, link, loop, bare)
        sent = plan.rounds * (plan.tells - plan.tells % NOTES_AT_ONCE)
        run.tells_lost = sent - cast(Count, await link.ask(CountQuery(), timeout_s=WAIT_S)).notes
        for _ in range(plan.kills):
            successor = ends.start("hub")
            run.reconnects.append(await _replace(link, service, successor))
            service = successor
    return run


async def _round(run: LinkRun, plan: Plan, link: Link, loop: _LoopEnd, bare: zmq.Socket[bytes]) -> None:
    kinds = (
        (0.0, run.bare_trips, run.loop_trips, run.link_trips),
        (plan.pause_s, run.bare_spaced, run.loop_spaced, run.link_spaced),
    )
    for pause_s, bare_trips, loop_trips, link_trips in kinds * plan.slices:
        bare_trips.extend(_bare_trips(bare, plan.round_trips, pause_s))
        loop_trips.extend(await _trips(loop.ask, plan.round_trips, pause_s))
        link_trips.extend(await _trips(lambda: link.ask(ECHO, timeout_s=WAIT_S), plan.round_trips, pause_s))
    run.bare_rates.append(_bare_rate(bare, plan.pipelined, plan.in_flight))
    run.link_rates.append(await _link_rate(link, plan.pipelined, plan.in_flight))
    run.tell_rates.append(await _tell_rate(link, plan.tells))


class _Ends:
    """The other ends and the sockets they listen on; all of it ends with `stack`."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.paths = {kind: str(folder / f"{kind}.sock") for kind in ("hub", "bare", "loop")}
        self._stack = stack
        self._listeners: dict[str, socket.socket] = {}
        for kind, path in self.paths.items():
            self._listeners[kind] = stack.enter_context(socket.socket(socket.AF_UNIX))
            self._listeners[kind].bind(path)
            self._listeners[kind].listen(64)

    def start(self, kind: str) -> ServiceProcess:
        """A warm process of that kind, not serving yet."""
        process = ServiceProcess(kind, self.paths[kind], self._listeners[kind])
        self._stack.callback(process.kill)
        return process


def _peer() -> Peer:
    life = Incarnation(f"{os.getpid()}-{secrets.token_hex(4)}")
    return Peer(role="client", name="bench", incarnation=life, owner=me())


def _request_bytes() -> bytes:
    """As many bytes as the link sends for one ask."""
    return bytes(len(encode(Ask(id=10_000, seq=10_000, body=msgspec.Raw(body_of(ECHO))))))


def _dealer(context: zmq.Context[zmq.Socket[bytes]], path: str) -> zmq.Socket[bytes]:
    """A bare socket with the options of a link, that waits where a link would be told to come again."""
    dealer = make_dealer(context, path=path, identity=f"bench:{Path(path).name}")
    dealer.setsockopt(zmq.IMMEDIATE, 0)
    dealer.setsockopt(zmq.SNDTIMEO, int(WAIT_S * 1000))
    dealer.setsockopt(zmq.RCVTIMEO, int(WAIT_S * 1000))
    dealer.connect(f"ipc://{path}")
    return dealer


class _LoopEnd:
    """A bare socket in an asyncio loop: what a link would cost if it did nothing but send and receive."""

    def __init__(self, dealer: zmq.Socket[bytes]) -> None:
        self._dealer = dealer
        self._request = _request_bytes()
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._pump = Pump(dealer, self._take)

    async def ask(self) -> bytes:
        """One round trip; one at a time."""
        self._answer = asyncio.get_running_loop().create_future()
        self._dealer.send(self._request)
        self._pump.sent(is_alone=True)
        return await self._answer

    def close(self) -> None:
        """Stop reading."""
        self._pump.close()

    def _take(self) -> int:
        self._answer.set_result(self._dealer.recv(NOBLOCK))
        return 1


def _bare_trips(dealer: zmq.Socket[bytes], count: int, pause_s: float) -> list[float]:
    request, trips = _request_bytes(), []
    for _ in range(count):
        if pause_s:
            time.sleep(pause_s)
        began = time.perf_counter()
        dealer.send(request)
        dealer.recv()
        trips.append(time.perf_counter() - began)
    return trips


async def _trips(ask: Callable[[], Awaitable[object]], count: int, pause_s: float) -> list[float]:
    trips = []
    for _ in range(count):
        if pause_s:
            await asyncio.sleep(pause_s)
        began = time.perf_counter()
        await ask()
        trips.append(time.perf_counter() - began)
    return trips


def _bare_rate(dealer: zmq.Socket[bytes], count: int, in_flight: int) -> float:
    request = _request_bytes()
    began = time.perf_counter()
    for number in range(count + in_flight):
        if number >= in_flight:
            dealer.recv()
        if number < count:
            dealer.send(request)
    return count / (time.perf_counter() - began)


async def _link_rate(link: Link, count: int, in_flight: int) -> float:
    left = deque(range(count))

    async def work() -> None:
        while left:
            left.pop()
            await link.ask(ECHO, timeout_s=WAIT_S)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(in_flight)))
    return count / (time.perf_counter() - began)


async def _tell_rate(link: Link, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count // NOTES_AT_ONCE):
        for _ in range(NOTES_AT_ONCE):
            link.tell(NOTE)
        # What is told is not answered: the ask behind it says that it has arrived.
        await link.ask(ECHO, timeout_s=WAIT_S)
    return count / (time.perf_counter() - began)


async def _replace(link: Link, service: ServiceProcess, successor: ServiceProcess) -> float:
    """Kill the service with an ask under way; seconds from its successor's first moment to the answer."""
    service.kill()
    asked = asyncio.create_task(link.ask(CountQuery(), timeout_s=WAIT_S))
    with suppress(AskTimeout):
        await link.ask(ECHO, timeout_s=0.05)
    began = time.perf_counter()
    successor.serve()
    await asked
    return time.perf_counter() - began
