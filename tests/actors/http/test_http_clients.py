"""Clients of a process: who shares a pool with whom, and what a request says that did not say it itself."""

from __future__ import annotations

from typing import Any

import httpx

from covey.actors.http.clients import CONNECT_S, ENCODING, USER_AGENT, WRITE_S, Clients, open_client
from covey.protocol.settings import ProviderSettings, TimeoutSettings
from covey.protocol.version import VERSION


def provider(name: str = "sim", base_url: str = "http://127.0.0.1:1/v1", **settings: Any) -> ProviderSettings:
    return ProviderSettings(name=name, base_url=base_url, **settings)


async def test_providers_that_are_reached_the_same_way_share_a_client() -> None:
    clients = Clients(environment={})
    one = clients.for_provider(provider())

    assert clients.for_provider(provider("other", "http://127.0.0.1:2/v1")) is one
    assert clients.for_provider(provider(proxy="http://127.0.0.1:3")) is not one
    assert clients.for_provider(provider(timeouts=TimeoutSettings(connect_seconds=1.0))) is not one
    assert one.timeout == httpx.Timeout(None, connect=CONNECT_S, write=WRITE_S)
    assert one.headers["user-agent"] == USER_AGENT == f"covey/{VERSION}"
    assert not one.follow_redirects
    await clients.close()


async def test_both_ways_to_send_share_the_pool_and_say_who_we_are(http: Any) -> None:
    async with http.answering(http.sized()) as server:
        clients = Clients(environment={})
        settings = provider(base_url=server.url)
        response = await clients.send(settings, httpx.Request("POST", server.url, content=b"{}"))
        assert response.request.url == server.url
        assert await response.aread() == b"ok"
        assert (await clients.for_provider(settings).post(server.url, content=b"{}")).text == "ok"

        assert server.opened == 1
        for request in server.requests:
            assert b"\r\nuser-agent: %s\r\n" % USER_AGENT.encode() in request.lower()
            assert b"\r\naccept-encoding: %s\r\n" % ENCODING.encode() in request.lower()
        await clients.close()


async def test_a_request_s_own_words_are_left_alone(http: Any) -> None:
    async with http.answering(http.sized()) as server:
        clients = Clients(environment={})
        request = httpx.Request("POST", server.url, headers={"User-Agent": "own", "accept-encoding": "gzip"})
        request.extensions["timeout"] = {"connect": 1.0}
        await (await clients.send(provider(base_url=server.url), request)).aread()

        assert b"User-Agent: own" in server.requests[0]
        assert b"accept-encoding: gzip" in server.requests[0]
        assert request.extensions == {"timeout": {"connect": 1.0}}
        await clients.close()


async def test_a_redirect_is_an_answer_like_any_other(http: Any) -> None:
    async with http.answering(http.sized(status=307, headers=b"location: /elsewhere\r\n")) as server:
        clients = Clients(environment={})
        settings = provider(base_url=server.url)

        assert (await clients.send(settings, httpx.Request("POST", server.url))).status_code == 307
        assert (await clients.for_provider(settings).post(server.url)).status_code == 307
        await clients.close()


async def test_a_client_of_its_own_is_closed_with_its_connections(http: Any, until: Any) -> None:
    async with http.answering(http.sized()) as server:
        async with open_client(server.url) as client:
            assert (await client.get(server.url)).text == "ok"
            assert server.open == 1

        await until(lambda: server.open == 0)
