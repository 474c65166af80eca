"""What may be sent: pairs of calls and results, no empty messages; valid histories untouched."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.protocol.transcript import INTERRUPTED_RESULT, Message, Role, ToolCall, is_storable, repair


def user(text: str = "go on") -> Message:
    return Message(role=Role.USER, content=text)


def said(text: str = "well") -> Message:
    return Message(role=Role.ASSISTANT, content=text)


def calls(*ids: str, text: str = "", arguments: str = "{}") -> Message:
    tool_calls = tuple(ToolCall(id=name, name="read_file", arguments=arguments) for name in ids)
    return Message(role=Role.ASSISTANT, content=text, tool_calls=tool_calls)


def result(id_: str, text: str = "found") -> Message:
    return Message(role=Role.TOOL, content=text, tool_call_id=id_)


def lost(id_: str) -> Message:
    return result(id_, INTERRUPTED_RESULT)


SYSTEM = Message(role=Role.SYSTEM, content="You are careful.")


@pytest.mark.parametrize(
    ("history", "sent"),
    [
        pytest.param([calls("a")], [calls("a"), lost("a")], id="a call without result gets one"),
        pytest.param(
            [user(), calls("a", "b", "c"), result("b"), user()],
            [user(), calls("a", "b", "c"), lost("a"), result("b"), lost("c"), user()],
            id="some of several calls have results",
        ),
        pytest.param(
            [calls("a", "b"), result("b"), result("a")],
            [calls("a", "b"), result("a"), result("b")],
            id="results come into the order of the calls",
        ),
        pytest.param(
            [calls("a"), user("stop"), result("a")],
            [calls("a"), result("a"), user("stop")],
            id="a result behind a user's word moves up",
        ),
        pytest.param(
            [calls("a"), said(""), result("a")], [calls("a"), result("a")], id="an empty answer does not hide a result"
        ),
        pytest.param(
            [calls("a"), result("a", "1"), result("a", "2"), said()],
            [calls("a"), result("a", "1"), said()],
            id="the first of two results counts",
        ),
        pytest.param(
            [calls("a", "a"), result("a", "1"), result("a", "2")],
            [calls("a", "a"), result("a", "1"), result("a", "2")],
            id="two calls under one id have a result each",
        ),
        pytest.param([result("a"), user()], [user()], id="a result without call is dropped"),
        pytest.param(
            [calls("a"), result("a"), said(), result("a")],
            [calls("a"), result("a"), said()],
            id="a result after the next answer is dropped",
        ),
        pytest.param(
            [calls("a"), said("so"), result("a")],
            [calls("a"), lost("a"), said("so")],
            id="a result that came too late does not count",
        ),
        pytest.param([user("1"), said(""), user("2")], [user("1"), user("2")], id="an empty answer is dropped"),
        pytest.param([user("1"), said(" \n")], [user("1")], id="so is a blank one at the end"),
        pytest.param(
            [user("1"), user(""), user("2")], [user("1"), user("2")], id="an empty word of the user is dropped"
        ),
        pytest.param([user("1"), said(), user("")], [user("1"), said(), user("")], id="but not the last one"),
        pytest.param(
            [calls("a", arguments='{"ti'), result("a", "arguments are no JSON")],
            [calls("a", arguments="{}"), result("a", "arguments are no JSON")],
            id="half JSON is not sent again",
        ),
        pytest.param([calls("a", arguments="[1]")], [calls("a"), lost("a")], id="arguments are an object"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_a_history_is_mended(history: list[Message], sent: list[Message]) -> None:
    assert repair(history) == tuple(sent)


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([SYSTEM, user(), said(), user()], id="talk"),
        pytest.param([user("1"), user("2"), said()], id="two words of the user in a row"),
        pytest.param([SYSTEM, user(), calls("a", text="look"), result("a", ""), said()], id="an empty result"),
        pytest.param(
            [user(), calls("a", "b"), result("a"), result("b"), calls("a"), result("a"), said()],
            id="the same id again in a later turn",
        ),
        pytest.param([user(), calls("a", arguments='{"x": [1, {"y": "é"}]}'), result("a")], id="nested arguments"),
    ],
)
def test_a_valid_history_is_not_touched(history: list[Message]) -> None:
    sent = repair(history)

    assert len(sent) == len(history)
    assert all(after is before for after, before in zip(sent, history, strict=True))


IDS = st.sampled_from(["a", "b", "c"])
MESSAGES = st.lists(
    st.one_of(
        st.builds(user, st.sampled_from(["", " ", "x", "y"])),
        st.builds(said, st.sampled_from(["", "\n", "x"])),
        st.builds(
            lambda ids, arguments: calls(*ids, arguments=arguments),
            st.lists(IDS, min_size=1, max_size=3),
            st.sampled_from(["{}", '{"a', ""]),
        ),
        st.builds(result, IDS, st.sampled_from(["", "1", "2"])),
        st.just(SYSTEM),
    ),
    max_size=12,
)


@settings(max_examples=400)
@given(MESSAGES)
def test_a_mended_history_needs_no_mending(history: list[Message]) -> None:
    sent = repair(history)

    assert repair(sent) == sent


@settings(max_examples=400)
@given(MESSAGES)
def test_a_mended_history_has_every_result_right_after_its_calls_and_nothing_empty(history: list[Message]) -> None:
    sent = list(repair(history))

    for place, message in enumerate(sent):
        if message.role is Role.ASSISTANT:
            assert is_storable(message)
        if message.role is Role.USER and place < len(sent) - 1:
            assert message.content.strip()
    while sent:
        message = sent.pop(0)
        assert message.role is not Role.TOOL, "a result without its call"
        for call in message.tool_calls:
            answer = sent.pop(0)
            assert (answer.role, answer.tool_call_id) == (Role.TOOL, call.id)


@settings(max_examples=200)
@given(MESSAGES)
def test_mending_invents_no_words_and_keeps_the_order_of_the_others(history: list[Message]) -> None:
    def talk(messages: list[Message]) -> list[Message]:
        return [m for m in messages if m.role in (Role.USER, Role.SYSTEM) and m.content.strip()]

    assert talk(list(repair(history))) == talk(history)


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        pytest.param(said(""), False, id="an empty answer"),
        pytest.param(said(" \n\t"), False, id="a blank answer"),
        pytest.param(said("x"), True, id="an answer"),
        pytest.param(calls("a"), True, id="calls without text"),
        pytest.param(user(""), True, id="a user's empty word"),
        pytest.param(result("a", ""), True, id="an empty result"),
    ],
)
def test_only_an_empty_answer_is_not_stored(message: Message, kept: bool) -> None:
    assert is_storable(message) is kept
