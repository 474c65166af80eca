"""One agent's conversation about one goal: what to store, when to call the model, which tools to run, when it ends.

Pure: `step(conversation, event, rules)` returns the next conversation and the actions to perform, in order. What is
stored is always a history a provider would take: no empty turn, and after every end each tool call has its result.

    Fresh --Began--> Calling --Answered--> InTools --ToolEnded--> Calling ... --> Ended

An event that has no place in a phase raises `IllegalEvent` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from ..protocol.messages.fleet import AgentState
from ..protocol.transcript import INTERRUPTED_RESULT, Message, Role, ToolCall
from .conversation_events import (
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

STOPPED: Final = "stopped; whether it had an effect is not known"
CUT: Final = "\n[cut here: the model reached its output limit]"
NOTHING: Final = "[no output]"


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of a conversation."""

    max_turns: int
    """Answers of the model that count; an empty one is asked for again and does not."""
    max_fruitless: int = 3
    """Answers in a row that cannot be stored before the conversation fails."""
    result_chars: int = 100_000
    repeatable: frozenset[str] = frozenset()
    """Tools that are run again after an interruption."""


Step = tuple[Conversation, tuple[Action, ...]]


class IllegalEvent(AssertionError):
    """An event in a phase that has no place for it: a bug of the shell. The conversation is as it was."""

    def __init__(self, phase: Phase, event: Event) -> None:
        super().__init__(f"{type(event).__name__} while {type(phase).__name__}")
        self.phase, self.event = phase, event


# --- the rule --------------------------------------------------------------------------------------------------------


def step(conversation: Conversation, event: Event, rules: Rules) -> Step:
    """What follows from `event`; raises `IllegalEvent`."""
    match conversation.phase, event:
        case Fresh(), Began():
            return _begin(event, rules)
        case Calling() as phase, Answered():
            return _answered(conversation, phase, event, rules)
        case Calling(), CallFailed():
            return _finish(conversation, Finish(AgentState.FAILED, error=event.error))
        case Calling(), CapMet():
            return _finish(conversation, Finish(AgentState.CAP_REACHED, error=event.reason))
        case InTools() as phase, ToolEnded() if any(call.id == event.call_id for call in phase.pending):
            return _tool_ended(conversation, phase, event, rules)
        case ((Fresh() | Calling() | InTools()), Stopped()):
            return _end_now(conversation, Finish(AgentState.STOPPED, error=event.reason), rules)
        case ((Fresh() | Calling() | InTools()), Broken()):
            return _end_now(conversation, Finish(AgentState.FAILED, error=event.error), rules)
        case Ended(), Stopped():
            return conversation, ()
        case _:
            raise IllegalEvent(conversation.phase, event)


def unfinished(messages: tuple[Message, ...]) -> tuple[ToolCall, ...]:
    """The tool calls of the last answer that have no result."""
    answered: set[str | None] = set()
    for message in reversed(messages):
        if message.role is not Role.TOOL:
            return tuple(call for call in message.tool_calls if call.id not in answered)
        answered.add(message.tool_call_id)
    return ()


def bounded(text: str, limit: int) -> str:
    """`text`, or its head and tail around a note when it is longer than `limit` characters; always valid Unicode."""
    text = text.encode(errors="replace").decode()
    if len(text) <= limit:
        return text
    head, tail = limit * 3 // 4, limit // 4
    return f"{text[:head]}\n[... {len(text) - head - tail} characters left out ...]\n{text[len(text) - tail :]}"


def _begin(event: Began, rules: Rules) -> Step:
    stored = event.transcript
    conversation = Conversation(messages=stored.messages)
    if stored.outcome is not None:
        return _finish(conversation, Finish(AgentState(stored.outcome), text=stored.result or "", error=stored.error))
    if not stored.messages:
        conversation, appended = _append(conversation, [Message(role=Role.USER, content=event.request)])
        return _then(appended, _call(conversation, 1, rules))
    last = stored.messages[-1]
    if last.role is Role.ASSISTANT and not last.tool_calls:
        return _finish(conversation, Finish(AgentState.DONE, text=last.content))
    return _resume_tools(conversation, rules)


def _resume_tools(conversation: Conversation, rules: Rules) -> Step:
    """Go on behind an answer whose calls may have run or not."""
    missing = unfinished(conversation.messages)
    lost = [call for call in missing if call.name not in rules.repeatable]
    again = tuple(call for call in missing if call.name in rules.repeatable)
    turn = conversation.turn
    conversation, appended = _append(conversation, [_result(call, INTERRUPTED_RESULT, rules) for call in lost])
    return _then(appended, _run(conversation, turn, again, rules))


