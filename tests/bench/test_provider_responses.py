"""OpenAI Responses from the simulated provider: streams, bodies, tool turns, tokens and errors, over real HTTP."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import msgspec
import pytest

from covey.bench.provider_moods import Moods
from covey.bench.provider_options import ProviderOptions
from covey.bench.provider_process import ProviderProcess
from covey.protocol.dialects.base import Finish
from covey.protocol.dialects.responses_reader import ResponsesReader
from covey.protocol.faults import FaultKind

TOOLS = [
    {"type": "function", "name": name, "parameters": {"type": "object"}}
    for name in ("read_file", "write_file", "list_files")
]


def ask(*items: Any, **more: Any) -> dict[str, Any]:
    said = [{"role": "user", "content": text} if isinstance(text, str) else text for text in items]
    return {"model": "glm-5", "input": said, **more}


def send(http: httpx.Client, *items: Any, **more: Any) -> Any:
    return http.post("responses", json=ask(*items, **more)).raise_for_status().json()


def stream(http: httpx.Client, *items: Any, **more: Any) -> bytes:
    with http.stream("POST", "responses", json=ask(*items, stream=True, **more)) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        return answer.read()


def events(http: httpx.Client, *items: Any, **more: Any) -> list[Any]:
    found = re.findall(r"event: ([\w.]+)\ndata: (.*)\n\n", stream(http, *items, **more).decode())
    decoded = [json.loads(data) for _, data in found]
    assert [event["type"] for event in decoded] == [name for name, _ in found]
    assert [event["sequence_number"] for event in decoded] == list(range(len(decoded)))
    return decoded


def test_a_stream_has_a_head_then_items_then_the_whole_answer_once_more(http: httpx.Client) -> None:
    created, progress, added, part, *deltas, text, part_done, done, end = events(http, "say: twelve chars")

    assert [event["type"] for event in (created, progress, added, part, text, part_done, done, end)] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert (created["response"]["status"], created["response"]["output"]) == ("in_progress", [])
    assert (added["item"]["status"], added["item"]["content"]) == ("in_progress", [])
    assert "".join(delta["delta"] for delta in deltas) == text["text"] == "twelve chars"
    assert 1 < len(deltas) <= 5
    assert end["response"]["output"] == [done["item"]]
    usage = end["response"]["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (5 + 4, 3, 12)


def test_tool_calls_come_as_items_with_their_arguments_in_pieces(http: httpx.Client) -> None:
    prompt = 'use: list_files {"path": "some/where"} && read_file {"path": "a"}'
    found = events(http, prompt, tools=TOOLS)

    items = [event["item"] for event in found if event["type"] == "response.output_item.added"]
    assert [(item["name"], item["arguments"]) for item in items] == [("list_files", ""), ("read_file", "")]
    assert all(item["id"] != item["call_id"] for item in items)
    deltas = [event for event in found if event["type"] == "response.function_call_arguments.delta"]
    for index, arguments in enumerate(['{"path": "some/where"}', '{"path": "a"}']):
        pieces = [delta["delta"] for delta in deltas if delta["output_index"] == index]
        assert "".join(pieces) == arguments
        assert len(pieces) >= 2
    assert found[-1]["response"]["status"] == "completed"


def test_an_agent_goes_through_its_tool_turns_to_the_last_word(http: httpx.Client) -> None:
    items: list[Any] = ['use: list_files {}\nuse: read_file {"path": "a"} && read_file {"path": "b"}\nsay: fine']
    names: list[list[str]] = []
    while True:
        answer = send(http, *items, tools=TOOLS, instructions="be brief")
        calls = [item for item in answer["output"] if item["type"] == "function_call"]
        if not calls:
            break
        names.append([call["name"] for call in calls])
        results = [{"type": "function_call_output", "call_id": call["call_id"], "output": "r"} for call in calls]
        # What models think between their calls comes back too, and opens no new turn.
        items += [{"type": "reasoning", "id": "rs_1", "summary": []}, *answer["output"], *results]

    assert names == [["list_files"], ["read_file", "read_file"]]
    assert [part["text"] for part in answer["output"][0]["content"]] == ["fine"]


def test_no_tool_is_called_that_may_not_be(http: httpx.Client) -> None:
    answer = send(http, "Count the files", tools=TOOLS, tool_choice="none")

    assert [item["type"] for item in answer["output"]] == ["message"]


def test_a_prompt_costs_the_same_as_in_chat_completions(http: httpx.Client, provider: ProviderProcess) -> None:
    called = [
        {"role": "assistant", "content": "a word"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "r"},
    ]
    ours = send(http, "y" * 11, *called, instructions="x" * 10)["usage"]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history = [
        {"role": "system", "content": "x" * 10},
        {"role": "user", "content": "y" * 11},
        {"role": "assistant", "content": "a word", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ]
    theirs = http.post("chat/completions", json={"model": "m", "messages": history}).json()["usage"]

    assert ours["input_tokens"] == theirs["prompt_tokens"]
    assert provider.stats().prompt_tokens == 2 * ours["input_tokens"]


def test_a_text_alone_is_a_question(http: httpx.Client) -> None:
    answer = http.post("responses", json={"model": "m", "input": "say: yes"}).json()

    assert answer["output"][0]["content"][0]["text"] == "yes"


def test_what_was_sent_before_is_told_as_cached(http: httpx.Client, provider: ProviderProcess) -> None:
    provider.set_moods(Moods(prompt_cache=True))

    usage = send(http, "first", {"role": "assistant", "content": "hello"}, "second")["usage"]

    assert usage["input_tokens_details"]["cached_tokens"] == 2 + 4 < usage["input_tokens"]


CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        pytest.param(b"{", "1210", "JSON", id="cut JSON"),
        pytest.param(ask(), "1214", "must not be empty", id="no items"),
        pytest.param({"model": "m"}, "1214", "input", id="no input"),
        pytest.param(ask({"type": "message", "content": "x"}), "1214", "input[0]", id="nobody's message"),
        pytest.param(ask({"role": "tool", "content": "x"}), "1214", "role", id="odd role"),
        pytest.param(ask("x", CALL, "y"), "1214", "comes before the answers to c1", id="call without a result"),
        pytest.param(ask("x", tools=[{}]), "1214", "tools", id="odd tools"),
    ],
)
def test_a_request_that_cannot_be_meant_is_refused_in_the_words_of_the_dialect(
    http: httpx.Client, provider: ProviderProcess, body: bytes | dict[str, Any], code: str, says: str
) -> None:
    answer = http.post("responses", content=body if isinstance(body, bytes) else json.dumps(body).encode())

    told = answer.json()["error"]
    assert (answer.status_code, told["type"], told["code"], told["param"]) == (400, "invalid_request_error", code, None)
    assert says in told["message"]
    assert provider.calls() == ()


@pytest.mark.parametrize(
    ("moods", "kind"),
    [
        pytest.param({"limit": 0, "in_band": [1302]}, FaultKind.CONCURRENCY, id="a refusal as the first event"),
        pytest.param({"bodies": {"dies": "error", "after_chunks": 2}}, FaultKind.SERVER_ERROR, id="an error later on"),
    ],
)
def test_an_error_event_is_what_our_reader_takes_it_for(
    http: httpx.Client, provider: ProviderProcess, moods: dict[str, object], kind: FaultKind
) -> None:
    provider.set_moods(msgspec.convert(moods, Moods))
    reader = ResponsesReader()

    reader.feed(stream(http, "say: twelve chars"))

    answer = reader.close()
    assert not answer.complete
    assert answer.fault is not None
    assert answer.fault.kind is kind


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_our_reader_reads_what_is_written(http: httpx.Client, size: int) -> None:
    body = stream(http, 'use: list_files {"path": "é"} && read_file {"path": "a"}', tools=TOOLS)
    reader = ResponsesReader()

    for start in range(0, len(body), size):
        reader.feed(body[start : start + size])

    answer = reader.close()
    assert (answer.complete, answer.finish) == (True, Finish.TOOL_CALLS)
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [
        ("list_files", '{"path": "é"}'),
        ("read_file", '{"path": "a"}'),
    ]
    assert answer.usage is not None


def test_an_answer_at_its_length_is_incomplete_and_says_why(tmp_path: Any) -> None:
    script = tmp_path / "short.yaml"
    script.write_text("rules:\n  - turns:\n    - {say: half a sen, finish_reason: length}\n")
    with (
        ProviderProcess(ProviderOptions(think_s=0, chunk_pace_s=0, script=str(script))) as provider,
        httpx.Client(base_url=provider.base_url, trust_env=False) as http,
    ):
        whole = send(http, "x")
        end = events(http, "x")[-1]

    assert (whole["status"], whole["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert (end["type"], end["response"]["status"]) == ("response.incomplete", "incomplete")
