"""Requests that are refused until something in them is changed, and answers that say nothing: over real HTTP."""

from __future__ import annotations

import socket
import time
from typing import Any

import httpx
import msgspec
import pytest

from covey.bench.provider_knobs import Knobs, knobs_of
from covey.bench.provider_moods import Moods
from covey.bench.provider_options import ProviderOptions
from covey.bench.provider_process import ProviderProcess
from covey.bench.script_file import load_script, scenario_path

BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [{"role": "user", "content": "say: yes"}]},
    "messages": {"messages": [{"role": "user", "content": "say: yes"}], "max_tokens": 100},
    "responses": {"input": "say: yes"},
}
PATHS = pytest.mark.parametrize("path", list(BODIES))


def post(http: httpx.Client, path: str = "chat/completions", *, key: str = "k", **more: Any) -> httpx.Response:
    body = {"model": "m", **BODIES[path], **more}
    return http.post(path, json=body, headers={"authorization": f"Bearer {key}"})


@PATHS
def test_one_key_is_told_401_and_another_is_taken(path: str, http: httpx.Client, provider: ProviderProcess) -> None:
    provider.set_moods(load_script(scenario_path("keys-401")).moods)

    old, new = post(http, path, key="old-1"), post(http, path, key="new-1")

    assert (old.status_code, new.status_code) == (401, 200)
    assert old.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize(
    "path", ["/v1/models", "/api/anthropic/v1/models", "/api/coding/paas/v4/models", "/api/monitor/usage/quota/limit"]
)
def test_a_refused_key_is_shown_no_list_and_no_quota(path: str, http: httpx.Client, provider: ProviderProcess) -> None:
    provider.set_moods(Moods(refused_keys={"^old-": 1002}))

    old, new = (http.get(provider.root_url + path, headers={"authorization": key}) for key in ("old-1", "new-1"))

    assert (old.status_code, new.status_code) == (401, 200)
    assert old.json()["error"]["code"] == "1002"


@pytest.mark.parametrize(
    ("tokens", "status"),
    [
        pytest.param({"max_tokens": 2001}, 402, id="one too many"),
        pytest.param({"max_tokens": 2000}, 200, id="just enough"),
        pytest.param({"max_completion_tokens": 1936}, 200, id="less, by its newer name"),
        pytest.param({}, 402, id="as many as the model can"),
    ],
)
def test_what_the_account_cannot_pay_is_told_402_with_the_number(
    http: httpx.Client, provider: ProviderProcess, tokens: dict[str, Any], status: int
) -> None:
    provider.set_moods(load_script(scenario_path("afford-402")).moods)

    answer = post(http, **tokens)

    assert answer.status_code == status
    assert status == 200 or "but can only afford 2000." in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "off"),
    [
        ("chat/completions", {"reasoning": {"enabled": False}}),
        ("chat/completions", {"reasoning_effort": "none"}),
        ("chat/completions", {"thinking": {"type": "disabled"}}),
        ("messages", {"thinking": {"type": "disabled"}}),
        ("responses", {"reasoning": {"effort": "none"}}),
    ],
)
def test_a_model_that_must_think_refuses_to_be_told_not_to(
    http: httpx.Client, provider: ProviderProcess, path: str, off: dict[str, Any]
) -> None:
    provider.set_moods(load_script(scenario_path("reasoning-mandatory")).moods)

    refused, taken = post(http, path, **off), post(http, path)

    assert (refused.status_code, taken.status_code) == (400, 200)
    assert "Reasoning is mandatory" in refused.json()["error"]["message"]


def test_a_field_that_is_not_known_is_named(http: httpx.Client, provider: ProviderProcess) -> None:
    provider.set_moods(Moods(refused_fields=("prompt_cache_key",)))

    answer = post(http, prompt_cache_key="x")

    assert (answer.status_code, post(http).status_code) == (400, 200)
    assert "'prompt_cache_key'" in answer.json()["error"]["message"]


def test_an_answer_longer_than_the_model_can_is_refused_with_the_bound(
    http: httpx.Client, provider: ProviderProcess
) -> None:
    provider.set_moods(Moods(longest_answer=4000))

    answer = post(http, max_tokens=9000)

    assert (answer.status_code, post(http, max_tokens=4000).status_code) == (400, 200)
    assert "supports at most 4000" in answer.json()["error"]["message"]


