"""Signed blocks of thinking: read out of an answer, sent back to whoever signed them, to nobody else."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from covey.protocol.dialects.ask import Ask, NamedTool, Thinking, Traits
from covey.protocol.dialects.base import ToolSpec
from covey.protocol.dialects.registry import wire_dialect
from covey.protocol.mending import NO_MENDS, Mend, Mends
from covey.protocol.settings import Dialect, Effort
from covey.protocol.transcript import Message, Role, Signed, ToolCall, is_storable, repair

GOAL = Message(role=Role.USER, content="Go.")
CALL = ToolCall(id="c1", name="read", arguments="{}")
RESULT = Message(role=Role.TOOL, content="ok", tool_call_id="c1")
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2Vj"}
READ = ToolSpec(name="read", description="", parameters=msgspec.Raw(b'{"type":"object"}'))
BLOCKS = {Dialect.ANTHROPIC: THINKING, Dialect.RESPONSES: REASONING}
TRAITS = {
    Dialect.ANTHROPIC: Traits(thinking=Thinking.BUDGET),
    Dialect.RESPONSES: Traits(thinking=Thinking.EFFORT, efforts=("low", "high")),
    Dialect.CHAT: Traits(thinking=Thinking.EFFORT, efforts=("low", "high")),
}
DROP = Mends(done=frozenset({Mend.DROP_SIGNED}))


def signed(dialect: Dialect, model: str = "m", block: object = None) -> Signed:
    return Signed(dialect=dialect, model=model, data=json.dumps(block or BLOCKS[dialect]))


def asked(*blocks: Signed, text: str = "") -> Message:
    return Message(role=Role.ASSISTANT, content=text, tool_calls=(CALL,), signed=blocks)


def body(
    dialect: Dialect, *messages: Message, mends: Mends = NO_MENDS, traits: Traits | None = None, **more: Any
) -> dict[str, Any]:
    ask = Ask(model="m", messages=messages, tools=(READ,), **{"effort": Effort.HIGH, **more})
    rendered = wire_dialect(dialect).render(
        ask, traits or TRAITS[dialect], base_url="https://llm.example", api_key=None, mends=mends
    )
    return msgspec.json.decode(rendered.body, type=dict[str, Any])


def sent_blocks(dialect: Dialect, *messages: Message, mends: Mends = NO_MENDS, **more: Any) -> list[Any]:
    request = body(dialect, *messages, mends=mends, **more)
    items = request.get("input") or [part for message in request["messages"] for part in message["content"] or ()]
    return [item for item in items if item in (THINKING, REASONING)]


@pytest.mark.parametrize("dialect", BLOCKS)
def test_blocks_go_back_to_the_dialect_and_model_they_came_from_and_to_nobody_else(dialect: Dialect) -> None:
    others = [signed(other, block=BLOCKS[dialect]) for other in Dialect if other is not dialect]

    assert sent_blocks(dialect, GOAL, asked(signed(dialect)), RESULT) == [BLOCKS[dialect]]
    assert sent_blocks(dialect, GOAL, asked(signed(dialect, "m-20250929")), RESULT) == [BLOCKS[dialect]]
    assert sent_blocks(dialect, GOAL, asked(signed(dialect, "another")), RESULT) == []
    assert sent_blocks(dialect, GOAL, asked(*others), RESULT) == []
    assert sent_blocks(dialect, GOAL, asked(signed(dialect)), RESULT, mends=DROP) == []


def test_blocks_stand_before_what_was_said_and_asked_after_them() -> None:
    turn = body(Dialect.ANTHROPIC, GOAL, asked(signed(Dialect.ANTHROPIC), text="I look."), RESULT)["messages"][1]
    items = body(Dialect.RESPONSES, GOAL, asked(signed(Dialect.RESPONSES), text="I look."), RESULT)["input"]

    assert [block["type"] for block in turn["content"]] == ["thinking", "text", "tool_use"]
    assert [item["type"] for item in items] == [
        "message",
        "reasoning",
        "message",
        "function_call",
        "function_call_output",
    ]


@pytest.mark.parametrize("data", ["", "{", "[]", '"x"', '{"a":"\udc00"}'])
def test_a_block_that_is_no_block_any_more_is_left_out(data: str) -> None:
    broken = Signed(dialect=Dialect.ANTHROPIC, model="m", data=data)

    assert len(body(Dialect.ANTHROPIC, GOAL, asked(broken), RESULT)["messages"][1]["content"]) == 1


def test_results_of_calls_that_were_not_thought_about_are_answered_without_thinking() -> None:
    elsewhere = asked(signed(Dialect.ANTHROPIC, "another"))

    assert "thinking" not in body(Dialect.ANTHROPIC, GOAL, elsewhere, RESULT)
    assert "thinking" not in body(Dialect.ANTHROPIC, GOAL, elsewhere, RESULT, GOAL)
    assert "thinking" not in body(Dialect.ANTHROPIC, GOAL, asked(signed(Dialect.ANTHROPIC)), RESULT, mends=DROP)
    assert "thinking" in body(Dialect.ANTHROPIC, GOAL, asked(signed(Dialect.ANTHROPIC)), RESULT)
    assert "thinking" in body(
        Dialect.ANTHROPIC, GOAL, elsewhere, RESULT, Message(role=Role.ASSISTANT, content="x"), GOAL
    )


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_turn_that_began_with_thinking_goes_on_with_it_though_its_later_calls_were_not_thought_about(
    steps: int,
) -> None:
    later = [message for _ in range(steps) for message in (asked(), RESULT)]

    request = body(Dialect.ANTHROPIC, GOAL, asked(signed(Dialect.ANTHROPIC)), RESULT, *later)

    assert request["thinking"]["type"] == "enabled"
    assert request["messages"][1]["content"][0] == THINKING
    assert "thinking" not in body(Dialect.ANTHROPIC, GOAL, asked(signed(Dialect.ANTHROPIC)), RESULT, GOAL, *later)


def test_who_decides_himself_whether_to_think_may_have_called_without() -> None:
    adaptive = Traits(thinking=Thinking.ADAPTIVE, efforts=("low", "high"))
    history = (GOAL, asked(signed(Dialect.ANTHROPIC)), RESULT, GOAL, asked(), RESULT)

    request = body(Dialect.ANTHROPIC, *history, traits=adaptive)

    assert request["thinking"] == {"type": "adaptive"}
    assert request["messages"][1]["content"][0] == THINKING
    assert "thinking" not in body(Dialect.ANTHROPIC, *history, traits=adaptive, tool_choice=NamedTool("read"))


def test_where_thinking_is_off_no_block_is_sent_back() -> None:
    history = (GOAL, asked(signed(Dialect.ANTHROPIC)), RESULT)

    assert sent_blocks(Dialect.ANTHROPIC, *history, effort=Effort.NONE) == []
    assert sent_blocks(Dialect.ANTHROPIC, *history, tool_choice=NamedTool("read")) == []
    assert sent_blocks(Dialect.ANTHROPIC, *history, effort=None) == [THINKING]


def test_a_message_of_blocks_alone_is_empty_and_repair_leaves_blocks_alone() -> None:
    alone = Message(role=Role.ASSISTANT, signed=(signed(Dialect.ANTHROPIC),))
    history = (GOAL, asked(signed(Dialect.ANTHROPIC)), RESULT)

    assert not is_storable(alone)
    assert repair(history) == history
    assert repair((GOAL, alone)) == (GOAL,)


def test_redacted_thinking_is_kept_as_it_came_and_what_is_not_signed_is_not() -> None:
    reader = wire_dialect(Dialect.ANTHROPIC).reader(model="claude")
    redacted = {"type": "redacted_thinking", "data": "eA=="}
    content = [redacted, {"type": "thinking", "thinking": "No."}, {"type": "text", "text": "Hi."}]

    reader.feed(json.dumps({"type": "message", "content": content, "stop_reason": "end_turn"}).encode())

    [block] = reader.close().message.signed
    assert (block.dialect, block.model, json.loads(block.data)) == (Dialect.ANTHROPIC, "claude", redacted)


def test_an_answer_that_was_cut_off_keeps_no_block() -> None:
    reader = wire_dialect(Dialect.ANTHROPIC).reader()

    reader.feed(
        b'data: {"type":"content_block_start","index":0,"content_block":%s}\n\n' % json.dumps(THINKING).encode()
    )

    assert reader.close().signed == ()


def test_items_of_reasoning_in_a_body_that_is_no_stream_are_kept() -> None:
    reader = wire_dialect(Dialect.RESPONSES).reader()
    output = [{**REASONING, "status": None}, {"type": "message", "content": [{"type": "output_text", "text": "Hi."}]}]

    reader.feed(json.dumps({"model": "m-2025-08-07", "status": "completed", "output": output}).encode())

    [block] = reader.close().signed
    assert (block.model, json.loads(block.data)) == ("m-2025-08-07", REASONING)


REASONED = {
    Dialect.CHAT: {"choices": [{"message": {"content": "", "reasoning_content": "A."}, "finish_reason": "stop"}]},
    Dialect.ANTHROPIC: {"content": [{"type": "thinking", "thinking": "A."}], "stop_reason": "end_turn"},
}


@pytest.mark.parametrize("dialect", REASONED)
def test_reasoning_is_the_text_of_an_answer_only_for_those_who_ask_for_that(dialect: Dialect) -> None:
    texts = []
    for as_text in (False, True):
        reader = wire_dialect(dialect).reader(reasoning_as_text=as_text)
        reader.feed(json.dumps(REASONED[dialect]).encode())
        texts.append(reader.close().text)

    assert texts == ["", "A."]
