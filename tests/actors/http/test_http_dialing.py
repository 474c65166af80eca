"""Names and addresses: a dead one costs a quarter of a second, and nobody looks up what somebody else is looking up."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpx
import pytest

from covey.actors.http.addresses import LOOKUP_KEPT_S, Address, Resolver
from covey.actors.http.routes import Routes
from covey.actors.http.tls import TlsSettings
from covey.actors.http.transport import PoolTransport


class Names:
    """A resolver's source: knows `provider.test`, counts who asks."""

    def __init__(self, *addresses: Address) -> None:
        self.addresses = list(addresses)
        self.asked = 0

    def __call__(self, host: str, port: int) -> list[Address]:
        self.asked += 1
        if not self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.addresses


def ipv4(port: int) -> Address:
    return (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port))


def transport_with(names: Names) -> PoolTransport:
    return PoolTransport(TlsSettings(), Routes("direct", {}), resolver=Resolver(names))


async def status_of(transport: PoolTransport, url: str) -> int:
    response = await transport.handle_async_request(httpx.Request("GET", url, extensions={"timeout": {"connect": 5.0}}))
    await response.aread()
    return response.status_code


async def test_a_name_whose_first_address_is_a_blackhole_is_reached_by_its_second(http: Any) -> None:
    """A listener with a full queue takes no connection and refuses none, as an address that leads nowhere."""
    with socket.socket(socket.AF_INET6) as dead:
        dead.bind(("::1", 0))
        dead.listen(0)
        fillers = [socket.socket(socket.AF_INET6) for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(dead.getsockname())
        try:
            async with http.answering(http.sized()) as server:
                blackhole: Address = (socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", dead.getsockname())
                transport = transport_with(Names(blackhole, ipv4(server.port)))
                loop = asyncio.get_running_loop()
                started = loop.time()

                assert await status_of(transport, f"http://provider.test:{server.port}/") == 200
                assert 0.2 < loop.time() - started < 0.6
                await transport.aclose()
        finally:
            for filler in fillers:
                filler.close()


async def test_an_address_that_refuses_costs_no_time(http: Any) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        refusing = ipv4(unused.getsockname()[1])
    async with http.answering(http.sized()) as server:
        transport = transport_with(Names(refusing, ipv4(server.port)))
        loop = asyncio.get_running_loop()
        started = loop.time()

        assert await status_of(transport, f"http://provider.test:{server.port}/") == 200
        assert loop.time() - started < 0.2
        await transport.aclose()


async def test_calls_at_the_same_time_share_one_look_up_and_its_answer_serves_later_ones(http: Any) -> None:
    async with http.answering(http.sized(headers=b"connection: close\r\n")) as server:
        names = Names(ipv4(server.port))
        transport = transport_with(names)
        url = f"http://provider.test:{server.port}/"

        await asyncio.gather(*(status_of(transport, url) for _ in range(20)))
        await status_of(transport, url)

        assert server.opened == 21
        assert names.asked == 1
        await transport.aclose()


async def test_who_gives_up_a_look_up_takes_it_from_nobody_else() -> None:
    names = Names(ipv4(1))
    resolver = Resolver(names)
    impatient = asyncio.ensure_future(resolver.addresses("provider.test", 1))
    patient = asyncio.ensure_future(resolver.addresses("provider.test", 1))
    await asyncio.sleep(0)
    impatient.cancel()

    assert await patient == [ipv4(1)]
    assert impatient.cancelled()
    assert names.asked == 1


async def test_a_name_that_is_not_known_is_no_connection_and_is_asked_again() -> None:
    names = Names()
    transport = transport_with(names)

    for _ in range(2):
        with pytest.raises(httpx.ConnectError, match=r"provider\.test:80") as caught:
            await status_of(transport, "http://provider.test/")
        assert isinstance(caught.value.__cause__, socket.gaierror)
    assert names.asked == 2
    await transport.aclose()


async def test_what_was_found_is_forgotten_after_a_while() -> None:
    names = Names(ipv4(1))
    now = 0.0
    resolver = Resolver(names, clock=lambda: now)
    await resolver.addresses("provider.test", 1)
    now = LOOKUP_KEPT_S + 0.1
    await resolver.addresses("provider.test", 1)

    assert names.asked == 2


async def test_addresses_are_not_looked_up() -> None:
    names = Names()
    resolver = Resolver(names)

    assert await resolver.addresses("127.0.0.1", 80) == [ipv4(80)]
    assert (await resolver.addresses("::1", 80))[0][4] == ("::1", 80, 0, 0)
    assert names.asked == 0
