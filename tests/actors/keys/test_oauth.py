"""What answers of token endpoints mean, and that nothing of a token gets into a text."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress

import msgspec
import pytest

from covey.actors.keys.oauth import (
    FINAL_CODES,
    Refreshed,
    RefreshFailed,
    RefreshRefused,
    Rotated,
    check_token_url,
    read_refresh,
    refresh,
)
from covey.protocol.errors import UsageError
from covey.storage.credentials import OAuthCredential

LOGIN = OAuthCredential(
    label="work",
    account="a",
    refresh_token="refresh-secret",
    token_url="https://login.example.org/token",
    client_id="covey",
    added_ms=0,
)


def answer(status: int, body: object) -> Refreshed:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_refresh(status, content, host="login.example.org")


@pytest.mark.parametrize(
    ("body", "found"),
    [
        pytest.param(
            {"access_token": "a1", "refresh_token": "r1", "expires_in": 3600, "scope": "x"},
            Rotated("a1", "r1", 3600.0, "x"),
            id="a pair",
        ),
        pytest.param({"access_token": "a1"}, Rotated("a1", None, None, None), id="the refresh token stays"),
        pytest.param({"access_token": "a1", "expires_in": "60"}, Rotated("a1", None, 60.0, None), id="seconds as text"),
        pytest.param(
            {"access_token": "a1", "expires_in": -5}, Rotated("a1", None, None, None), id="an end in the past"
        ),
        pytest.param({"access_token": "a1", "expires_in": "soon"}, Rotated("a1", None, None, None), id="no number"),
        pytest.param({"access_token": "a1", "more": [1]}, Rotated("a1", None, None, None), id="fields nobody knows"),
        pytest.param(
            {"access_token": "a1", "refresh_token": "r1", "expires_in": [1], "scope": ["x"]},
            Rotated("a1", "r1", None, None),
            id="odd fields beside a good pair",
        ),
        pytest.param({"access_token": "a1", "refresh_token": "r 1"}, Rotated("a1", "r 1", None, None), id="a space"),
    ],
)
def test_new_tokens_are_read(body: object, found: Rotated) -> None:
    assert answer(200, body) == answer(201, body) == found


@pytest.mark.parametrize("code", sorted(FINAL_CODES))
def test_a_final_code_ends_the_login(code: str) -> None:
    assert answer(400, {"error": code}) == RefreshRefused(f"login.example.org says {code}")
    assert isinstance(answer(401, {"error": {"type": "error", "code": code}}), RefreshRefused)
    assert isinstance(answer(200, {"error": code}), RefreshRefused)


@pytest.mark.parametrize(
    ("status", "body", "is_open"),
    [
        pytest.param(500, {"error": "server_error"}, True, id="it broke"),
        pytest.param(503, b"<html>busy</html>", True, id="a gateway's page"),
        pytest.param(503, {"error": "access_denied"}, True, id="a final word of something broken"),
        pytest.param(429, {"error": "slow_down"}, False, id="too many"),
        pytest.param(401, b"", False, id="refused without a word"),
        pytest.param(302, b"", False, id="elsewhere"),
        pytest.param(200, b"<html>login</html>", True, id="a page"),
        pytest.param(200, {"access_token": ""}, True, id="an empty token"),
        pytest.param(200, {"access_token": "a\r\nb"}, True, id="a token that would split a header"),
        pytest.param(200, [], True, id="no object"),
        pytest.param(200, b"[" * 50_000, True, id="nesting without end"),
    ],
)
def test_anything_else_may_be_tried_again(status: int, body: object, is_open: bool) -> None:
    found = answer(status, body)

    assert isinstance(found, RefreshFailed)
    assert found.is_open is is_open


def test_an_answer_that_repeats_the_token_is_not_quoted() -> None:
    said = {"error": "invalid_grant", "error_description": "refresh-secret is spent"}

    assert "refresh-secret" not in repr(answer(400, said))
    assert "refresh-secret" not in repr(LOGIN)
    assert "a1-secret" not in repr(answer(200, {"access_token": "a1-secret", "refresh_token": "r1-secret"}))


@pytest.mark.parametrize(
    ("url", "is_good"),
    [
        ("https://login.example.org/token", True),
        ("http://127.0.0.1:8000/token", True),
        ("http://localhost/token", True),
        ("http://[::1]:80/token", True),
        ("http://login.example.org/token", False),
        ("http://127.0.0.1.example.org/token", False),
        ("ftp://localhost/token", False),
        ("https://user:word@login.example.org/token", False),
        ("login.example.org/token", False),
        ("https://", False),
        ("https://[", False),
    ],
)
def test_tokens_go_over_tls_or_stay_on_this_machine(url: str, is_good: bool) -> None:
    if is_good:
        check_token_url(url)
        return
    with pytest.raises(UsageError):
        check_token_url(url)


def test_nobody_at_the_token_url_is_a_failure_that_used_nothing_up() -> None:
    login = msgspec.structs.replace(LOGIN, token_url="http://127.0.0.1:9/token")

    found = asyncio.run(refresh(login, deadline_s=5))

    assert isinstance(found, RefreshFailed)
    assert not found.is_open


def test_an_endpoint_that_is_silent_costs_the_deadline_and_no_more() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        login = msgspec.structs.replace(LOGIN, token_url=f"http://127.0.0.1:{silent.getsockname()[1]}/token")
        found = asyncio.run(refresh(login, deadline_s=0.1))

    assert isinstance(found, RefreshFailed)
    assert found.is_open
    assert "0.1 s" in found.reason


HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("begins", "goes_on", "says"),
    [
        pytest.param(HEAD, b"4000\r\n" + b" " * 0x4000 + b"\r\n", "without an access token", id="without end"),
        pytest.param(HEAD, b"1\r\n \r\n", "within 0.4 s", id="by drops"),
        pytest.param(
            b"HTTP/1.1 307 Elsewhere\r\nlocation: /token\r\ncontent-length: 0\r\n\r\n", b"", "HTTP 307", id="elsewhere"
        ),
    ],
)
def test_an_answer_costs_the_deadline_and_64_kib_and_no_second_request(
    begins: bytes, goes_on: bytes, says: str
) -> None:
    asked: list[bytes] = []
    ended = asyncio.Event()

    async def answer_oddly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(begins)
        with suppress(ConnectionError):
            while goes_on:
                writer.write(goes_on)
                await writer.drain()
                await asyncio.sleep(0.01)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        ended.set()

    async def scene() -> Refreshed:
        async with await asyncio.start_server(answer_oddly, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            login = msgspec.structs.replace(LOGIN, token_url=f"http://127.0.0.1:{port}/token")
            found = await refresh(login, deadline_s=0.4)
            await asyncio.wait_for(ended.wait(), 5)
            return found

    found = asyncio.run(scene())

    assert isinstance(found, RefreshFailed)
    assert says in found.reason
    assert len(asked) == 1
