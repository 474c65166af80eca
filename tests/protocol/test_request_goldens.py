"""One conversation with everything in it, as each dialect sends it; the providers' own SDKs know every field."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from anthropic.types import MessageCreateParams
from openai.types.chat import CompletionCreateParams
from openai.types.responses import ResponseCreateParams
from pydantic import TypeAdapter

from covey.protocol.dialects.ask import Ask, Layout, NamedTool, Thinking, Traits
from covey.protocol.dialects.base import ToolSpec
from covey.protocol.dialects.registry import wire_dialect
from covey.protocol.settings import Dialect, Effort
from covey.protocol.transcript import Message, Role, Signed, ToolCall

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
THINKING = {"type": "thinking", "thinking": "A file.", "signature": "c2ln"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2Vj"}
READ = ToolSpec(name="files.read", description="Read.", parameters=msgspec.Raw(json.dumps(SCHEMA).encode()))
HISTORY = (
    Message(role=Role.SYSTEM, content="You are brief. Today is Monday."),
    Message(role=Role.USER, content="What is in a?"),
    Message(
        role=Role.ASSISTANT,
        content="I look.",
        tool_calls=(ToolCall(id="c1", name="files.read", arguments='{"path":"a"}'),),
        signed=(
            Signed(dialect=Dialect.ANTHROPIC, model="m", data=json.dumps(THINKING)),
            Signed(dialect=Dialect.RESPONSES, model="m", data=json.dumps(REASONING)),
        ),
    ),
    Message(role=Role.TOOL, content="text of a", tool_call_id="c1"),
    Message(role=Role.USER, content="And b? Hint."),
)
ASK = Ask(
    model="m",
    messages=HISTORY,
    tools=(READ,),
    max_tokens=20_000,
    effort=Effort.LOW,
    static_chars=len("You are brief."),
    turn_chars=len(" Hint."),
    affinity="cvy_1",
)
NAME = "files_read_80e6cc8f"
MARK = {"cache_control": {"type": "ephemeral"}}
TRAITS = {
    Dialect.CHAT: Traits(
        layout=Layout.ENVELOPE,
        thinking=Thinking.OBJECT,
        efforts=("low", "high"),
        affinity_field="session_id",
        max_tokens_field="max_completion_tokens",
    ),
    Dialect.ANTHROPIC: Traits(layout=Layout.BLOCKS, thinking=Thinking.BUDGET),
    Dialect.RESPONSES: Traits(thinking=Thinking.EFFORT, efforts=("low", "high"), affinity_field="prompt_cache_key"),
}
GOLDENS: dict[Dialect, dict[str, Any]] = {
    Dialect.CHAT: {
        "model": "m",
        "messages": [
            {
                "role": "system",
                "content": [
                    {"type": "text", "text": "You are brief.", **MARK},
                    {"type": "text", "text": " Today is Monday.", **MARK},
                ],
            },
            {"role": "user", "content": "What is in a?"},
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": NAME, "arguments": '{"path":"a"}'}}
                ],
            },
            {"role": "tool", "content": [{"type": "text", "text": "text of a", **MARK}], "tool_call_id": "c1"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "And b?", **MARK}, {"type": "text", "text": " Hint."}],
            },
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": {"name": NAME, "description": "Read.", "parameters": SCHEMA}}],
        "max_completion_tokens": 20_000,
        "reasoning": {"effort": "low"},
        "session_id": "cvy_1",
    },
    Dialect.ANTHROPIC: {
        "model": "m",
        "max_tokens": 20_000,
        "stream": True,
        "system": [
            {"type": "text", "text": "You are brief.", **MARK},
            {"type": "text", "text": " Today is Monday.", **MARK},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "What is in a?"}]},
            {
                "role": "assistant",
                "content": [
                    THINKING,
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "c1", "name": NAME, "input": {"path": "a"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "text of a"},
                    {"type": "text", "text": "And b?", **MARK},
                    {"type": "text", "text": " Hint."},
                ],
            },
        ],
        "tools": [{"name": NAME, "description": "Read.", "input_schema": SCHEMA, **MARK}],
        "thinking": {"type": "enabled", "budget_tokens": 4096},
    },
    Dialect.RESPONSES: {
        "model": "m",
        "input": [
            {"type": "message", "role": "user", "content": "What is in a?"},
            REASONING,
            {"type": "message", "role": "assistant", "content": "I look."},
            {"type": "function_call", "call_id": "c1", "name": NAME, "arguments": '{"path":"a"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "text of a"},
            {"type": "message", "role": "user", "content": "And b? Hint."},
        ],
        "stream": True,
        "store": False,
        "instructions": "You are brief. Today is Monday.",
        "tools": [{"type": "function", "name": NAME, "description": "Read.", "parameters": SCHEMA, "strict": False}],
        "max_output_tokens": 20_000,
        "reasoning": {"effort": "low"},
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "cvy_1",
    },
}


def sent(dialect: Dialect, traits: Traits, ask: Ask = ASK) -> dict[str, Any]:
    rendered = wire_dialect(dialect).render(ask, traits, base_url="https://llm.example", api_key=None)
    return msgspec.json.decode(rendered.body, type=dict[str, Any])


@pytest.mark.parametrize("dialect", Dialect)
def test_everything_at_once_is_sent_in_the_dialects_shape(dialect: Dialect) -> None:
    assert sent(dialect, TRAITS[dialect]) == GOLDENS[dialect]


PARAMETERS: dict[Dialect, Any] = {
    Dialect.CHAT: CompletionCreateParams,
    Dialect.ANTHROPIC: MessageCreateParams,
    Dialect.RESPONSES: ResponseCreateParams,
}
OPENROUTERS = {"reasoning", "session_id"}
ASKS = {
    "everything": ASK,
    "a forced tool": msgspec.structs.replace(ASK, tool_choice=NamedTool("files.read"), effort=None),
    "no stream": msgspec.structs.replace(ASK, stream=False),
    "no thinking": msgspec.structs.replace(ASK, effort=Effort.NONE),
    "nothing but a word": Ask(model="m", messages=HISTORY[1:2], max_tokens=10),
}


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_the_providers_own_sdk_takes_the_request(dialect: Dialect, ask: Ask) -> None:
    request = sent(dialect, TRAITS[dialect], ask)

    adapter = TypeAdapter(PARAMETERS[dialect])  # kept: what is iterable is checked by it later on
    read(adapter.validate_python(request))

    known = {field for variant in get_args(PARAMETERS[dialect]) for field in get_type_hints(variant)}
    assert request.keys() - known <= OPENROUTERS


def read(value: object) -> None:
    """Go through all of a value: what is declared as iterable is only checked when it is."""
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for part in value:
            read(part)
