"""Requests in Anthropic Messages and Responses: URL, headers, body; the history comes back out of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.bench.provider_messages import read_messages
from covey.protocol.dialects.aliases import LONGEST_NAME
from covey.protocol.dialects.anthropic import MAX_TOKENS, WORDLESS, AnthropicMessages
from covey.protocol.dialects.ask import Ask, Traits
from covey.protocol.dialects.base import ToolSpec, WireDialect
from covey.protocol.dialects.history import split
from covey.protocol.dialects.registry import wire_dialect
from covey.protocol.dialects.responses import Responses
from covey.protocol.settings import Dialect
from covey.protocol.transcript import INTERRUPTED_RESULT, Message, Role, ToolCall, repair

ANTHROPIC, RESPONSES = AnthropicMessages(), Responses()
SYSTEM = Message(role=Role.SYSTEM, content="Be brief.")
GOAL = Message(role=Role.USER, content="Say 你好.")
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOL = ToolSpec(name="read_file", description="Read a file.", parameters=msgspec.Raw(json.dumps(SCHEMA).encode()))


def asked(*calls: ToolCall, text: str = "") -> Message:
    return Message(role=Role.ASSISTANT, content=text, tool_calls=calls)


def given_back(call: str, text: str) -> Message:
    return Message(role=Role.TOOL, content=text, tool_call_id=call)


def rendered(dialect: WireDialect, *messages: Message, **options: Any) -> bytes:
    ask = Ask(model="glm-5.3", messages=messages, **options)
    return dialect.render(ask, Traits(), base_url="https://llm.example/v1", api_key=None).body


def body(dialect: WireDialect, *messages: Message, **options: Any) -> Any:
    return msgspec.json.decode(rendered(dialect, *messages, **options))


CALL = ToolCall(id="call_a", name="read_file", arguments='{"path":"a"}')


@pytest.mark.parametrize(
    ("dialect", "base_url", "url"),
    [
        (ANTHROPIC, "https://api.z.ai/api/anthropic", "https://api.z.ai/api/anthropic/v1/messages"),
        (ANTHROPIC, "https://api.anthropic.com/", "https://api.anthropic.com/v1/messages"),
        (ANTHROPIC, "https://api.anthropic.com/v1/", "https://api.anthropic.com/v1/messages"),
        (ANTHROPIC, "https://llm.example/v1/messages", "https://llm.example/v1/messages"),
        (ANTHROPIC, "llm.example/v1?beta=true", "https://llm.example/v1/messages?beta=true"),
        (RESPONSES, "https://api.openai.com/v1", "https://api.openai.com/v1/responses"),
        (RESPONSES, "https://llm.example/v1/responses/", "https://llm.example/v1/responses"),
        (RESPONSES, "llm.example/v1?api-version=2", "https://llm.example/v1/responses?api-version=2"),
    ],
)
def test_the_endpoint_is_below_the_base_url(dialect: WireDialect, base_url: str, url: str) -> None:
    ask = Ask(model="m", messages=())

    assert dialect.render(ask, Traits(), base_url=base_url, api_key=None).url == url


def test_a_key_is_sent_in_the_spellings_that_its_provider_takes() -> None:
    assert ANTHROPIC.headers(" secret\n")["x-api-key"] == "secret"
    assert ANTHROPIC.headers("secret")["authorization"] == "Bearer secret"
    assert ANTHROPIC.headers("sk-ant-1")["x-api-key"] == "sk-ant-1"
    assert "authorization" not in ANTHROPIC.headers("sk-ant-1")
    assert RESPONSES.headers("secret")["authorization"] == "Bearer secret"


@pytest.mark.parametrize("dialect", [ANTHROPIC, RESPONSES])
@pytest.mark.parametrize("key", [None, "", " "])
def test_without_a_key_there_is_no_authorization_header(dialect: WireDialect, key: str | None) -> None:
    assert not {"x-api-key", "authorization"} & set(dialect.headers(key))


def test_a_conversation_is_sent_in_anthropics_shape() -> None:
    history = (SYSTEM, GOAL, asked(CALL, text="I look."), given_back("call_a", "text of a"), GOAL)

    assert "anthropic-version" in ANTHROPIC.headers(None)
    assert body(ANTHROPIC, *history, tools=[TOOL]) == {
        "model": "glm-5.3",
        "max_tokens": MAX_TOKENS,
        "stream": True,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Say 你好."}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "call_a", "name": "read_file", "input": {"path": "a"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "call_a", "content": "text of a"},
                    {"type": "text", "text": "Say 你好."},
                ],
            },
        ],
        "tools": [{"name": "read_file", "description": "Read a file.", "input_schema": SCHEMA}],
    }


def test_a_conversation_is_sent_in_the_shape_of_responses() -> None:
    history = (SYSTEM, GOAL, asked(CALL, text="I look."), given_back("call_a", "text of a"))

    assert body(RESPONSES, *history, tools=[TOOL], max_tokens=100) == {
        "model": "glm-5.3",
        "stream": True,
        "store": False,
        "instructions": "Be brief.",
        "max_output_tokens": 100,
        "input": [
            {"type": "message", "role": "user", "content": "Say 你好."},
            {"type": "message", "role": "assistant", "content": "I look."},
            {"type": "function_call", "call_id": "call_a", "name": "read_file", "arguments": '{"path":"a"}'},
            {"type": "function_call_output", "call_id": "call_a", "output": "text of a"},
        ],
        "tools": [
            {
                "type": "function",
                "name": "read_file",
                "description": "Read a file.",
                "parameters": SCHEMA,
                "strict": False,
            }
        ],
    }


def test_a_bound_for_the_answer_replaces_the_default_and_a_stream_can_be_left_out() -> None:
    assert body(ANTHROPIC, GOAL, max_tokens=7, stream=False)["max_tokens"] == 7
    assert body(ANTHROPIC, GOAL, stream=False)["stream"] is False
    assert body(RESPONSES, GOAL, stream=False)["stream"] is False


@pytest.mark.parametrize(
    "history",
    [(), (SYSTEM,), (asked(text="Hi."), GOAL), (Message(role=Role.USER, content=""),)],
    ids=["nothing", "only the system", "the assistant first", "an empty last word"],
)
def test_where_the_user_has_to_speak_and_did_not_a_word_stands_in(history: tuple[Message, ...]) -> None:
    first = body(ANTHROPIC, *history)["messages"][0]

    assert first == {"role": "user", "content": [{"type": "text", "text": WORDLESS}]}


def test_a_call_without_a_result_is_sent_with_one() -> None:
    [_, _, result] = body(ANTHROPIC, GOAL, asked(CALL))["messages"]
    *_, output = body(RESPONSES, GOAL, asked(CALL))["input"]

    assert result["content"][0]["content"] == output["output"] == INTERRUPTED_RESULT


def test_ids_and_names_that_another_provider_made_up_are_written_as_all_take_them() -> None:
    odd = ToolCall(id="functions.read:0" + "x" * 80, name="functions.read", arguments="{}")
    turn = (asked(odd, odd), given_back(odd.id, "one"), given_back(odd.id, "two"))

    blocks = [block for message in body(ANTHROPIC, GOAL, *turn, *turn)["messages"] for block in message["content"]]

    ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert len(set(ids)) == 4
    assert all(len(id_) <= LONGEST_NAME and id_.replace("_", "").replace("-", "").isalnum() for id_ in ids)
    assert [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"] == ids
    [name] = {block["name"] for block in blocks if block["type"] == "tool_use"}
    assert name.startswith("functions_read_")


@pytest.mark.parametrize("dialect", [ANTHROPIC, RESPONSES])
def test_half_a_surrogate_pair_in_a_text_is_replaced(dialect: WireDialect) -> None:
    sent = rendered(dialect, Message(role=Role.USER, content="file \udce9.txt"))

    assert b"file ?.txt" in sent


TEXTS = st.text(max_size=8)
CALLS = st.builds(ToolCall, id=st.sampled_from(["a", "b", "c.1"]), name=TEXTS, arguments=st.sampled_from(["{}", "{"]))
HISTORIES = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(Role),
        content=TEXTS,
        tool_calls=st.lists(CALLS, max_size=2).map(tuple),
        tool_call_id=st.none() | st.sampled_from(["a", "b", "c.1"]),
    ).map(
        lambda message: Message(
            role=message.role,
            content=message.content,
            tool_calls=message.tool_calls if message.role is Role.ASSISTANT else (),
            tool_call_id=(message.tool_call_id or "a") if message.role is Role.TOOL else None,
        )
    ),
    max_size=8,
)


@settings(max_examples=150, deadline=None)
@given(history=HISTORIES)
def test_any_history_becomes_turns_that_a_provider_takes_and_loses_no_call(history: list[Message]) -> None:
    sent = rendered(ANTHROPIC, *history)

    read_messages(sent)  # the simulated provider refuses calls and results that do not belong together
    roles = [message["role"] for message in msgspec.json.decode(sent)["messages"]]
    assert roles == [("user", "assistant")[turn % 2] for turn in range(len(roles))]
    assert sent.count(b'"type":"tool_use"') == sum(len(message.tool_calls) for message in repair(history))
    items = body(RESPONSES, *history)["input"]
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    assert sorted(calls) == sorted(item["call_id"] for item in items if item["type"] == "function_call_output")
    assert len(set(calls)) == len(calls)


@settings(max_examples=100, deadline=None)
@given(history=HISTORIES, more=HISTORIES)
def test_a_call_keeps_its_id_when_the_history_grows(history: list[Message], more: list[Message]) -> None:
    before = split(repair(history)).messages
    asked_before = [message for message in before if message.tool_calls]

    after = [message for message in split(repair([*history, *more])).messages if message.tool_calls]

    assert after[: len(asked_before)] == asked_before


def test_the_setting_names_the_dialect() -> None:
    assert isinstance(wire_dialect(Dialect.ANTHROPIC), AnthropicMessages)
    assert isinstance(wire_dialect(Dialect.RESPONSES), Responses)
