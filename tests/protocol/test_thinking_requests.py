"""How much a model is to think, in each dialect's fields."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from covey.protocol.dialects.anthropic import MAX_TOKENS
from covey.protocol.dialects.ask import Ask, Choice, Thinking, Traits
from covey.protocol.dialects.base import ToolSpec
from covey.protocol.dialects.registry import wire_dialect
from covey.protocol.dialects.schemas import plain_schema
from covey.protocol.mending import NO_MENDS, Mend, Mends
from covey.protocol.settings import Dialect, Effort
from covey.protocol.transcript import Message, Role

GOAL = Message(role=Role.USER, content="Go.")
FIELDS = ("reasoning_effort", "thinking", "reasoning", "output_config", "include")
READ = ToolSpec(name="read", description="", parameters=msgspec.Raw(b'{"type":"object"}'))
EFFORTS = Traits(thinking=Thinking.EFFORT, efforts=("low", "medium", "high"), always_thinks=True)
GPT = Traits(thinking=Thinking.EFFORT, efforts=("none", "low", "medium", "high", "xhigh"))
SWITCH = Traits(thinking=Thinking.SWITCH)
GLM_5_2 = Traits(thinking=Thinking.SWITCH, efforts=("high", "max"))
GLM_5_3 = Traits(thinking=Thinking.SWITCH, efforts=("low", "high", "max"), always_thinks=True)
ROUTER = Traits(thinking=Thinking.OBJECT, efforts=("minimal", "low", "medium", "high", "xhigh"))
BUDGET = Traits(thinking=Thinking.BUDGET)
ADAPTIVE = Traits(thinking=Thinking.ADAPTIVE, efforts=("low", "medium", "high", "max"))
ENCRYPTED = {"include": ["reasoning.encrypted_content"]}


def body(dialect: Dialect, traits: Traits, effort: Effort | None, *mends: Mend, **more: Any) -> dict[str, Any]:
    ask = Ask(model="m", messages=(GOAL,), effort=effort, **more)
    done = Mends(done=frozenset(mends), max_tokens=600 if Mend.SHORTER_ANSWER in mends else None)
    rendered = wire_dialect(dialect).render(ask, traits, base_url="https://llm.example", api_key=None, mends=done)
    sent: dict[str, Any] = json.loads(rendered.body)
    assert rendered.max_tokens == sent.get("max_tokens", sent.get("max_output_tokens"))
    return sent


def said(dialect: Dialect, traits: Traits, effort: Effort | None, *mends: Mend, **more: Any) -> dict[str, Any]:
    sent = body(dialect, traits, effort, *mends, **more)
    return {field: sent[field] for field in FIELDS if field in sent}


@pytest.mark.parametrize(
    ("dialect", "traits", "effort", "fields"),
    [
        (Dialect.CHAT, EFFORTS, Effort.MAX, {"reasoning_effort": "high"}),
        (Dialect.CHAT, EFFORTS, Effort.NONE, {"reasoning_effort": "low"}),
        (Dialect.CHAT, GPT, Effort.NONE, {"reasoning_effort": "none"}),
        (Dialect.CHAT, GPT, Effort.MINIMAL, {"reasoning_effort": "low"}),
        (Dialect.CHAT, GPT, Effort.MAX, {"reasoning_effort": "xhigh"}),
        (Dialect.CHAT, SWITCH, Effort.LOW, {"thinking": {"type": "enabled"}}),
        (Dialect.CHAT, SWITCH, Effort.NONE, {"thinking": {"type": "disabled"}}),
        (Dialect.CHAT, GLM_5_2, Effort.LOW, {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
        (Dialect.CHAT, GLM_5_2, Effort.MAX, {"thinking": {"type": "enabled"}, "reasoning_effort": "max"}),
        (Dialect.CHAT, GLM_5_3, Effort.MEDIUM, {"reasoning_effort": "low"}),
        (Dialect.CHAT, GLM_5_3, Effort.NONE, {"reasoning_effort": "low"}),
        (Dialect.CHAT, ROUTER, Effort.HIGH, {"reasoning": {"effort": "high"}}),
        (Dialect.CHAT, ROUTER, Effort.NONE, {"reasoning": {"enabled": False}}),
        (Dialect.CHAT, BUDGET, Effort.HIGH, {}),
        (Dialect.CHAT, Traits(), Effort.HIGH, {}),
        (Dialect.ANTHROPIC, BUDGET, Effort.LOW, {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
        (Dialect.ANTHROPIC, BUDGET, Effort.NONE, {"thinking": {"type": "disabled"}}),
        (
            Dialect.ANTHROPIC,
            ADAPTIVE,
            Effort.MAX,
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}},
        ),
        (Dialect.ANTHROPIC, ADAPTIVE, Effort.NONE, {}),
        (Dialect.ANTHROPIC, Traits(), Effort.HIGH, {}),
        (Dialect.RESPONSES, EFFORTS, Effort.MEDIUM, {"reasoning": {"effort": "medium"}, **ENCRYPTED}),
        (Dialect.RESPONSES, GPT, Effort.NONE, {"reasoning": {"effort": "none"}, **ENCRYPTED}),
        (Dialect.RESPONSES, GPT, None, ENCRYPTED),
        (Dialect.RESPONSES, Traits(), Effort.HIGH, {}),
    ],
)
def test_effort_is_said_in_the_targets_words(
    dialect: Dialect, traits: Traits, effort: Effort | None, fields: dict[str, Any]
) -> None:
    assert said(dialect, traits, effort) == fields


@pytest.mark.parametrize("traits", [EFFORTS, GPT, SWITCH, GLM_5_2, GLM_5_3, ROUTER, BUDGET, ADAPTIVE])
@pytest.mark.parametrize("dialect", [Dialect.CHAT, Dialect.ANTHROPIC])
def test_nothing_is_said_where_nobody_said_how_much_or_the_target_refused_it(dialect: Dialect, traits: Traits) -> None:
    assert said(dialect, traits, None) == {}
    for effort in Effort:
        assert said(dialect, traits, effort, Mend.SAY_NO_EFFORT) == {}
    assert said(dialect, traits, Effort.NONE, Mend.THINK) == {}
    assert said(dialect, traits, Effort.HIGH, Mend.THINK) == said(dialect, traits, Effort.HIGH)


def test_a_router_that_chooses_the_model_is_never_told_not_to_think() -> None:
    auto = Traits(thinking=Thinking.OBJECT, efforts=ROUTER.efforts, always_thinks=True)

    assert said(Dialect.CHAT, auto, Effort.NONE) == {"reasoning": {"effort": "minimal"}}


@pytest.mark.parametrize(
    ("asked", "own", "bound", "budget"),
    [
        (None, None, MAX_TOKENS, MAX_TOKENS * 3 // 4),
        (None, 64_000, MAX_TOKENS + 16_384, 16_384),
        (None, 8_192, 8_192, 6_144),
        (100_000, 32_000, 32_000, 16_384),
        (2_000, None, 2_000, 1_500),
        (1_200, None, 1_200, None),
    ],
)
def test_a_budget_leaves_room_for_the_answer_inside_its_bound(
    asked: int | None, own: int | None, bound: int, budget: int | None
) -> None:
    traits = Traits(thinking=Thinking.BUDGET, max_tokens=own)

    sent = body(Dialect.ANTHROPIC, traits, Effort.HIGH, max_tokens=asked)

    assert sent["max_tokens"] == bound
    assert sent.get("thinking", {}).get("budget_tokens") == budget


def test_without_thinking_an_answer_is_bounded_by_the_models_own_bound() -> None:
    assert body(Dialect.ANTHROPIC, Traits(max_tokens=4_096), None)["max_tokens"] == 4_096
    assert body(Dialect.ANTHROPIC, Traits(max_tokens=64_000), None)["max_tokens"] == MAX_TOKENS


def test_a_forced_call_is_not_thought_about() -> None:
    more = {"tools": (READ,), "tool_choice": Choice.REQUIRED}

    assert said(Dialect.ANTHROPIC, BUDGET, Effort.HIGH, **more) == {}
    assert said(Dialect.ANTHROPIC, ADAPTIVE, Effort.HIGH, **more) == {}


def test_a_mended_bound_is_the_smaller_one_in_the_field_the_target_has() -> None:
    newer = Traits(max_tokens_field="max_completion_tokens")

    assert body(Dialect.CHAT, Traits(), None, Mend.SHORTER_ANSWER)["max_tokens"] == 600
    assert body(Dialect.CHAT, Traits(), None, Mend.SHORTER_ANSWER, max_tokens=500)["max_tokens"] == 500
    assert body(Dialect.ANTHROPIC, Traits(), None, Mend.SHORTER_ANSWER)["max_tokens"] == 600
    assert body(Dialect.RESPONSES, Traits(), None, Mend.SHORTER_ANSWER)["max_output_tokens"] == 600
    rendered = wire_dialect(Dialect.CHAT).render(
        Ask(model="m", messages=(GOAL,), max_tokens=7), newer, base_url="https://llm.example", api_key=None
    )
    sent = json.loads(rendered.body)
    assert (sent["max_completion_tokens"], "max_tokens" in sent, rendered.max_tokens) == (7, False, 7)


def test_plain_schemas_lose_patterns_and_formats_and_no_argument_of_that_name() -> None:
    schema = {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "pattern": "^a", "default": {"format": "x"}},
            "list": {"type": "array", "items": {"anyOf": [{"format": "uri"}, {"const": {"pattern": "p"}}]}},
        },
        "$defs": {"format": {"type": "string", "format": "date"}},
    }

    assert json.loads(bytes(plain_schema(msgspec.Raw(json.dumps(schema).encode())))) == {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "default": {"format": "x"}},
            "list": {"type": "array", "items": {"anyOf": [{}, {"const": {"pattern": "p"}}]}},
        },
        "$defs": {"format": {"type": "string"}},
    }


@pytest.mark.parametrize("text", [b"{", b"[" * 5000, b""])
def test_a_schema_that_cannot_be_read_stays_as_it_is(text: bytes) -> None:
    assert plain_schema(msgspec.Raw(text)) == msgspec.Raw(text)


@pytest.mark.parametrize("dialect", Dialect)
def test_schemas_are_plain_only_where_that_was_mended(dialect: Dialect) -> None:
    tool = ToolSpec(name="a", description="", parameters=msgspec.Raw(b'{"pattern":"^a"}'))
    ask = Ask(model="m", messages=(GOAL,), tools=(tool,))

    def sent(mends: Mends) -> bytes:
        return wire_dialect(dialect).render(ask, Traits(), base_url="x.example", api_key=None, mends=mends).body

    assert b'{"pattern":"^a"}' in sent(NO_MENDS)
    assert b"^a" not in sent(Mends(done=frozenset({Mend.PLAIN_SCHEMAS})))


def test_neighbours_of_one_role_become_one_message_and_results_stay_apart() -> None:
    history = (GOAL, Message(role=Role.USER, content="Now."), Message(role=Role.ASSISTANT, content="Yes."), GOAL)

    def roles(*mends: Mend) -> list[tuple[str, str]]:
        ask = Ask(model="m", messages=history)
        done = Mends(done=frozenset(mends))
        body = wire_dialect(Dialect.CHAT).render(ask, Traits(), base_url="x.example", api_key=None, mends=done).body
        return [(message["role"], message["content"]) for message in json.loads(body)["messages"]]

    assert roles() == [("user", "Go."), ("user", "Now."), ("assistant", "Yes."), ("user", "Go.")]
    assert roles(Mend.MERGE_TURNS) == [("user", "Go.\n\nNow."), ("assistant", "Yes."), ("user", "Go.")]
