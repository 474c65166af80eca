"""The ceiling of the simulated provider, seen from both sides of a real connection."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from covey.bench.provider_options import ProviderOptions
from covey.bench.provider_process import ProviderProcess

LIMIT = 3


@pytest.fixture(scope="module")
def server() -> Iterator[ProviderProcess]:
    with ProviderProcess(ProviderOptions(limit=LIMIT, think_s=0.02, chunk_pace_s=0.005)) as running:
        yield running


@pytest.fixture
def provider(server: ProviderProcess) -> ProviderProcess:
    eventually(lambda: server.stats().in_flight == 0)
    server.reset()
    return server


def eventually(holds: Callable[[], bool], *, within_s: float = 5.0) -> None:
    ends = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < ends, f"not within {within_s} s"
        time.sleep(0.002)


def ask(prompt: str, **more: object) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": prompt}], **more}


def raw_request(prompt: str, **more: object) -> bytes:
    body = json.dumps(ask(prompt, **more)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def overlap(spans: list[tuple[float, float]]) -> int:
    steps = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    most = now = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


def test_many_clients_at_once_never_get_more_than_the_ceiling_and_every_refusal_is_counted(
    provider: ProviderProcess,
) -> None:
    spans: list[tuple[float, float]] = []
    codes: list[str] = []
    together = threading.Barrier(10)

    def client() -> None:
        with httpx.Client(base_url=provider.base_url, trust_env=False) as http:
            together.wait()
            while len(spans) < 40:
                with http.stream("POST", "/chat/completions", json=ask("say: x", stream=True)) as answer:
                    began = time.monotonic()
                    text = answer.read()
                if answer.status_code == 200:
                    spans.append((began, time.monotonic()))
                else:
                    codes.append(json.loads(text)["error"]["code"])

    with ThreadPoolExecutor(10) as pool:
        for done in [pool.submit(client) for _ in range(10)]:
            done.result(timeout=20)

    stats = provider.stats()
    assert stats.peak_in_flight == LIMIT
    assert 1 <= overlap(spans) <= LIMIT
    assert set(codes) == {"1302"}
    assert stats.refused == {"1302": len(codes)}
    assert (stats.calls, stats.completed, stats.aborted, stats.in_flight) == (len(spans), len(spans), 0, 0)


def test_calls_that_follow_each_other_without_a_pause_are_never_refused(provider: ProviderProcess) -> None:
    def client() -> None:
        with httpx.Client(base_url=provider.base_url, trust_env=False) as http:
            for _ in range(20):
                http.post("/chat/completions", json=ask("say: x", stream=True)).raise_for_status()

    with ThreadPoolExecutor(LIMIT) as pool:
        for done in [pool.submit(client) for _ in range(LIMIT)]:
            done.result(timeout=20)

    assert provider.stats().refused == {}
    assert provider.stats().calls == 20 * LIMIT


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "one body"])
def test_a_client_that_leaves_before_the_first_byte_ends_its_call_at_once(stream: bool) -> None:
    with ProviderProcess(ProviderOptions(limit=1, think_s=60)) as provider:
        with socket.create_connection(("127.0.0.1", provider.port)) as client:
            client.sendall(raw_request("x", stream=stream))
            eventually(lambda: provider.stats().in_flight == 1)

        eventually(lambda: provider.stats().in_flight == 0, within_s=1.0)
        (call,) = provider.calls()
        assert (provider.stats().aborted, call.status, call.usage_sent) == (1, "aborted", False)


def test_a_client_that_leaves_in_the_middle_of_a_stream_ends_its_call_at_once() -> None:
    with ProviderProcess(ProviderOptions(limit=1, think_s=0, chunk_pace_s=60)) as provider:
        with socket.create_connection(("127.0.0.1", provider.port)) as client:
            client.sendall(raw_request("say: a long story", stream=True))
            assert client.recv(100).startswith(b"HTTP/1.1 200")
            assert provider.stats().in_flight == 1

        eventually(lambda: provider.stats().aborted == 1, within_s=1.0)
        assert provider.stats().in_flight == 0


@pytest.mark.kill
def test_a_client_that_is_killed_ends_its_call_at_once() -> None:
    with ProviderProcess(ProviderOptions(limit=1, think_s=60)) as provider:
        code = (
            "import socket, sys\n"
            "s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
            "s.sendall(bytes.fromhex(sys.argv[2]))\n"
            "s.recv(1)\n"
        )
        argv = [sys.executable, "-P", "-c", code, str(provider.port), raw_request("x", stream=True).hex()]
        with subprocess.Popen(argv) as client:
            eventually(lambda: provider.stats().in_flight == 1)
            client.kill()

        eventually(lambda: provider.stats().aborted == 1, within_s=1.0)


def test_a_call_stays_in_flight_until_its_reader_took_the_last_byte() -> None:
    story = "say: " + "x" * 24_000_000
    with ProviderProcess(ProviderOptions(limit=1, think_s=0, chunks=1)) as provider:
        with socket.create_connection(("127.0.0.1", provider.port)) as client:
            client.sendall(raw_request(story, stream=True))
            taken = len(client.recv(1))

            # The head has come, so everything was written; more than the kernel holds waits in the provider.
            assert provider.stats().in_flight == 1
            while not client.recv(2**20).endswith(b"[DONE]\n\n\r\n0\r\n\r\n"):
                taken += 1

        assert taken > 1
        eventually(lambda: provider.stats().completed == 1)
        assert provider.stats().in_flight == 0


def test_a_stalled_reader_that_leaves_is_an_aborted_call() -> None:
    with ProviderProcess(ProviderOptions(limit=1, think_s=0, chunks=1)) as provider:
        with socket.create_connection(("127.0.0.1", provider.port)) as client:
            client.sendall(raw_request("say: " + "x" * 24_000_000, stream=True))
            client.recv(1)

        eventually(lambda: provider.stats().aborted == 1, within_s=1.0)


def test_a_client_that_closes_its_sending_side_is_gone_although_bytes_wait_for_it() -> None:
    with (
        ProviderProcess(ProviderOptions(limit=1, think_s=0, chunks=1)) as provider,
        socket.create_connection(("127.0.0.1", provider.port)) as client,
    ):
        client.sendall(raw_request("say: " + "x" * 24_000_000, stream=True))
        client.recv(1)
        client.shutdown(socket.SHUT_WR)

        eventually(lambda: provider.stats().aborted == 1, within_s=1.0)


@pytest.mark.parametrize(
    ("options", "code", "retry_after"),
    [
        pytest.param({}, "1302", None, id="1302 without a header by default"),
        pytest.param({"over_code": "1305", "retry_after_s": 7}, "1305", "7", id="1305 with Retry-After by option"),
    ],
)
def test_a_call_over_the_ceiling_gets_the_envelope_of_zai(
    options: dict[str, object], code: str, retry_after: str | None
) -> None:
    with (
        ProviderProcess(ProviderOptions(limit=1, think_s=60, **options)) as provider,  # type: ignore[arg-type]
        socket.create_connection(("127.0.0.1", provider.port)) as client,
    ):
        client.sendall(raw_request("x"))
        eventually(lambda: provider.stats().in_flight == 1)
        answer = httpx.post(f"{provider.base_url}/chat/completions", json=ask("y"), trust_env=False)

        assert answer.status_code == 429
        assert answer.json()["error"].keys() == {"code", "message"}
        assert answer.json()["error"]["code"] == code
        assert answer.headers.get("retry-after") == retry_after
        assert [call.status for call in provider.calls()] == ["in_flight", "refused"]


def test_a_reset_forgets_ended_calls_and_keeps_the_ones_in_flight() -> None:
    with (
        ProviderProcess(ProviderOptions(limit=2, think_s=60)) as provider,
        socket.create_connection(("127.0.0.1", provider.port)) as stays,
        socket.create_connection(("127.0.0.1", provider.port)) as leaves,
    ):
        stays.sendall(raw_request("x"))
        leaves.sendall(raw_request("x"))
        eventually(lambda: provider.stats().in_flight == 2)
        leaves.close()
        eventually(lambda: provider.stats().aborted == 1)
        stats = provider.reset()

        assert (stats.calls, stats.in_flight, stats.peak_in_flight, stats.aborted) == (1, 1, 1, 0)
        assert [call.status for call in provider.calls()] == ["in_flight"]
