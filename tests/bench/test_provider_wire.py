"""The simulated provider's HTTP, byte by byte, on raw sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Coroutine, Iterator
from pathlib import Path

import httpx
import pytest

from covey.bench.provider_http import MAX_AHEAD, Connection, Request
from covey.bench.provider_options import ProviderOptions
from covey.bench.provider_process import ProviderProcess

SCRIPT = """\
rules:
  - goal: tear
    turns:
      - say: This text never comes whole.
        chunks: 7
        cut_after_chunks: 3
  - goal: vanish
    turns: [{say: x, cut_after_chunks: 0}]
  - goal: refuse twice
    turns:
      - refuse: {code: 1308, status: 429, message: "your limit will reset", headers: {Retry-After: 30}, times: 2}
        say: now
  - goal: unreported
    turns: [{say: x, usage: none, finish_reason: length}]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProviderProcess]:
    script = tmp_path_factory.mktemp("script") / "script.yaml"
    script.write_text(SCRIPT, encoding="utf-8")
    with ProviderProcess(ProviderOptions(think_s=0, chunk_pace_s=0, script=str(script))) as running:
        yield running


@pytest.fixture
def provider(server: ProviderProcess) -> ProviderProcess:
    server.reset()
    return server


@pytest.fixture
def client(provider: ProviderProcess) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", provider.port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def request(prompt: str, *, stream: bool = True, version: str = "1.1") -> bytes:
    options = {"stream": stream, "stream_options": {"include_usage": True}}
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": prompt}], **options}).encode()
    head = f"POST /v1/chat/completions HTTP/{version}\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def read_until(client: socket.socket, end: bytes) -> bytes:
    got = b""
    while end not in got:
        piece = client.recv(65536)
        assert piece, f"closed after {got!r}"
        got += piece
    return got


def read_all(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(65536), b""))


def test_a_request_that_arrives_byte_by_byte_is_one_call(provider: ProviderProcess, client: socket.socket) -> None:
    for byte in request("say: x"):
        client.sendall(bytes([byte]))

    assert b"[DONE]" in read_until(client, b"\r\n0\r\n\r\n")
    assert provider.stats().calls == 1


def test_one_connection_carries_many_calls_and_errors_between_them(
    provider: ProviderProcess, client: socket.socket
) -> None:
    for _ in range(3):
        client.sendall(request("say: x"))
        read_until(client, b"\r\n0\r\n\r\n")
        client.sendall(b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_until(client, b"}}").startswith(b"HTTP/1.1 404")

    assert provider.stats().completed == 3


def test_requests_sent_ahead_are_answered_one_after_the_other(provider: ProviderProcess, client: socket.socket) -> None:
    client.sendall(request("say: first", stream=False) + request("say: second", stream=False))

    got = read_until(client, b"second")
    assert got.index(b"first") < got.index(b"second")
    assert provider.stats().peak_in_flight == 1


def test_the_end_of_a_stream_leaves_in_one_piece_with_its_last_words(
    provider: ProviderProcess, client: socket.socket
) -> None:
    client.sendall(request("say: abcdefgh"))
    read_until(client, b'"gh"')

    # Whoever reads [DONE] and frees a slot must find the call ended: nothing may come after it.
    assert provider.stats().in_flight == 0


def test_a_cut_stream_ends_without_its_last_chunk_and_counts_as_aborted(
    provider: ProviderProcess, client: socket.socket
) -> None:
    client.sendall(request("tear"))

    got = read_all(client)
    assert got.count(b'"content"') == 1 + 3
    assert b'finish_reason":"' not in got
    assert not got.endswith(b"0\r\n\r\n")
    assert (provider.stats().aborted, provider.stats().in_flight) == (1, 0)
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.post(f"{provider.base_url}/chat/completions", content=request("tear").split(b"\r\n\r\n")[1])


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "one body"])
def test_a_call_cut_after_no_chunk_is_closed_without_a_byte(
    provider: ProviderProcess, client: socket.socket, stream: bool
) -> None:
    client.sendall(request("vanish", stream=stream))

    assert read_all(client) == b""
    assert provider.stats().aborted == 1


