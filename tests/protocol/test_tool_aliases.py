"""Aliases of tools: for names a target refuses, the same each time, and back again."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.protocol.dialects.aliases import aliases_for
from covey.protocol.dialects.ask import Ask, Choice, NamedTool, Traits
from covey.protocol.dialects.base import ToolCallDelta, ToolSpec
from covey.protocol.dialects.registry import wire_dialect
from covey.protocol.mending import Mend, Mends
from covey.protocol.settings import Dialect
from covey.protocol.transcript import Message, Role, ToolCall

NAMES = st.lists(st.text(max_size=70) | st.sampled_from(["a", "a.b", "a b", "a_b", "x" * 64, "x" * 65, ""]), max_size=8)
GOAL = Message(role=Role.USER, content="Go.")
EVERY = Mends(done=frozenset({Mend.ALIAS_TOOLS}))


def tool(name: str) -> ToolSpec:
    return ToolSpec(name=name, description="", parameters=msgspec.Raw(b'{"type":"object"}'))


@given(names=NAMES, refused=NAMES, every=st.booleans())
def test_every_name_can_be_sent_and_comes_back(names: list[str], refused: list[str], every: bool) -> None:
    aliases = aliases_for(names, refused=refused, every=every)

    sent = {name: aliases.of(name) for name in names}
    assert len(set(sent.values())) == len(sent)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) and name not in refused for name in sent.values())
    back = aliases.back(names)
    assert {name: back.get(alias, alias) for name, alias in sent.items()} == {name: name for name in names}
    assert not back.keys() & set(names)


@given(names=NAMES, more=NAMES)
def test_more_tools_change_no_alias(names: list[str], more: list[str]) -> None:
    assert aliases_for([*names, *more]).to_target.items() >= aliases_for(names).to_target.items()


def test_a_name_that_is_taken_as_it_is_stays_unless_the_target_refuses_it() -> None:
    assert aliases_for(["read_file", "search"], refused=["search"]).to_target.keys() == {"search"}
    assert aliases_for(["read_file"], every=True).of("read_file").startswith("read_file_")


def test_an_alias_that_another_tool_has_for_a_name_is_not_given() -> None:
    alias = aliases_for(["a.b"]).of("a.b")

    assert aliases_for(["a.b", alias]).of("a.b") != alias


def called(dialect: Dialect, name: str) -> bytes:
    """A stream in which one tool is called."""
    match dialect:
        case Dialect.CHAT:
            call = {"index": 0, "id": "c1", "function": {"name": name, "arguments": "{}"}}
            events: list[object] = [{"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}]
        case Dialect.ANTHROPIC:
            use = {"type": "tool_use", "id": "c1", "name": name, "input": {}}
            events = [{"type": "content_block_start", "index": 0, "content_block": use}, {"type": "message_stop"}]
        case Dialect.RESPONSES:
            item = {"type": "function_call", "call_id": "c1", "name": name, "arguments": ""}
            events = [
                {"type": "response.output_item.added", "output_index": 0, "item": item},
                {"type": "response.completed", "response": {"output": []}},
            ]
    return b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("mends", [Mends(), EVERY], ids=["as they are", "every tool"])
def test_a_tool_is_called_by_the_name_it_was_offered_by(dialect: Dialect, mends: Mends) -> None:
    wire = wire_dialect(dialect)
    call = ToolCall(id="c0", name="files.read", arguments="{}")
    ask = Ask(
        model="m",
        messages=(GOAL, Message(role=Role.ASSISTANT, tool_calls=(call,)), GOAL),
        tools=(tool("files.read"),),
        tool_choice=NamedTool("files.read"),
    )

    rendered = wire.render(ask, Traits(), base_url="https://llm.example", api_key=None, mends=mends)
    [alias] = rendered.names
    reader = wire.reader(rendered.names)
    deltas = reader.feed(called(dialect, alias))
    answer = reader.close()

    assert b"files.read" not in rendered.body
    assert rendered.body.count(b'"' + alias.encode() + b'"') == 3
    assert {delta.name for delta in deltas if isinstance(delta, ToolCallDelta)} == {"files.read"}
    assert [call.name for call in answer.tool_calls] == ["files.read"]


@pytest.mark.parametrize("dialect", Dialect)
def test_a_tool_that_nobody_offered_keeps_the_name_the_model_gave_it(dialect: Dialect) -> None:
    reader = wire_dialect(dialect).reader({"files_read_1": "files.read"})

    reader.feed(called(dialect, "files.write"))

    assert [call.name for call in reader.close().tool_calls] == ["files.write"]


CHOICES = {
    Dialect.CHAT: ["none", "required", {"type": "function", "function": {"name": "read"}}],
    Dialect.ANTHROPIC: [{"type": "none"}, {"type": "any"}, {"type": "tool", "name": "read"}],
    Dialect.RESPONSES: ["none", "required", {"type": "function", "name": "read"}],
}


@pytest.mark.parametrize("dialect", Dialect)
def test_what_the_model_may_do_with_its_tools_is_said_in_the_dialects_words(dialect: Dialect) -> None:
    def said(choice: Choice | NamedTool, *tools: ToolSpec) -> object:
        ask = Ask(model="m", messages=(GOAL,), tools=tools, tool_choice=choice)
        body = wire_dialect(dialect).render(ask, Traits(), base_url="https://llm.example", api_key=None).body
        return json.loads(body).get("tool_choice")

    choices = (Choice.NONE, Choice.REQUIRED, NamedTool("read"))
    assert [said(choice, tool("read")) for choice in choices] == CHOICES[dialect]
    assert [said(choice) for choice in choices] == [None, None, None]
    assert said(Choice.AUTO, tool("read")) is said(NamedTool("other"), tool("read")) is None