def _answered(conversation: Conversation, phase: Calling, event: Answered, rules: Rules) -> Step:
    if event.tool_calls and event.is_cut:
        return _ask_again(conversation, phase, "cut at the output limit within a tool call", rules)
    if event.tool_calls:
        calls = _distinct(event.tool_calls, conversation.messages)
        answer = Message(role=Role.ASSISTANT, content=event.text, tool_calls=calls, signed=event.signed)
        conversation, appended = _append(conversation, [answer])
        return _then(appended, _run(conversation, phase.turn, calls, rules))
    if not event.text.strip():
        return _ask_again(conversation, phase, "empty", rules)
    text = event.text + CUT if event.is_cut else event.text
    answer = Message(role=Role.ASSISTANT, content=text, signed=event.signed)
    conversation, appended = _append(conversation, [answer])
    return _then(appended, _finish(conversation, Finish(AgentState.DONE, text=text)))


def _ask_again(conversation: Conversation, phase: Calling, problem: str, rules: Rules) -> Step:
    count = phase.fruitless + 1
    if count >= rules.max_fruitless:
        return _finish(
            conversation,
            Finish(AgentState.FAILED, error=f"{count} answers in a row of no use, the last one: {problem}"),
        )
    return Conversation(Calling(phase.turn, count), conversation.messages), (StartCall(phase.turn),)


def _tool_ended(conversation: Conversation, phase: InTools, event: ToolEnded, rules: Rules) -> Step:
    ended = next(call for call in phase.pending if call.id == event.call_id)
    pending = tuple(call for call in phase.pending if call is not ended)
    conversation, appended = _append(conversation, [_result(ended, event.text, rules)])
    if pending:
        return Conversation(InTools(phase.turn, pending), conversation.messages), appended
    return _then(appended, _call(conversation, phase.turn + 1, rules))


def _run(conversation: Conversation, turn: int, calls: tuple[ToolCall, ...], rules: Rules) -> Step:
    """Run `calls`, unless no turn is left in which the model could read their results."""
    if not calls:
        return _call(conversation, turn + 1, rules)
    if turn >= rules.max_turns:
        return _give_up(conversation, calls, f"not run: turn {turn} was the last one", _out_of_turns(rules), rules)
    return Conversation(InTools(turn, calls), conversation.messages), (RunTools(calls),)


def _call(conversation: Conversation, turn: int, rules: Rules) -> Step:
    if turn > rules.max_turns:
        return _finish(conversation, _out_of_turns(rules))
    return Conversation(Calling(turn), conversation.messages), (StartCall(turn),)


def _out_of_turns(rules: Rules) -> Finish:
    return Finish(AgentState.FAILED, error=f"no final answer within {rules.max_turns} turns (max_turns)")


def _end_now(conversation: Conversation, finish: Finish, rules: Rules) -> Step:
    pending = conversation.phase.pending if isinstance(conversation.phase, InTools) else ()
    return _give_up(conversation, pending, STOPPED, finish, rules)


def _give_up(conversation: Conversation, calls: Iterable[ToolCall], why: str, finish: Finish, rules: Rules) -> Step:
    """End with a result for each of `calls`, so that no call is left without one."""
    conversation, appended = _append(conversation, [_result(call, why, rules) for call in calls])
    return _then(appended, _finish(conversation, finish))


def _finish(conversation: Conversation, finish: Finish) -> Step:
    return Conversation(Ended(), conversation.messages), (finish,)


def _append(conversation: Conversation, new: list[Message]) -> tuple[Conversation, tuple[Action, ...]]:
    first = len(conversation.messages)
    actions = tuple(AppendMessage(index, message) for index, message in enumerate(new, first))
    return Conversation(conversation.phase, (*conversation.messages, *new)), actions


def _then(before: tuple[Action, ...], after: Step) -> Step:
    conversation, actions = after
    return conversation, before + actions


def _result(call: ToolCall, text: str, rules: Rules) -> Message:
    content = bounded(text, rules.result_chars) if text.strip() else NOTHING
    return Message(role=Role.TOOL, content=content, tool_call_id=call.id)


def _distinct(calls: tuple[ToolCall, ...], messages: tuple[Message, ...]) -> tuple[ToolCall, ...]:
    """`calls` with ids that no other call of the transcript has: some providers number them anew in every answer."""
    taken = {call.id for message in messages for call in message.tool_calls}
    renamed = []
    for number, call in enumerate(calls):
        id_ = call.id.strip() or "call"
        while id_ in taken:
            id_ = f"{id_}_{len(messages)}_{number}"
        taken.add(id_)
        renamed.append(ToolCall(id=id_, name=call.name, arguments=call.arguments))
    return tuple(renamed)