def test_a_cut_body_is_shorter_than_it_says(client: socket.socket) -> None:
    client.sendall(request("tear", stream=False))

    head, _, body = read_all(client).partition(b"\r\n\r\n")
    assert f"content-length: {len(body) + 1}".encode() in head


def test_a_scripted_refusal_holds_for_its_number_of_calls_and_takes_no_slot(provider: ProviderProcess) -> None:
    with httpx.Client(base_url=provider.base_url, trust_env=False) as http:
        answers = [
            http.post("/chat/completions", content=request("refuse twice", stream=False).split(b"\r\n\r\n")[1])
            for _ in range(3)
        ]

    assert [answer.status_code for answer in answers] == [429, 429, 200]
    assert answers[0].json() == {"error": {"code": "1308", "message": "your limit will reset"}}
    assert answers[0].headers["retry-after"] == "30"
    assert answers[2].json()["choices"][0]["message"]["content"] == "now"
    assert (provider.stats().refused, provider.stats().calls) == ({"1308": 2}, 1)
    assert [call.code for call in provider.calls()] == ["1308", "1308", None]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "one body"])
def test_a_script_can_leave_the_usage_out_and_name_another_finish_reason(
    provider: ProviderProcess, client: socket.socket, stream: bool
) -> None:
    client.sendall(request("unreported", stream=stream))

    got = read_until(client, b'"finish_reason":"length"')
    assert b"usage" not in got
    assert (provider.stats().completed, provider.stats().unreported) == (1, 1)


def test_an_old_client_gets_its_stream_up_to_the_close(client: socket.socket) -> None:
    client.sendall(request("say: x", version="1.0"))

    assert read_all(client).endswith(b"data: [DONE]\n\n")


def test_a_client_that_waits_for_leave_to_send_its_body_gets_it(client: socket.socket) -> None:
    head, _, body = request("say: x").partition(b"\r\n\r\n")
    client.sendall(head + b"\r\nExpect: 100-continue\r\n\r\n")
    assert read_until(client, b"\r\n\r\n").startswith(b"HTTP/1.1 100")

    client.sendall(body)
    assert b"[DONE]" in read_until(client, b"\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(b"hello\r\n\r\n", b"400", id="no HTTP"),
        pytest.param(b"GET / HTTP/1.1\r\nX: " + b"y" * 200_000, b"431", id="endless header"),
        pytest.param(b"POST /reset HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", b"400", id="odd length"),
    ],
)
def test_what_is_no_request_is_answered_once_and_closed(client: socket.socket, sent: bytes, status: bytes) -> None:
    client.sendall(sent)

    assert client.recv(4096).startswith(b"HTTP/1.1 " + status)


def test_a_client_that_sends_without_end_while_it_waits_is_cut_off(tmp_path: Path) -> None:
    with (
        ProviderProcess(ProviderOptions(think_s=60)) as provider,
        socket.create_connection(("127.0.0.1", provider.port), timeout=10) as client,
    ):
        client.sendall(request("x"))
        with pytest.raises(OSError, match=r"reset|pipe"):
            client.sendall(b"x" * (100 * MAX_AHEAD))
        assert provider.stats().in_flight == 0


def test_an_answer_is_not_drained_while_a_few_bytes_of_it_wait_in_the_process() -> None:
    async def scenario() -> list[str]:
        loop, story = asyncio.get_running_loop(), []
        ended = asyncio.Event()

        async def answer(client: Connection) -> None:
            client.begin(200, {"content-length": "40000"})
            client.finish(b"x" * 40_000)
            await client.drained()
            story.append("drained")
            ended.set()

        def handler(_: Request, client: Connection) -> Coroutine[None, None, None]:
            return answer(client)

        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        theirs.setblocking(False)
        await loop.connect_accepted_socket(lambda: Connection(handler, set()), ours)
        await loop.sock_sendall(theirs, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        left = 40_000
        while left > 0:
            piece = await loop.sock_recv(theirs, 1000)
            story.append("read")
            left -= piece.count(b"x")
        await asyncio.wait_for(ended.wait(), 5)
        theirs.close()
        return story

    story = asyncio.run(scenario())
    # The kernel holds a few thousand bytes of forty: most of them were read before the end had left the process.
    assert story.index("drained") > 20
