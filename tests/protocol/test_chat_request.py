"""Chat-completions requests: URL, headers, body."""

from __future__ import annotations

import json

import msgspec
import pytest

from covey.protocol.dialects.ask import Ask, Traits
from covey.protocol.dialects.base import ToolSpec
from covey.protocol.dialects.chat import ChatCompletions
from covey.protocol.dialects.registry import wire_dialect
from covey.protocol.settings import Dialect
from covey.protocol.transcript import INTERRUPTED_RESULT, Message, Role, ToolCall

CHAT = ChatCompletions()
GOAL = Message(role=Role.USER, content="Say 你好.")


def body(*messages: Message, **options: object) -> dict[str, object]:
    ask = Ask(model="glm-5.3", messages=messages, **options)  # type: ignore[arg-type]  # under test
    sent = CHAT.render(ask, Traits(), base_url="https://llm.example/v1", api_key=None).body
    return msgspec.json.decode(sent, type=dict[str, object])


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://api.z.ai/api/coding/paas/v4", "https://api.z.ai/api/coding/paas/v4/chat/completions"),
        ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080/v1/chat/completions"),
        ("https://llm.example/v1/chat/completions", "https://llm.example/v1/chat/completions"),
        ("https://llm.example/v1?api-version=2", "https://llm.example/v1/chat/completions?api-version=2"),
        ("llm.example/v1", "https://llm.example/v1/chat/completions"),
    ],
)
def test_the_endpoint_is_below_the_base_url(base_url: str, url: str) -> None:
    ask = Ask(model="m", messages=())

    assert CHAT.render(ask, Traits(), base_url=base_url, api_key=None).url == url


def test_a_key_goes_into_the_authorization_header_and_nowhere_else() -> None:
    headers = CHAT.headers(" secret\n")

    assert headers["authorization"] == "Bearer secret"
    assert [value for value in headers.values() if "secret" in value] == ["Bearer secret"]


@pytest.mark.parametrize("key", [None, "", " "])
def test_without_a_key_there_is_no_authorization_header(key: str | None) -> None:
    assert "authorization" not in CHAT.headers(key)


def test_a_streamed_request_asks_for_the_usage() -> None:
    assert body(GOAL) == {
        "model": "glm-5.3",
        "messages": [{"role": "user", "content": "Say 你好."}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_request_that_is_not_streamed_has_no_stream_options() -> None:
    sent = body(GOAL, stream=False, max_tokens=100)

    assert sent["stream"] is False
    assert "stream_options" not in sent
    assert sent["max_tokens"] == 100


def test_tools_are_offered_with_their_schema() -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    tool = ToolSpec(name="read_file", description="Read a file.", parameters=msgspec.Raw(json.dumps(schema).encode()))

    assert body(GOAL, tools=[tool])["tools"] == [
        {"type": "function", "function": {"name": "read_file", "description": "Read a file.", "parameters": schema}}
    ]


def test_tool_calls_and_results_are_sent_in_the_dialects_shape() -> None:
    call = ToolCall(id="call_a", name="read_file", arguments='{"path":"a"}')
    asked = Message(role=Role.ASSISTANT, tool_calls=(call,))
    given = Message(role=Role.TOOL, content="text of a", tool_call_id="call_a")

    assert body(GOAL, asked, given)["messages"] == [
        {"role": "user", "content": "Say 你好."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_a", "type": "function", "function": {"name": "read_file", "arguments": '{"path":"a"}'}}
            ],
        },
        {"role": "tool", "content": "text of a", "tool_call_id": "call_a"},
    ]


def test_a_broken_history_is_sent_repaired() -> None:
    call = ToolCall(id="call_a", name="read_file", arguments="{}")
    history = (GOAL, Message(role=Role.ASSISTANT), Message(role=Role.ASSISTANT, tool_calls=(call,)), GOAL)

    sent = body(*history)["messages"]

    assert isinstance(sent, list)
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "user"]
    assert sent[2]["content"] == INTERRUPTED_RESULT


def test_half_a_surrogate_pair_in_a_text_is_replaced() -> None:
    sent = body(Message(role=Role.USER, content="file \udce9.txt"))["messages"]

    assert sent == [{"role": "user", "content": "file ?.txt"}]


def test_the_setting_names_the_dialect() -> None:
    assert isinstance(wire_dialect(Dialect.CHAT), ChatCompletions)
