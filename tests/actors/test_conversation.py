"""The conversation machine: what it stores is always a history a provider takes, and it always ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.actors.conversation import CUT, IllegalEvent, Rules, bounded, step, unfinished
from covey.actors.conversation_events import (
    Action,
    Answered,
    AppendMessage,
    Began,
    Broken,
    CallFailed,
    Calling,
    CapMet,
    Conversation,
    Ended,
    Event,
    Finish,
    Fresh,
    InTools,
    Phase,
    RunTools,
    StartCall,
    Stopped,
    ToolEnded,
)
from covey.protocol.messages.fleet import AgentState
from covey.protocol.messages.ledger import Transcript
from covey.protocol.settings import Dialect
from covey.protocol.transcript import INTERRUPTED_RESULT, Message, Role, Signed, ToolCall

RULES = Rules(max_turns=4, repeatable=frozenset({"read_file"}))
NEW = Began("count the sheep", Transcript())
CALL = ToolCall(id="a", name="terminal", arguments="{}")
READ = ToolCall(id="b", name="read_file", arguments="{}")

REQUEST = Message(role=Role.USER, content="count the sheep")
ASKED = Message(role=Role.ASSISTANT, tool_calls=(CALL, READ))


def play(*events: Event, rules: Rules = RULES, start: Conversation | None = None) -> tuple[Conversation, list[Action]]:
    """The conversation after `events`, and every action on the way."""
    conversation, actions = start or Conversation(), []
    for event in events:
        conversation, more = step(conversation, event, rules)
        actions += more
    return conversation, actions


def result(call: ToolCall, text: str = "42") -> Message:
    return Message(role=Role.TOOL, content=text, tool_call_id=call.id)


# --- the ordinary course ---------------------------------------------------------------------------------------------


def test_a_new_session_stores_the_request_and_calls() -> None:
    _, actions = play(NEW)

    assert actions == [AppendMessage(0, REQUEST), StartCall(1)]


@pytest.mark.parametrize("calls", [(), (CALL,)], ids=["the last word", "calls"])
def test_signed_blocks_of_an_answer_stay_with_it(calls: tuple[ToolCall, ...]) -> None:
    block = Signed(dialect=Dialect.ANTHROPIC, model="claude", data="{}")

    conversation, _ = play(NEW, Answered("seven", calls, signed=(block,)))

    assert conversation.messages[-1].signed == (block,)


def test_an_answer_without_tools_is_the_end() -> None:
    conversation, actions = play(NEW, Answered("seven"))

    assert actions[2:] == [
        AppendMessage(1, Message(role=Role.ASSISTANT, content="seven")),
        Finish(AgentState.DONE, text="seven"),
    ]
    assert conversation.turn == 1


def test_an_answer_with_tools_is_stored_before_they_run() -> None:
    _, actions = play(NEW, Answered("let me look", (CALL,)))

    answer = Message(role=Role.ASSISTANT, content="let me look", tool_calls=(CALL,))
    assert actions[2:] == [AppendMessage(1, answer), RunTools((CALL,))]


def test_each_result_is_stored_as_it_comes_and_the_last_one_calls_again() -> None:
    _, actions = play(NEW, Answered("", (CALL, READ)), ToolEnded("b", "x"), ToolEnded("a", "y"))

    assert actions[4:] == [AppendMessage(2, result(READ, "x")), AppendMessage(3, result(CALL, "y")), StartCall(2)]


def test_the_last_turn_runs_no_tools_and_fails_with_its_number() -> None:
    events = [NEW]
    for turn in range(1, 5):
        events += [Answered("", (CALL,))]
        if turn < 4:
            renamed = "a" if turn == 1 else f"a_{2 * turn - 1}_0"
            events += [ToolEnded(renamed, "")]

    conversation, actions = play(*events)

    assert actions[-1] == Finish(AgentState.FAILED, error="no final answer within 4 turns (max_turns)")
    assert unfinished(conversation.messages) == ()


def test_a_repeated_tool_call_id_is_made_unique_over_the_whole_transcript() -> None:
    conversation, _ = play(NEW, Answered("", (CALL, CALL)), ToolEnded("a", ""), ToolEnded("a_1_1", ""))
    conversation, _ = play(Answered("", (CALL,)), start=conversation)

    ids = [call.id for message in conversation.messages for call in message.tool_calls]
    assert len(ids) == len(set(ids)) == 3


# --- useless answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "useless",
    [
        pytest.param(Answered(""), id="empty"),
        pytest.param(Answered(" \n"), id="blank"),
        pytest.param(Answered("so I will", (CALL,), is_cut=True), id="tool call cut at the output limit"),
    ],
)
def test_a_useless_answer_is_asked_for_again_and_never_stored(useless: Answered) -> None:
    conversation, actions = play(NEW, useless, useless)

    assert conversation.messages == (REQUEST,)
    assert actions[2:] == [StartCall(1), StartCall(1)]


def test_three_useless_answers_in_a_row_are_a_failure() -> None:
    _, actions = play(NEW, Answered(""), Answered(""), Answered(""))

    assert actions[-1] == Finish(AgentState.FAILED, error="3 answers in a row of no use, the last one: empty")


def test_a_useful_answer_forgives_the_useless_ones_before() -> None:
    conversation, _ = play(NEW, Answered(""), Answered(""), Answered("", (READ,)), ToolEnded("b", "x"))

    assert conversation.phase == Calling(2, fruitless=0)


def test_a_text_cut_at_the_output_limit_says_so() -> None:
    _, actions = play(NEW, Answered("one, two", is_cut=True))

    assert actions[-1] == Finish(AgentState.DONE, text="one, two" + CUT)


def test_a_failed_call_is_the_end_and_stores_nothing() -> None:
    conversation, actions = play(NEW, CallFailed("no balance"))

    assert conversation.messages == (REQUEST,)
    assert actions[-1] == Finish(AgentState.FAILED, error="no balance")


# --- stop ------------------------------------------------------------------------------------------------------------


def test_stop_while_tools_run_gives_every_call_a_result() -> None:
    conversation, actions = play(NEW, Answered("", (CALL, READ)), ToolEnded("b", "x"), Stopped("asked to"))

    assert actions[-1] == Finish(AgentState.STOPPED, error="asked to")
    assert unfinished(conversation.messages) == ()


def test_a_broken_shell_is_a_failure_that_leaves_no_call_without_result() -> None:
    conversation, actions = play(NEW, Answered("", (CALL, READ)), Broken("bug"))

    assert actions[-1] == Finish(AgentState.FAILED, error="bug")
    assert unfinished(conversation.messages) == ()


@pytest.mark.parametrize("before", [(), (NEW,)], ids=["before the start", "while calling"])
def test_stop_elsewhere_ends_and_stores_nothing_more(before: tuple[Event, ...]) -> None:
    _, actions = play(*before, Stopped("asked to"))

    assert actions[-1] == Finish(AgentState.STOPPED, error="asked to")
    assert len(actions) == (3 if before else 1)


def test_stop_after_the_end_changes_nothing() -> None:
    ended, _ = play(NEW, Answered("seven"))

    assert step(ended, Stopped("late"), RULES) == (ended, ())


# --- resume ----------------------------------------------------------------------------------------------------------


def resume(*messages: Message, outcome: str | None = None) -> tuple[Conversation, list[Action]]:
    return play(Began("ignored", Transcript(messages=messages, outcome=outcome, result="seven" if outcome else None)))


def test_resumed_before_the_first_answer_it_calls_again() -> None:
    assert resume(REQUEST)[1] == [StartCall(1)]


def test_resumed_within_tools_only_repeatable_ones_run_again() -> None:
    _, actions = resume(REQUEST, ASKED)

    assert actions == [AppendMessage(2, result(CALL, INTERRUPTED_RESULT)), RunTools((READ,))]


def test_resumed_with_one_result_stored_only_the_other_is_repeated() -> None:
    _, actions = resume(REQUEST, ASKED, result(CALL))

    assert actions == [RunTools((READ,))]


def test_resumed_with_all_results_it_asks_for_the_next_turn() -> None:
    _, actions = resume(REQUEST, ASKED, result(READ), result(CALL))

    assert actions == [StartCall(2)]


def test_resumed_behind_a_final_answer_it_ends_without_a_call() -> None:
    _, actions = resume(REQUEST, Message(role=Role.ASSISTANT, content="seven"))

    assert actions == [Finish(AgentState.DONE, text="seven")]


def test_resumed_with_an_outcome_it_reports_the_same_again() -> None:
    _, actions = resume(REQUEST, ASKED, outcome="done")

    assert actions == [Finish(AgentState.DONE, text="seven")]


def test_a_cap_that_is_reached_is_an_end_of_its_own() -> None:
    _, actions = play(NEW, CapMet("cap swarm is reached"))

    assert actions[-1] == Finish(AgentState.CAP_REACHED, error="cap swarm is reached")


# --- illegal events --------------------------------------------------------------------------------------------------

PHASES: dict[str, Phase] = {
    "fresh": Fresh(),
    "calling": Calling(1),
    "in tools": InTools(1, (CALL,)),
    "ended": Ended(),
}
EVENTS: dict[str, Event] = {
    "began": NEW,
    "answered": Answered("x"),
    "call failed": CallFailed("x"),
    "cap met": CapMet("x"),
    "tool ended": ToolEnded("a", "x"),
    "stopped": Stopped("x"),
    "broken": Broken("x"),
}
LEGAL = {
    ("fresh", "began"),
    ("calling", "answered"),
    ("calling", "call failed"),
    ("calling", "cap met"),
    ("in tools", "tool ended"),
    ("fresh", "broken"),
    ("calling", "broken"),
    ("in tools", "broken"),
} | {(phase, "stopped") for phase in PHASES}


@pytest.mark.parametrize(("phase", "event"), sorted({(p, e) for p in PHASES for e in EVENTS} - LEGAL))
def test_an_event_without_a_place_is_refused(phase: str, event: str) -> None:
    with pytest.raises(IllegalEvent):
        step(Conversation(PHASES[phase], (REQUEST, ASKED)), EVENTS[event], RULES)


def test_a_result_of_a_call_that_is_not_pending_is_refused() -> None:
    with pytest.raises(IllegalEvent):
        play(NEW, Answered("", (CALL,)), ToolEnded("unknown", "x"))


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_a_long_result_keeps_head_and_tail() -> None:
    text = bounded("a" * 500 + "z" * 500, 100)

    assert text.startswith("a" * 75)
    assert text.endswith("z" * 25)
    assert "900 characters left out" in text


def test_a_name_that_is_not_unicode_becomes_storable_text() -> None:
    assert bounded("bad \udc80 name", 100) == "bad ? name"


# --- any course ------------------------------------------------------------------------------------------------------

calls = st.lists(
    st.builds(
        ToolCall,
        id=st.sampled_from(["", "a", "b", "a_1_0"]),
        name=st.sampled_from(["terminal", "read_file", "no_such_tool"]),
        arguments=st.sampled_from(["{}", '{"x', ""]),
    ),
    max_size=3,
).map(tuple)
answers = st.builds(Answered, st.sampled_from(["", " ", "text"]), calls, st.booleans())


def check_history(messages: tuple[Message, ...], *, is_over: bool) -> None:
    """What any provider takes: no empty turn, unique ids, a result right behind each call, no result without one."""
    waiting: set[str | None] = set()
    seen: set[str] = set()
    for message in messages:
        assert message.content.strip() or message.tool_calls
        if message.role is Role.TOOL:
            assert message.tool_call_id in waiting
            waiting.remove(message.tool_call_id)
            continue
        assert not waiting
        ids = [call.id for call in message.tool_calls]
        assert len(set(ids)) == len(ids)
        assert not seen & set(ids)
        assert all(ids)
        seen |= set(ids)
        waiting = set(ids)
    assert not (is_over and waiting)


@given(st.data())
def test_any_course_ends_and_leaves_a_history_a_provider_takes(data: st.DataObject) -> None:
    rules = Rules(max_turns=data.draw(st.integers(1, 4)), result_chars=50, repeatable=frozenset({"read_file"}))
    stored: list[Message] = []
    conversation, actions = step(Conversation(), NEW, rules)
    for _ in range(200):
        for action in actions:
            if isinstance(action, AppendMessage):
                assert action.index == len(stored)
                stored.append(action.message)
        assert tuple(stored) == conversation.messages
        check_history(conversation.messages, is_over=isinstance(conversation.phase, Ended))
        if isinstance(conversation.phase, Ended):
            break
        fate = data.draw(st.sampled_from(["go on"] * 8 + ["stop", "die"]))
        if fate == "stop":
            end = data.draw(st.sampled_from([Stopped("asked to"), Broken("bug")]))
            conversation, actions = step(conversation, end, rules)
        elif fate == "die":  # another process resumes from what is stored
            conversation, actions = step(Conversation(), Began("again", Transcript(messages=tuple(stored))), rules)
        else:
            conversation, actions = step(conversation, data.draw(next_event(conversation)), rules)
    else:
        pytest.fail("it does not end")

    assert isinstance(actions[-1], Finish)
    assert actions[-1].outcome.is_final


def next_event(conversation: Conversation) -> st.SearchStrategy[Event]:
    match conversation.phase:
        case InTools(pending=pending):
            return st.builds(
                ToolEnded,
                st.sampled_from([call.id for call in pending]),
                st.sampled_from(["", " ", "x" * 80, "\udc80"]),
            )
        case _:
            return answers | st.just(CallFailed("gone"))
