"""Anthropic Messages from the simulated provider: streams, bodies, tool turns, tokens and errors, over real HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from covey.bench.provider_moods import Moods
from covey.bench.provider_process import ProviderProcess

TOOLS = [{"name": name, "input_schema": {"type": "object"}} for name in ("read_file", "write_file", "list_files")]


@pytest.fixture
def http(provider: ProviderProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{provider.root_url}/api/anthropic", trust_env=False) as client:
        yield client


def ask(*messages: Any, **more: Any) -> dict[str, Any]:
    said = [{"role": "user", "content": text} if isinstance(text, str) else text for text in messages]
    return {"model": "glm-5", "max_tokens": 100, "messages": said, **more}


def send(http: httpx.Client, *messages: Any, **more: Any) -> Any:
    return http.post("/v1/messages", json=ask(*messages, **more)).raise_for_status().json()


def events(http: httpx.Client, *messages: Any, **more: Any) -> list[Any]:
    with http.stream("POST", "/v1/messages", json=ask(*messages, stream=True, **more)) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        found = re.findall(r"event: (\w+)\ndata: (.*)\n\n", answer.read().decode())
    decoded = [json.loads(data) for _, data in found]
    assert [event["type"] for event in decoded] == [name for name, _ in found]
    return decoded


def test_a_stream_has_a_head_then_a_ping_then_blocks_then_the_reason_and_the_end(http: httpx.Client) -> None:
    head, ping, start, *deltas, stop, reason, end = events(http, "say: twelve chars")

    assert (head["message"]["role"], head["message"]["content"], head["message"]["stop_reason"]) == (
        "assistant",
        [],
        None,
    )
    assert (ping, end) == ({"type": "ping"}, {"type": "message_stop"})
    assert (start["index"], start["content_block"]) == (0, {"type": "text", "text": ""})
    assert "".join(delta["delta"]["text"] for delta in deltas) == "twelve chars"
    assert 1 < len(deltas) <= 5
    assert stop == {"type": "content_block_stop", "index": 0}
    assert reason["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert (head["message"]["usage"]["input_tokens"], reason["usage"]["output_tokens"]) == (5 + 4, 3)


def test_tool_calls_come_as_blocks_with_their_arguments_in_pieces(http: httpx.Client) -> None:
    prompt = 'use: list_files {"path": "some/where"} && read_file {"path": "a"}'
    found = events(http, prompt, tools=TOOLS)

    blocks = [event["content_block"] for event in found if event["type"] == "content_block_start"]
    assert [(block["name"], block["input"]) for block in blocks] == [("list_files", {}), ("read_file", {})]
    deltas = [event for event in found if event["type"] == "content_block_delta"]
    for index, arguments in enumerate(['{"path": "some/where"}', '{"path": "a"}']):
        pieces = [delta["delta"]["partial_json"] for delta in deltas if delta["index"] == index]
        assert "".join(pieces) == arguments
        assert len(pieces) >= 3
    assert found[-2]["delta"]["stop_reason"] == "tool_use"


def test_an_agent_goes_through_its_tool_turns_to_the_last_word(http: httpx.Client) -> None:
    messages: list[Any] = ['use: list_files {}\nuse: read_file {"path": "a"} && read_file {"path": "b"}\nsay: fine']
    names: list[list[str]] = []
    while True:
        answer = send(http, *messages, tools=TOOLS, system=[{"type": "text", "text": "be brief"}])
        calls = [block for block in answer["content"] if block["type"] == "tool_use"]
        if not calls:
            break
        names.append([call["name"] for call in calls])
        results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "r"} for call in calls]
        # A client's reminder beside the results opens no new round.
        reminder = {"type": "text", "text": "mind the gap"}
        messages += [
            {"role": "assistant", "content": answer["content"]},
            {"role": "user", "content": [*results, reminder]},
        ]

    assert names == [["list_files"], ["read_file", "read_file"]]
    assert (answer["content"], answer["stop_reason"]) == ([{"type": "text", "text": "fine"}], "end_turn")


def test_no_tool_is_called_that_may_not_be(http: httpx.Client) -> None:
    answer = send(http, "Count the files", tools=TOOLS, tool_choice={"type": "none"})

    assert [block["type"] for block in answer["content"]] == ["text"]


def test_a_prompt_costs_the_same_in_both_dialects(http: httpx.Client, provider: ProviderProcess) -> None:
    ours = send(http, "y" * 11, system="x" * 10)["usage"]
    chat = {"model": "m", "messages": [{"role": "system", "content": "x" * 10}, {"role": "user", "content": "y" * 11}]}
    theirs = httpx.post(f"{provider.base_url}/chat/completions", json=chat, trust_env=False).json()["usage"]

    assert ours["input_tokens"] == theirs["prompt_tokens"] == 6 + 2 * 4
    assert provider.stats().prompt_tokens == 2 * (6 + 2 * 4)


def test_buckets_of_a_cached_prompt_do_not_overlap(http: httpx.Client, provider: ProviderProcess) -> None:
    history = ["first", {"role": "assistant", "content": "hello"}, "second"]
    whole = send(http, *history)["usage"]["input_tokens"]
    provider.set_moods(Moods(prompt_cache=True))

    usage = send(http, *history)["usage"]
    read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
    assert (read, usage["input_tokens"] + read + written) == (2 + 4, whole)
    assert written > 0
    assert send(http, "first")["usage"]["cache_read_input_tokens"] == 0


TOOL_USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]}


def test_text_beside_tool_results_belongs_to_the_last_of_them(http: httpx.Client) -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "found it; "}]}
    answer = send(http, "go", TOOL_USE, {"role": "user", "content": [result, {"type": "text", "text": "mind the gap"}]})

    assert "The last tool said: found it; mind the gap" in answer["content"][0]["text"]


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        pytest.param(b"{", "1210", "JSON", id="cut JSON"),
        pytest.param(ask(), "1214", "must not be empty", id="no messages"),
        pytest.param({"model": "m", "messages": [{"role": "user", "content": "x"}]}, "1214", "max_tokens", id="no end"),
        pytest.param(ask({"role": "system", "content": "x"}), "1214", "role", id="odd role"),
        pytest.param(ask("x", TOOL_USE, "y"), "1214", "comes before the answers to t1", id="call without a result"),
        pytest.param(ask("x", tools=[{}]), "1214", "tools", id="odd tools"),
    ],
)
def test_a_request_that_cannot_be_meant_is_refused_in_the_words_of_the_dialect(
    http: httpx.Client, provider: ProviderProcess, body: bytes | dict[str, Any], code: str, says: str
) -> None:
    answer = http.post("/v1/messages", content=body if isinstance(body, bytes) else json.dumps(body).encode())

    told = answer.json()
    assert (answer.status_code, told["type"], told["error"]["type"]) == (400, "error", "invalid_request_error")
    assert told["error"]["code"] == code
    assert says in told["error"]["message"]
    assert provider.calls() == ()


def test_a_refusal_repeats_code_text_and_a_trace_that_begins_with_the_wall_time(
    http: httpx.Client, provider: ProviderProcess
) -> None:
    provider.set_moods(Moods(limit=0))
    answer = http.post("/v1/messages", json=ask("x"))

    told = answer.json()
    assert (answer.status_code, told["error"]["type"], told["error"]["code"]) == (429, "rate_limit_error", "1302")
    found = re.fullmatch(r"\[1302\]\[High concurrency .*\]\[(20\d{12}[0-9a-f]{18})\]", told["error"]["message"])
    assert found is not None
    assert found[1] == told["request_id"]


def test_both_spellings_of_the_key_and_both_dialects_are_one_account(
    http: httpx.Client, provider: ProviderProcess
) -> None:
    http.post("/v1/messages", json=ask("say: x"), headers={"x-api-key": "secret-1"})
    http.post("/v1/messages", json=ask("say: x"), headers={"Authorization": "Bearer secret-1"})
    chat = {"model": "m", "messages": [{"role": "user", "content": "say: x"}]}
    key = {"Authorization": "bearer secret-1"}
    httpx.post(f"{provider.base_url}/chat/completions", json=chat, headers=key, trust_env=False)

    (name,) = [name for name, tally in provider.accounts().accounts.items() if tally.requests]
    account = provider.accounts().accounts[name]
    assert (account.answered, {model: tally.answered for model, tally in account.models.items()}) == (
        3,
        {"glm-5": 2, "m": 1},
    )
    assert "secret" not in name