def test_a_prompt_longer_than_the_window_is_told_1261(http: httpx.Client, provider: ProviderProcess) -> None:
    provider.set_moods(Moods(context_window=6))

    answer = post(http, messages=[{"role": "user", "content": "x" * 9}])

    assert (answer.status_code, answer.json()["error"]["code"], post(http).status_code) == (400, "1261", 200)


@PATHS
def test_keep_alives_come_for_as_long_as_it_thinks_and_then_the_answer(path: str, tmp_path: Any) -> None:
    script = tmp_path / "slow.yaml"
    script.write_text("moods: {keep_alive_ms: 20}\nrules: [{think_s: 0.2, turns: 1}]\n")
    with (
        ProviderProcess(ProviderOptions(script=str(script), chunks=1)) as slow,
        httpx.Client(base_url=slow.base_url, trust_env=False, timeout=5) as client,
    ):
        text = post(client, path, stream=True).text

    alive = "event: ping\n" if path == "messages" else ": keep-alive\n"
    before, _, after = text.rpartition(alive)
    assert before.count(alive) >= 2
    assert "yes" in after


@PATHS
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "one body"])
def test_keep_alives_alone_never_end_and_the_call_counts_until_its_client_goes(
    path: str, stream: bool, http: httpx.Client, provider: ProviderProcess
) -> None:
    provider.set_moods(msgspec.convert({"bodies": {"dies": "keep_alive", "after_chunks": 0}}, Moods))

    with http.stream("POST", path, json={"model": "m", "stream": stream, **BODIES[path]}) as answer:
        seen, pieces = b"", answer.iter_raw()
        while len(seen) < (100 if stream else 3):
            seen += next(pieces)
        in_flight = provider.stats().in_flight

    assert (answer.status_code, in_flight) == (200, 1)
    assert b"yes" not in seen
    _until(lambda: provider.stats().aborted == 1)


def test_half_of_a_refusal_may_be_all_that_ever_comes(http: httpx.Client, provider: ProviderProcess) -> None:
    provider.set_moods(msgspec.convert({"limit": 0, "refusal_bodies": "stall"}, Moods))

    with (
        http.stream("POST", "responses", json={"model": "m", **BODIES["responses"]}, timeout=0.3) as answer,
        pytest.raises(httpx.ReadTimeout),
    ):
        answer.read()

    assert answer.status_code == 429


def test_a_refusal_may_have_no_end(provider: ProviderProcess) -> None:
    provider.set_moods(msgspec.convert({"limit": 0, "refusal_bodies": "endless"}, Moods))
    body = b'{"model": "m", "input": "x"}'
    head = b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)

    with socket.create_connection(("127.0.0.1", provider.port), timeout=5) as client:
        client.sendall(head + body)
        seen = 0
        while seen < 2_000_000:
            seen += len(client.recv(65_536))

    assert provider.stats().refused == {"1302": 1}


def test_models_are_listed_with_their_windows(http: httpx.Client, provider: ProviderProcess) -> None:
    [simulated] = http.get("models").json()["data"]
    provider.set_moods(msgspec.convert({"models": {"glm-5": {"context_length": 200_000}}}, Moods))
    [named] = http.get(f"{provider.root_url}/api/anthropic/v1/models").json()["data"]

    assert (simulated["id"], simulated["context_length"]) == ("simulated", 131_072)
    assert simulated["top_provider"]["max_completion_tokens"] == 32_768
    assert (named["id"], named["context_length"]) == ("glm-5", 200_000)
    assert named["top_provider"]["max_completion_tokens"] is None


@pytest.mark.parametrize(
    ("body", "knobs"),
    [
        (b"{}", Knobs()),
        (b'{"max_tokens":"many"}', Knobs(fields=frozenset({"max_tokens"}))),
        (b'{"max_tokens":true}', Knobs(fields=frozenset({"max_tokens"}))),
        (b'{"max_output_tokens":5}', Knobs(max_tokens=5, fields=frozenset({"max_output_tokens"}))),
        (b'{"thinking":"disabled"}', Knobs(fields=frozenset({"thinking"}))),
        (b'{"reasoning":{"effort":"low"}}', Knobs(fields=frozenset({"reasoning"}))),
        (b'{"enable_thinking":false}', Knobs(is_without_reasoning=True, fields=frozenset({"enable_thinking"}))),
    ],
)
def test_knobs_are_read_by_every_name_and_nonsense_is_none(body: bytes, knobs: Knobs) -> None:
    assert knobs_of(body) == knobs


def _until(holds: Any, *, within_s: float = 5.0) -> None:
    ends = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < ends, f"not within {within_s} s"
        time.sleep(0.005)
