"""Breakpoints: where they stand, that they change nothing else, and that nothing is sent where nobody asked for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.protocol.dialects.ask import Ask, Layout, Traits
from covey.protocol.dialects.base import ToolSpec
from covey.protocol.dialects.registry import wire_dialect
from covey.protocol.mending import NO_MENDS, Mend, Mends
from covey.protocol.settings import Dialect
from covey.protocol.transcript import Message, Role, ToolCall

SYSTEM = Message(role=Role.SYSTEM, content="You are brief. Today is Monday.")
STATIC = len("You are brief.")
GOAL = Message(role=Role.USER, content="Go.")
ASKED = Message(role=Role.ASSISTANT, tool_calls=(ToolCall(id="c1", name="read", arguments="{}"),))
RESULT = Message(role=Role.TOOL, content="ok", tool_call_id="c1")
READ = ToolSpec(name="read", description="", parameters=msgspec.Raw(b'{"type":"object"}'))
LIST = ToolSpec(name="list", description="", parameters=msgspec.Raw(b'{"type":"object"}'))
HISTORY = (SYSTEM, GOAL, ASKED, RESULT, GOAL)
MARK = {"type": "ephemeral"}
LAYOUTS = [(Dialect.ANTHROPIC, Layout.BLOCKS), (Dialect.CHAT, Layout.ENVELOPE)]
PLAIN = Mends(done=frozenset({Mend.NO_CACHE_MARKS}))


def body(dialect: Dialect, traits: Traits, ask: Ask, mends: Mends = NO_MENDS) -> Any:
    rendered = wire_dialect(dialect).render(ask, traits, base_url="https://llm.example", api_key=None, mends=mends)
    return json.loads(rendered.body)


def asking(*messages: Message, **more: Any) -> Ask:
    return Ask(model="m", messages=messages, **more)


def marked(part: Any) -> Iterator[Any]:
    """All parts of a body that have a breakpoint, from the top."""
    if isinstance(part, dict):
        if "cache_control" in part:
            yield part
        part = list(part.values())
    if isinstance(part, list):
        for below in part:
            yield from marked(below)


def unmarked(body: Any) -> Any:
    """The body without breakpoints, and texts that were taken apart for them in one piece."""
    if isinstance(body, list):
        return [unmarked(part) for part in body]
    if not isinstance(body, dict):
        return body
    plain = {key: unmarked(value) for key, value in body.items() if key != "cache_control"}
    if isinstance(plain.get("system"), list):
        plain["system"] = "".join(part["text"] for part in plain["system"])
    return plain


def parted(body: Any) -> Iterator[str]:
    """All texts that are parts of something."""
    parts = [body.get("system"), *(message["content"] for message in body.get("messages", ()))]
    yield from (part["text"] for whole in parts if isinstance(whole, list) for part in whole if part["type"] == "text")


def joined(body: Any, *, is_chat: bool) -> Any:
    """The body with the texts of each message joined."""
    for message in body["messages"]:
        parts = message["content"]
        if isinstance(parts, list):
            text = "".join(part["text"] for part in parts if part["type"] == "text")
            message["content"] = text if is_chat else [text, [part for part in parts if part["type"] != "text"]]
    return body


def test_anthropic_marks_tools_the_static_words_the_system_and_the_last_turn() -> None:
    ask = asking(*HISTORY, tools=(LIST, READ), static_chars=STATIC)

    sent = body(Dialect.ANTHROPIC, Traits(layout=Layout.BLOCKS), ask)

    assert sent["system"] == [
        {"type": "text", "text": "You are brief.", "cache_control": MARK},
        {"type": "text", "text": " Today is Monday.", "cache_control": MARK},
    ]
    assert [tool.get("cache_control") for tool in sent["tools"]] == [None, MARK]
    assert sent["messages"][-1]["content"][-1] == {"type": "text", "text": "Go.", "cache_control": MARK}
    assert len(list(marked(sent))) == 4


def test_what_needs_no_breakpoint_leaves_it_to_the_messages() -> None:
    without_tools = body(Dialect.ANTHROPIC, Traits(layout=Layout.BLOCKS), asking(*HISTORY))
    bare = body(Dialect.ANTHROPIC, Traits(layout=Layout.BLOCKS), asking(GOAL, ASKED, RESULT))

    assert len(list(marked(without_tools["messages"]))) == 3
    assert [part["type"] for part in marked(bare)] == ["text", "tool_use", "tool_result"]


def test_an_envelope_marks_parts_of_the_system_and_of_the_last_messages_that_say_something() -> None:
    sent = body(Dialect.CHAT, Traits(layout=Layout.ENVELOPE), asking(*HISTORY, tools=(READ,), static_chars=STATIC))

    system, first, asked, result, last = sent["messages"]
    assert [part["text"] for part in system["content"]] == ["You are brief.", " Today is Monday."]
    assert first["content"] == "Go."
    assert asked["content"] is None
    assert [part["text"] for part in marked(sent)] == ["You are brief.", " Today is Monday.", "ok", "Go."]
    assert result["content"] == [{"type": "text", "text": "ok", "cache_control": MARK}]
    assert last["content"] == [{"type": "text", "text": "Go.", "cache_control": MARK}]


@pytest.mark.parametrize(("dialect", "layout"), LAYOUTS)
def test_what_holds_for_this_turn_only_is_a_part_of_its_own_without_a_breakpoint(
    dialect: Dialect, layout: Layout
) -> None:
    last = Message(role=Role.USER, content="Go on. Hint of the turn.")

    sent = body(dialect, Traits(layout=layout), asking(SYSTEM, GOAL, last, turn_chars=len(" Hint of the turn.")))

    assert [(part["text"], "cache_control" in part) for part in sent["messages"][-1]["content"]][-2:] == [
        ("Go on.", True),
        (" Hint of the turn.", False),
    ]


@pytest.mark.parametrize(("dialect", "layout"), LAYOUTS)
def test_a_last_message_of_this_turn_alone_leaves_the_breakpoint_to_the_one_before(
    dialect: Dialect, layout: Layout
) -> None:
    hint = Message(role=Role.USER, content="Hint.")
    answer = Message(role=Role.ASSISTANT, content="Yes.")

    sent = body(dialect, Traits(layout=layout), asking(GOAL, answer, hint, turn_chars=5))

    assert [part["text"] for part in marked(sent)] == ["Go.", "Yes."]


@pytest.mark.parametrize(("dialect", "layout"), LAYOUTS)
def test_an_hour_is_said_on_every_breakpoint(dialect: Dialect, layout: Layout) -> None:
    sent = body(dialect, Traits(layout=layout, cache_hour=True), asking(*HISTORY, tools=(READ,)))

    assert [part["cache_control"] for part in marked(sent)] == [{"type": "ephemeral", "ttl": "1h"}] * 4


@pytest.mark.parametrize("dialect", Dialect)
def test_the_conversation_is_named_in_the_field_and_the_header_the_target_has_for_it(dialect: Dialect) -> None:
    traits = Traits(affinity_field="prompt_cache_key", affinity_header="x-session")
    ask = asking(GOAL, affinity="cvy_1")

    rendered = wire_dialect(dialect).render(ask, traits, base_url="https://llm.example", api_key=None)
    plain = wire_dialect(dialect).render(ask, traits, base_url="https://llm.example", api_key=None, mends=PLAIN)

    assert json.loads(rendered.body)["prompt_cache_key"] == rendered.headers["x-session"] == "cvy_1"
    assert "prompt_cache_key" not in json.loads(plain.body)
    assert plain.headers["x-session"] == "cvy_1"
    assert "cvy_1" not in str(body(dialect, Traits(), ask))


def test_configured_headers_win_over_ours_but_for_who_we_are_and_how_the_body_is_read() -> None:
    traits = Traits(
        affinity_header="x-session",
        extra_headers=(("X-Session", "own"), ("User-Agent", "no"), ("authorization", "no"), ("content-type", "no")),
    )

    rendered = wire_dialect(Dialect.CHAT).render(
        asking(GOAL, affinity="cvy_1"), traits, base_url="https://llm.example", api_key="secret"
    )

    assert rendered.headers["x-session"] == "own"
    assert rendered.headers["authorization"] == "Bearer secret"
    assert "no" not in rendered.headers.values()
    assert all(name == name.lower() for name in rendered.headers)


@pytest.mark.parametrize(("dialect", "layout"), LAYOUTS)
def test_what_is_blank_is_no_part_of_its_own(dialect: Dialect, layout: Layout) -> None:
    last = Message(role=Role.USER, content="Go on. \n")

    sent = body(dialect, Traits(layout=layout), asking(GOAL, last, turn_chars=2))

    assert " \n" not in list(parted(sent))
    assert "Go on. \n" not in [part["text"] for part in marked(sent)]


TEXTS = st.sampled_from(["", " ", "a", "Go on.", "你好", "file \udce9", "\n\n"])
MESSAGES = st.lists(
    st.builds(
        lambda role, content, calls: Message(
            role=role,
            content=content,
            tool_calls=calls if role is Role.ASSISTANT else (),
            tool_call_id="c1" if role is Role.TOOL else None,
        ),
        st.sampled_from(Role),
        TEXTS,
        st.sampled_from([(), ASKED.tool_calls, (ToolCall(id="\udce9", name="\udce9 x", arguments="{"),)]),
    ),
    max_size=7,
)
ASKS = st.builds(
    Ask,
    model=st.just("m"),
    messages=MESSAGES.map(tuple),
    tools=st.sampled_from([(), (READ,), (LIST, READ)]),
    static_chars=st.integers(-1, 9),
    turn_chars=st.integers(-1, 9),
)
TARGETS = st.sampled_from([*LAYOUTS, (Dialect.RESPONSES, Layout.BLOCKS)])


@settings(max_examples=300, deadline=None)
@given(ask=ASKS, target=TARGETS, mends=st.frozensets(st.sampled_from(Mend)))
def test_any_history_is_rendered_the_same_each_time_with_four_breakpoints_at_most_that_change_nothing_else(
    ask: Ask, target: tuple[Dialect, Layout], mends: frozenset[Mend]
) -> None:
    dialect, layout = target
    traits, done = Traits(layout=layout), Mends(done=mends - {Mend.NO_CACHE_MARKS})
    wire = wire_dialect(dialect)
    before = repr(ask)

    sent = wire.render(ask, traits, base_url="https://llm.example", api_key=None, mends=done)
    again = wire.render(ask, traits, base_url="https://llm.example", api_key=None, mends=done)
    plain = body(dialect, traits, ask, Mends(done=mends | {Mend.NO_CACHE_MARKS}))

    marked_body = json.loads(sent.body)
    assert sent == again
    assert repr(ask) == before
    assert len(list(marked(marked_body))) <= 4
    assert not list(marked(plain))
    assert all(text.strip() for text in parted(marked_body))
    assert plain == body(dialect, Traits(), ask, done)
    if dialect is Dialect.RESPONSES:
        assert marked_body == plain
    else:
        is_chat = dialect is Dialect.CHAT
        assert joined(unmarked(marked_body), is_chat=is_chat) == joined(plain, is_chat=is_chat)


@settings(max_examples=100, deadline=None)
@given(ask=ASKS, more=MESSAGES)
def test_a_longer_history_begins_with_the_same_words(ask: Ask, more: list[Message]) -> None:
    user = Message(role=Role.USER, content="Go.")
    spoken = tuple(message for message in (*ask.messages, user) if message.role is not Role.SYSTEM)
    answer = Message(role=Role.ASSISTANT, content="Yes.")
    longer = (*spoken, answer, *(message for message in more if message.role is not Role.SYSTEM), user)

    def messages(*said: Message) -> list[Any]:
        sent = body(Dialect.ANTHROPIC, Traits(layout=Layout.BLOCKS), asking(SYSTEM, *said, static_chars=STATIC))
        return unmarked(sent)["messages"]  # type: ignore[no-any-return]  # JSON

    shorter = messages(*spoken)
    assert messages(*longer)[: len(shorter)] == shorter
