"""What the simulated provider says: streams, bodies, tokens, tool turns and errors, over real HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from covey.bench.provider_options import ProviderOptions
from covey.bench.provider_process import ProviderProcess

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("read_file", "write_file", "list_files", "terminal", "delegate_task")
]
USAGE = {"include_usage": True}


@pytest.fixture(scope="module")
def provider() -> Iterator[ProviderProcess]:
    with ProviderProcess(ProviderOptions(limit=4, think_s=0, chunk_pace_s=0, chunks=5)) as running:
        yield running


@pytest.fixture
def http(provider: ProviderProcess) -> Iterator[httpx.Client]:
    provider.reset()
    with httpx.Client(base_url=provider.base_url, trust_env=False) as client:
        yield client


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def events(http: httpx.Client, **body: Any) -> list[str]:
    with http.stream("POST", "/chat/completions", json={"model": "m", "stream": True, **body}) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        return [line.removeprefix("data: ") for line in answer.iter_lines() if line]


def converse(http: httpx.Client, goal: str, *, most: int = 12) -> tuple[list[list[str]], str]:
    """Play an agent: every turn's tool names, and the final text."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "be brief"}, user(goal)]
    turns: list[list[str]] = []
    for _ in range(most):
        answer = http.post("/chat/completions", json={"model": "m", "messages": messages, "tools": TOOLS}).json()
        message = answer["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            return turns, message["content"]
        turns.append([call["function"]["name"] for call in message["tool_calls"]])
        for call in message["tool_calls"]:
            json.loads(call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"result {len(turns)}"})
    raise AssertionError(f"no end after {most} turns")


def test_a_stream_has_the_role_then_the_text_in_pieces_then_finish_usage_and_done(http: httpx.Client) -> None:
    *chunks, last = events(http, messages=[user("say: twelve chars")], stream_options=USAGE)

    assert last == "[DONE]"
    first, *pieces, finish, usage = [json.loads(chunk) for chunk in chunks]
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(piece["choices"][0]["delta"]["content"] for piece in pieces) == "twelve chars"
    assert 1 < len(pieces) <= 5
    assert finish["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "stop"}
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3
    assert {chunk["usage"] is None for chunk in (first, *pieces, finish)} == {True}
    assert {(chunk["id"], chunk["object"], chunk["model"]) for chunk in (first, *pieces, finish, usage)} == {
        (first["id"], "chat.completion.chunk", "m")
    }


def test_a_stream_that_did_not_ask_for_usage_gets_none_and_its_tokens_are_in_no_sum(
    http: httpx.Client, provider: ProviderProcess
) -> None:
    chunks = events(http, messages=[user("say: x")])

    assert all("usage" not in chunk for chunk in chunks)
    stats = provider.stats()
    assert (stats.completed, stats.unreported, stats.prompt_tokens, stats.completion_tokens) == (1, 1, 0, 0)


def test_token_sums_are_what_the_clients_were_told(http: httpx.Client, provider: ProviderProcess) -> None:
    told = [
        json.loads(events(http, messages=[user("héllo " * 40)], stream_options=USAGE, tools=TOOLS)[-2])["usage"],
        http.post("/chat/completions", json={"model": "m", "messages": [user("hi")]}).json()["usage"],
    ]

    stats = provider.stats()
    assert stats.prompt_tokens == sum(usage["prompt_tokens"] for usage in told)
    assert stats.completion_tokens == sum(usage["completion_tokens"] for usage in told)
    assert all(usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] for usage in told)
    assert [call.prompt_tokens for call in provider.calls()] == [usage["prompt_tokens"] for usage in told]


def test_tokens_of_a_prompt_are_four_characters_each_and_four_for_each_message(http: httpx.Client) -> None:
    body = {"model": "m", "messages": [{"role": "system", "content": "x" * 10}, user("y" * 11)]}

    assert http.post("/chat/completions", json=body).json()["usage"]["prompt_tokens"] == 6 + 2 * 4


def test_arguments_of_a_tool_call_come_in_several_deltas(http: httpx.Client) -> None:
    prompt = 'use: list_files {"path": "some/where"} && terminal {"command": "true && false"}'
    chunks = [json.loads(event) for event in events(http, messages=[user(prompt)], tools=TOOLS)[:-1]]

    deltas = [call for chunk in chunks for choice in chunk["choices"] for call in choice["delta"].get("tool_calls", ())]
    for index, (name, arguments) in enumerate(
        [("list_files", '{"path": "some/where"}'), ("terminal", '{"command": "true && false"}')]
    ):
        mine = [delta for delta in deltas if delta["index"] == index]
        assert (mine[0]["function"], mine[0]["type"]) == ({"arguments": "", "name": name}, "function")
        assert "".join(delta["function"]["arguments"] for delta in mine) == arguments
        assert len(mine) >= 3
        assert [delta.get("id") is not None for delta in mine] == [True] + [False] * (len(mine) - 1)
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_an_agent_takes_three_tool_turns_and_then_a_text_with_its_goal_and_last_result(http: httpx.Client) -> None:
    turns, text = converse(http, "Count the files here")

    assert [len(turn) for turn in turns] == [1, 1, 1]
    assert "delegate_task" not in {name for turn in turns for name in turn}
    assert "Count the files here" in text
    assert "result 3" in text


