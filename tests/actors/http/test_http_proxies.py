"""Proxies: which one an address gets, and real ones that connect, refuse, hang or want a password."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from covey.actors.http.clients import Clients
from covey.actors.http.proxies import Proxies, is_loopback, parse_proxy
from covey.protocol.errors import ConnectionSettingRefused
from covey.protocol.settings import ProviderSettings, TimeoutSettings

ENVIRONMENT = {"HTTPS_PROXY": "http://secure:1", "http_proxy": "http://plain:2", "ALL_PROXY": "socks5://all:3"}


# --- which -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "url", "proxy"),
    [
        pytest.param(ENVIRONMENT, ("https", "api.test", 443), "http://secure:1", id="by scheme"),
        pytest.param(ENVIRONMENT, ("http", "api.test", 80), "http://plain:2", id="lower case"),
        pytest.param({"ALL_PROXY": "socks5h://all"}, ("https", "a.test", 443), "socks5h://all:1080", id="for all"),
        pytest.param({"https_proxy": "p:8080"}, ("https", "a.test", 443), "http://p:8080", id="no kind named"),
        pytest.param({"HTTP_PROXY": "up", "http_proxy": "low"}, ("http", "a", 80), "http://low:80", id="both"),
        pytest.param({"HTTP_PROXY": "up", "http_proxy": ""}, ("http", "a", 80), "http://up:80", id="empty is unset"),
        pytest.param({"http_proxy": "http://p"}, ("https", "a.test", 443), None, id="other scheme"),
        pytest.param(ENVIRONMENT, ("https", "127.0.0.1", 443), None, id="loopback"),
        pytest.param(ENVIRONMENT, ("http", "localhost", 80), None, id="localhost"),
        pytest.param(ENVIRONMENT, ("http", "::1", 80), None, id="loopback v6"),
        pytest.param({}, ("https", "api.test", 443), None, id="none"),
    ],
)  # fmt: skip
def test_the_environment_s_proxy_of_an_address(
    environment: dict[str, str], url: tuple[str, str, int], proxy: str | None
) -> None:
    found = Proxies(environment).proxy_for(*url)

    assert (str(found) if found else None) == proxy


@pytest.mark.parametrize(
    ("no_proxy", "host", "is_direct"),
    [
        ("*", "api.test", True),
        ("api.test", "api.test", True),
        ("api.test", "eu.api.test", True),
        (".api.test", "eu.api.test", True),
        (".api.test", "api.test", True),
        ("*.api.test", "eu.api.test", True),
        ("API.test", "api.TEST", True),
        ("api.test", "api.test.", True),
        ("api.test", "myapi.test", False),
        ("test", "api.test", True),
        ("other.test , api.test", "api.test", True),
        ("", "api.test", False),
        (",", "api.test", False),
        ("api.test:443", "api.test", True),
        ("api.test:8443", "api.test", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("fd00::/8", "fd00::1", True),
        ("[fd00::1]", "fd00::1", True),
        ("[fd00::1]:443", "fd00::1", True),
        ("[fd00::1]:8443", "fd00::1", False),
        ("2.3", "10.1.2.3", False),
    ],
)
@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
def test_no_proxy_names_hosts_networks_and_ports(name: str, no_proxy: str, host: str, is_direct: bool) -> None:
    found = Proxies({"ALL_PROXY": "http://p:1", name: no_proxy}).proxy_for("https", host, 443)

    assert (found is None) is is_direct


@pytest.mark.parametrize(
    ("host", "is_it"), [("localhost", True), ("127.1.2.3", True), ("::1", True), ("10.0.0.1", False)]
)
def test_loopback(host: str, is_it: bool) -> None:
    assert is_loopback(host) is is_it


@pytest.mark.parametrize("url", ["ftp://user:hush@p:1", "http://user:hush@p:port", "http://user:hush@", "://"])
def test_a_url_that_is_no_proxy_s_is_named_without_its_password(url: str) -> None:
    with pytest.raises(ConnectionSettingRefused, match=r"providers\.sim\.proxy") as caught:
        Clients(environment={}).for_provider(ProviderSettings(name="sim", base_url="http://a.test", proxy=url))

    assert "hush" not in str(caught.value)


def test_a_bad_proxy_of_the_environment_is_named_by_its_variable() -> None:
    with pytest.raises(ConnectionSettingRefused, match="HTTPS_PROXY: gopher://p"):
        Clients(environment={"HTTPS_PROXY": "gopher://p"}).for_provider(
            ProviderSettings(name="sim", base_url="https://a.test")
        )


def test_a_proxy_is_shown_without_its_password() -> None:
    proxy = parse_proxy("http://user:p%40ss@proxy.test:3128", key="proxy")

    assert (proxy.username, proxy.password) == ("user", "p@ss")
    assert str(proxy) == repr(proxy) == "http://proxy.test:3128"


# --- real ones -------------------------------------------------------------------------------------------------------


async def ask(clients: Clients, base_url: str, **settings: Any) -> bytes:
    provider = ProviderSettings(name="sim", base_url=base_url, **settings)
    response = await clients.send(provider, httpx.Request("POST", base_url, content=b"{}"))
    try:
        return await response.aread()
    finally:
        await response.aclose()


@asynccontextmanager
async def clients_of(environment: dict[str, str] | None = None) -> AsyncIterator[Clients]:
    clients = Clients(environment=environment or {})
    try:
        yield clients
    finally:
        await clients.close()


@pytest.mark.parametrize("is_tls_proxy", [False, True], ids=["http proxy", "https proxy"])
async def test_https_goes_through_a_tunnel(is_tls_proxy: bool, http: Any, certificates: Any, local_proxy: Any) -> None:
    context = certificates.server() if is_tls_proxy else None
    async with http.answering(http.sized(), context=certificates.server()) as server, clients_of() as clients:
        proxy = local_proxy(to=server.port)
        async with http.listening(proxy.connect, context) as listener:
            way = f"{listener.scheme}://user:p%40ss@127.0.0.1:{listener.port}"
            settings = {"proxy": way, "ca_bundle": certificates.bundle}
            got = [await ask(clients, "https://provider.test/v1", **settings) for _ in range(2)]

            assert got == [b"ok"] * 2
            assert (listener.opened, server.opened) == (1, 1)
            assert proxy.asked[0].split(b"\r\n") == [
                b"CONNECT provider.test:443 HTTP/1.1",
                b"Host: provider.test:443",
                b"Proxy-Authorization: Basic dXNlcjpwQHNz",
                b"",
                b"",
            ]
            assert b"Proxy-Authorization" not in server.requests[0]
            await clients.close()


@pytest.mark.parametrize("is_tls_proxy", [False, True], ids=["http proxy", "https proxy"])
async def test_http_is_asked_of_the_proxy_itself(
    is_tls_proxy: bool, http: Any, certificates: Any, local_proxy: Any
) -> None:
    context = certificates.server() if is_tls_proxy else None
    async with http.answering(http.sized()) as server, clients_of() as clients:
        proxy = local_proxy(to=server.port)
        async with http.listening(proxy.connect, context) as listener:
            way = f"{listener.scheme}://user:pass@127.0.0.1:{listener.port}"
            assert await ask(clients, "http://provider.test/v1?a=b", proxy=way, ca_bundle=certificates.bundle) == b"ok"

            assert proxy.asked[0].startswith(b"POST http://provider.test/v1?a=b HTTP/1.1\r\nHost: provider.test\r\n")
            assert b"\r\nProxy-Authorization: Basic dXNlcjpwYXNz\r\n" in proxy.asked[0]
            await clients.close()


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("socks5h", b"\x03provider.test"),
        ("socks5", b"\x01\x7f\x00\x00\x01"),
        ("socks4a", b"provider.test"),
        ("socks4", b"\x7f\x00\x00\x01"),
    ],
)
@pytest.mark.parametrize("is_tls", [False, True], ids=["http", "https"])
async def test_socks_names_the_provider_or_its_address(
    *, kind: str, asked: bytes, is_tls: bool, http: Any, certificates: Any, local_proxy: Any
) -> None:
    context = certificates.server() if is_tls else None
    async with http.answering(http.sized(), context=context) as server, clients_of() as clients:
        proxy = local_proxy(to=server.port)
        handler = proxy.socks5 if kind.startswith("socks5") else proxy.socks4
        async with http.listening(handler) as listener:
            host = "provider.test" if kind.endswith(("h", "a")) else "localhost"
            url = f"{server.scheme}://{host}/v1"
            settings = {"proxy": f"{kind}://127.0.0.1:{listener.port}", "ca_bundle": certificates.bundle}
            got = [await ask(clients, url, **settings) for _ in range(2)]

            assert got == [b"ok"] * 2
            assert listener.opened == 1
            assert proxy.asked in ([asked], [b"\x04" + bytes(15) + b"\x01"])  # localhost may be ::1 first
            await clients.close()


async def test_a_socks_proxy_gets_our_name_and_password(http: Any, local_proxy: Any) -> None:
    async with http.answering(http.sized()) as server, clients_of() as clients:
        proxy = local_proxy(to=server.port)
        async with http.listening(proxy.socks5) as listener:
            assert (
                await ask(clients, "http://provider.test/", proxy=f"socks5h://u:p%40@127.0.0.1:{listener.port}")
                == b"ok"
            )

            assert proxy.asked[0] == b"u:p@"
            await clients.close()


async def test_the_environment_s_proxy_is_used_and_a_configured_one_or_none_comes_first(
    http: Any, local_proxy: Any
) -> None:
    async with http.answering(http.sized()) as server:
        environments, configured = local_proxy(to=server.port), local_proxy(to=server.port)
        async with http.listening(environments.connect) as one, http.listening(configured.connect) as other:
            environment = {"HTTP_PROXY": f"http://127.0.0.1:{one.port}", "NO_PROXY": "exempt.test"}
            async with clients_of(environment) as clients:
                await ask(clients, "http://provider.test/")
                assert (len(environments.asked), len(configured.asked)) == (1, 0)

                await ask(clients, "http://exempt.test/", proxy=f"http://127.0.0.1:{other.port}")
                assert (len(environments.asked), len(configured.asked)) == (1, 1)

                await ask(clients, server.url)
                await ask(clients, f"http://localhost:{server.port}/", proxy="direct")
                assert (len(environments.asked), len(configured.asked)) == (1, 1)


# --- and what goes wrong with them -----------------------------------------------------------------------------------

REFUSES = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 4\r\n\r\nnope"
WANTS_PASSWORD = b'HTTP/1.1 407 X\r\nproxy-authenticate: Basic realm="x"\r\ncontent-length: 0\r\n\r\n'


@pytest.mark.parametrize(
    ("says", "match"),
    [
        pytest.param(REFUSES, "answered 403: it does not connect to provider.test:443", id="refuses"),
        pytest.param(WANTS_PASSWORD, "answered 407: it wants other credentials", id="wants a password"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n", "not HTTP", id="is none"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nbytes", "nobody asked for", id="talks on"),
    ],
)
async def test_a_proxy_s_no_to_a_tunnel_names_it(
    *, says: bytes, match: str, http: Any, local_proxy: Any, certificates: Any, until: Any
) -> None:
    async with http.listening(local_proxy(says=says).connect) as listener, clients_of() as clients:
        way = f"http://user:hush@127.0.0.1:{listener.port}"
        with pytest.raises(httpx.ProxyError, match=match) as caught:
            await ask(clients, "https://provider.test/", proxy=way, ca_bundle=certificates.bundle)

        assert f"http://127.0.0.1:{listener.port}" in str(caught.value)
        assert "hush" not in str(caught.value)
        await until(lambda: listener.open == 0)


async def test_a_proxy_that_wants_a_password_for_plain_http_is_the_proxy_s_failure(http: Any, local_proxy: Any) -> None:
    async with http.listening(local_proxy(says=WANTS_PASSWORD).connect) as listener, clients_of() as clients:
        with pytest.raises(httpx.ProxyError, match="407"):
            await ask(clients, "http://provider.test/", proxy=f"http://127.0.0.1:{listener.port}")


async def test_a_socks_proxy_s_no_names_it(http: Any, local_proxy: Any, until: Any) -> None:
    proxy = local_proxy(says=b"\x05\x05\x00\x01" + bytes(6))
    async with http.listening(proxy.socks5) as listener, clients_of() as clients:
        with pytest.raises(httpx.ProxyError, match=rf"socks5h://127\.0\.0\.1:{listener.port}: .*refused"):
            await ask(clients, "http://provider.test/", proxy=f"socks5h://127.0.0.1:{listener.port}")

        await until(lambda: listener.open == 0)


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_a_proxy_that_hangs_is_a_connection_that_takes_too_long(
    scheme: str, http: Any, local_proxy: Any, certificates: Any, until: Any
) -> None:
    proxy = local_proxy(hangs=True)
    handler = proxy.connect if scheme == "http" else proxy.socks5
    async with http.listening(handler) as listener, clients_of() as clients:
        with pytest.raises(httpx.ConnectTimeout, match=f"through proxy {scheme}://127.0.0.1"):
            await ask(
                clients,
                "https://localhost/",
                proxy=f"{scheme}://127.0.0.1:{listener.port}",
                ca_bundle=certificates.bundle,
                timeouts=TimeoutSettings(connect_seconds=0.1),
            )

        await until(lambda: listener.open == 0)


@pytest.mark.parametrize("scheme", ["http", "socks5h"])
async def test_a_proxy_nobody_runs_is_no_connection(scheme: str, certificates: Any) -> None:
    async with clients_of() as clients:
        with pytest.raises(httpx.ConnectError, match="through proxy") as caught:
            await ask(clients, "https://provider.test/", proxy=f"{scheme}://127.0.0.1:1", ca_bundle=certificates.bundle)

        assert isinstance(caught.value.__cause__, ConnectionRefusedError)


@pytest.mark.parametrize("scheme", ["http", "socks5h"])
async def test_a_cancel_on_the_way_through_a_proxy_leaks_nothing(
    *, scheme: str, http: Any, local_proxy: Any, certificates: Any, until: Any, socket_count: Any
) -> None:
    async with http.answering(http.sized(), context=certificates.server()) as server, clients_of() as clients:
        proxy = local_proxy(to=server.port)
        async with http.listening(proxy.connect if scheme == "http" else proxy.socks5) as listener:
            before = socket_count()
            settings = {"proxy": f"{scheme}://127.0.0.1:{listener.port}", "ca_bundle": certificates.bundle}
            for turns in range(200):
                call = asyncio.create_task(ask(clients, "https://provider.test/", **settings))
                for _ in range(turns):
                    await asyncio.sleep(0)
                call.cancel()
                try:
                    assert await call == b"ok"
                    break
                except asyncio.CancelledError:
                    pass
            else:
                pytest.fail("no call got through")
            assert turns > 5
            await until(lambda: listener.open == 1)
            await until(lambda: socket_count() == before + 4)
            await clients.close()
