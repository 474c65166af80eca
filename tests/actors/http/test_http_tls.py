"""TLS with a private authority: who is trusted, who we are, and what a bad file or certificate says."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from covey.actors.http.clients import Clients
from covey.actors.http.tls import tls_context, tls_of
from covey.protocol.errors import ConnectionSettingRefused
from covey.protocol.settings import ProviderSettings


def provider(url: str, **settings: Any) -> ProviderSettings:
    return ProviderSettings(name="sim", base_url=url, **settings)


async def answer_of(clients: Clients, settings: ProviderSettings) -> bytes:
    response = await clients.send(settings, httpx.Request("POST", settings.base_url, content=b"{}"))
    try:
        return await response.aread()
    finally:
        await response.aclose()


async def test_a_private_authority_is_trusted_where_it_is_configured(http: Any, certificates: Any) -> None:
    async with http.answering(http.sized(), context=certificates.server()) as server:
        clients = Clients(environment={})
        settings = provider(server.url, ca_bundle=certificates.bundle)

        assert [await answer_of(clients, settings) for _ in range(2)] == [b"ok"] * 2
        assert server.opened == 1
        await clients.close()


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
async def test_the_environment_s_authorities_are_trusted(
    variable: str, http: Any, certificates: Any, tmp_path: Path
) -> None:
    where = certificates.bundle if variable == "SSL_CERT_FILE" else _hashed(certificates.bundle, tmp_path / "hashed")
    async with http.answering(http.sized(), context=certificates.server()) as server:
        clients = Clients(environment={variable: where})

        assert await answer_of(clients, provider(server.url)) == b"ok"
        await clients.close()


def _hashed(bundle: str, folder: Path) -> str:
    """A folder of authorities as OpenSSL looks them up: by the hash of their subject."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    command = ["openssl", "x509", "-hash", "-noout", "-in", bundle]
    subject = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    folder.mkdir()
    shutil.copy(bundle, folder / f"{subject}.0")
    return str(folder)


async def test_another_authority_s_server_is_refused(http: Any, certificates: Any, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    async with http.answering(http.sized(), context=certificates.server()) as server:
        clients = Clients(environment={"SSL_CERT_FILE": certificates.bundle})  # a configured one replaces it
        with pytest.raises(httpx.ConnectError) as caught:
            await answer_of(clients, provider(server.url, ca_bundle=str(other)))

        assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)
        assert server.requests == []
        await clients.close()


async def test_a_certificate_for_another_name_is_refused(http: Any, certificates: Any) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificates.authority.issue_cert("elsewhere.test").configure_cert(context)
    async with http.answering(http.sized(), context=context) as server:
        clients = Clients(environment={})
        with pytest.raises(httpx.ConnectError, match=r"127\.0\.0\.1") as caught:
            await answer_of(clients, provider(server.url, ca_bundle=certificates.bundle))

        assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)
        await clients.close()


async def test_a_server_that_wants_a_certificate_gets_ours(http: Any, certificates: Any) -> None:
    cert, key = certificates.client()
    async with http.answering(http.sized(), context=certificates.server(wants_client=True)) as server:
        clients = Clients(environment={})
        ours = provider(server.url, ca_bundle=certificates.bundle, client_cert=cert, client_key=key)

        assert await answer_of(clients, ours) == b"ok"
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError, httpx.ConnectError, httpx.WriteError)):
            await answer_of(clients, provider(server.url, ca_bundle=certificates.bundle))
        assert len(server.requests) == 1
        await clients.close()


async def test_http_2_is_not_offered(http: Any, certificates: Any) -> None:
    chosen: list[str | None] = []

    async def handler(reader: Any, writer: Any) -> None:
        chosen.append(writer.get_extra_info("ssl_object").selected_alpn_protocol())
        await http.read_request(reader)
        writer.write(http.sized())
        await reader.read()

    async with http.listening(handler, certificates.server()) as server:
        clients = Clients(environment={})
        await answer_of(clients, provider(server.url, ca_bundle=certificates.bundle))

        assert chosen == ["http/1.1"]
        await clients.close()