def test_a_prompt_steers_the_turns_and_the_last_word(http: httpx.Client) -> None:
    goal = (
        "Please:\n"
        'use: delegate_task {"tasks": [{"goal": "use: list_files {}\\nsay: child"}]}\n'
        '  use: read_file {"path": "a"} && read_file {"path": "b"}\n'
        "say: first line\n"
        "say: second line\n"
    )

    assert converse(http, goal) == ([["delegate_task"], ["read_file", "read_file"]], "first line\nsecond line")


def test_without_tools_a_steered_prompt_is_answered_with_its_text(http: httpx.Client) -> None:
    body = {"model": "m", "messages": [user('use: list_files {"path": "."}\nsay: fine')]}

    assert http.post("/chat/completions", json=body).json()["choices"][0]["message"]["content"] == "fine"


def test_calls_are_listed_with_who_made_them_page_by_page(http: httpx.Client, provider: ProviderProcess) -> None:
    headers = {"X-Client-Request-Id": "call_17", "User-Agent": "test/1"}
    http.post("/chat/completions", json={"model": "glm", "messages": [user("x")]}, headers=headers)
    http.post("/chat/completions", json={"model": "glm", "messages": [user("x")]})

    first, second = provider.calls()
    assert (first.client_request_id, first.user_agent, first.model) == ("call_17", "test/1", "glm")
    assert (first.status, first.usage_sent, second.client_request_id) == ("completed", True, None)
    assert first.ended_s is not None
    assert first.started_s <= first.ended_s
    page = http.get(f"http://127.0.0.1:{provider.port}/calls", params={"after": first.id}).json()
    assert ([call["id"] for call in page["calls"]], page["more"]) == ([second.id], False)


def test_pages_of_calls_together_list_every_call_once(http: httpx.Client, provider: ProviderProcess) -> None:
    for _ in range(1001):
        http.post("/chat/completions", json={"model": "m", "messages": [user("say: x")]})

    ids = [call.id for call in provider.calls()]
    assert len(set(ids)) == len(ids) == 1001
    assert ids == sorted(ids)


TOOL_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        pytest.param(b"{", "1210", "JSON", id="cut JSON"),
        pytest.param(b"", "1210", "JSON", id="empty body"),
        pytest.param(b"\xff\xfe", "1210", "JSON", id="no UTF-8"),
        pytest.param(b"[]", "1214", "object", id="no object"),
        pytest.param({"model": "m"}, "1214", "messages", id="no messages"),
        pytest.param({"model": "m", "messages": []}, "1214", "messages", id="empty messages"),
        pytest.param({"messages": [user("x")]}, "1214", "model", id="no model"),
        pytest.param({"model": "m", "messages": [{"role": "king", "content": "x"}]}, "1214", "role", id="odd role"),
        pytest.param({"model": "m", "messages": [{"role": "user", "content": 7}]}, "1214", "content", id="odd content"),
        pytest.param({"model": "m", "messages": [user("x")], "tools": [{}]}, "1214", "tools", id="odd tools"),
        pytest.param(
            {"model": "m", "messages": [{"role": "tool", "tool_call_id": "c9", "content": "x"}]},
            "1214",
            "messages[0] answers no open tool call",
            id="result without a call",
        ),
        pytest.param(
            {"model": "m", "messages": [{"role": "assistant", "tool_calls": [TOOL_CALL]}, user("x")]},
            "1214",
            "messages[1] comes before the answers to c1",
            id="call without a result",
        ),
        pytest.param(
            {"model": "m", "messages": [{"role": "assistant", "tool_calls": [TOOL_CALL]}]},
            "1214",
            "leaves tool calls open",
            id="call without a result at the end",
        ),
        pytest.param(
            {"model": "m", "messages": [user('use: list_files {"path": }')], "tools": TOOLS},
            "1214",
            "list_files",
            id="unreadable step",
        ),
    ],
)
def test_a_request_a_real_provider_would_refuse_is_refused_and_not_counted(
    http: httpx.Client, provider: ProviderProcess, body: bytes | dict[str, Any], code: str, says: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = http.post("/chat/completions", content=content)

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
    assert says in answer.json()["error"]["message"]
    assert (provider.stats().calls, provider.calls()) == (0, ())


def test_an_unknown_path_is_404_and_a_wrong_method_405_with_the_right_one(http: httpx.Client) -> None:
    missing, wrong, head = http.post("/nothing"), http.get("/chat/completions"), http.head("/models")

    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "1222")
    assert (wrong.status_code, wrong.json()["error"]["code"], wrong.headers["allow"]) == (405, "1212", "POST")
    assert (head.status_code, head.content) == (405, b"")


def test_models_are_listed(http: httpx.Client) -> None:
    assert [model["id"] for model in http.get("/models").json()["data"]] == ["simulated"]