async def test_a_body_that_is_not_read_to_its_end_closes_the_connection(
    http: Any, certificates: Any, until: Any
) -> None:
    async with http.answering(http.chunked(b"x", end=b""), context=certificates.server()) as server:
        clients = Clients(environment={})
        settings = provider(server.url, ca_bundle=certificates.bundle)
        response = await clients.send(settings, httpx.Request("POST", server.url, content=b"{}"))
        await anext(response.aiter_raw())
        await response.aclose()

        await until(lambda: server.open == 0)
        await clients.close()


async def test_a_cancel_at_any_point_leaks_nothing_of_tls(
    http: Any, certificates: Any, until: Any, socket_count: Any
) -> None:
    async with http.answering(http.chunked(b"a", b"b"), context=certificates.server()) as server:
        clients = Clients(environment={})
        settings = provider(server.url, ca_bundle=certificates.bundle)
        before = socket_count()
        for turns in range(200):
            call = asyncio.create_task(answer_of(clients, settings))
            for _ in range(turns):
                await asyncio.sleep(0)
            call.cancel()
            try:
                assert await call == b"ab"
                break
            except asyncio.CancelledError:
                pass
        else:
            pytest.fail("no call got through")

        assert turns > 5
        await until(lambda: server.open == 1)
        await until(lambda: socket_count() == before + 2)
        await clients.close()


async def test_a_plain_server_behind_https_is_no_connection(http: Any, certificates: Any) -> None:
    async def handler(reader: Any, writer: Any) -> None:
        await reader.read(1)
        writer.write(http.sized(status=400))
        await reader.read()

    async with http.listening(handler) as server:
        clients = Clients(environment={})
        url = server.url.replace("http:", "https:")
        with pytest.raises(httpx.ConnectError) as caught:
            await answer_of(clients, provider(url, ca_bundle=certificates.bundle))

        assert isinstance(caught.value.__cause__, ssl.SSLError)
        await clients.close()


# --- contexts --------------------------------------------------------------------------------------------------------


def test_equal_settings_share_a_context(certificates: Any) -> None:
    bundle = certificates.bundle
    contexts = [
        tls_context(tls_of(provider("https://a.test", ca_bundle=bundle), {})),
        tls_context(tls_of(provider("https://b.test", ca_bundle=bundle), {"SSL_CERT_FILE": "/elsewhere"})),
        tls_context(tls_of(provider("https://a.test"), {"SSL_CERT_FILE": bundle})),
    ]

    assert contexts[0] is contexts[1]
    assert contexts[0] is not contexts[2]


async def test_http_makes_no_context(http: Any) -> None:
    async with http.answering(http.sized()) as server:
        made = tls_context.cache_info().currsize
        clients = Clients(environment={"SSL_CERT_FILE": "/none/that/exists.pem"})

        assert await answer_of(clients, provider(server.url)) == b"ok"
        assert tls_context.cache_info().currsize == made
        await clients.close()


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"ca_bundle": "{missing}"}, "providers.sim.ca_bundle"),
        ({"ca_bundle": "{garbage}"}, "providers.sim.ca_bundle"),
        ({"client_cert": "{missing}"}, "providers.sim.client_cert"),
        ({"client_cert": "{garbage}"}, "providers.sim.client_cert"),
        ({"client_cert": "{cert}", "client_key": "{missing}"}, "providers.sim.client_key"),
        ({"client_cert": "{cert}", "client_key": "{garbage}"}, "providers.sim.client_key"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_setting_when_the_client_is_made(
    settings: dict[str, str], key: str, certificates: Any, tmp_path: Path
) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("not a certificate")
    paths = {"missing": str(tmp_path / "missing.pem"), "garbage": str(garbage), "cert": certificates.client()[0]}
    settings = {name: text.format(**paths) for name, text in settings.items()}

    with pytest.raises(ConnectionSettingRefused) as caught:
        Clients(environment={}).for_provider(provider("https://api.example.com", **settings))

    assert caught.value.key == key
    assert caught.value.value == settings[key.rpartition(".")[2]]
    assert caught.value.value in str(caught.value)


def test_a_bad_file_of_the_environment_is_named_with_its_variable(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")

    with pytest.raises(ConnectionSettingRefused, match=r"SSL_CERT_FILE: .*missing\.pem: No such file"):
        Clients(environment={"SSL_CERT_FILE": missing}).for_provider(provider("https://api.example.com"))
