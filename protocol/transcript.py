"""Messages of a conversation, as they are kept and as they may be sent.

Providers refuse, for ever, a history in which a tool call lacks its result, a result lacks its call, or a message
is empty. `repair` mends the copy that is sent; what is kept stays as it is, except that an empty answer is never kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

import msgspec

from .settings import Dialect

INTERRUPTED_RESULT: Final = "interrupted; whether it ran is not known"
"""Stands in for the result of a tool call that has none."""


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool the model asked for. `arguments` is the JSON text as the model wrote it: it may not parse."""

    id: str
    name: str
    arguments: str


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """A block of thinking that the model's provider wants back as it was, behind its signature or encrypted.

    It means nothing to another dialect or model, and is sent to none.
    """

    dialect: Dialect
    model: str
    """The one that was asked."""
    data: str
    """The block as JSON text."""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message. `tool_calls` and `signed` only on the assistant's, `tool_call_id` only on a tool's."""

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    signed: tuple[Signed, ...] = ()
    """In the order they came. They say nothing: a message of these alone is empty."""


def is_storable(message: Message) -> bool:
    """Whether the message may be kept: an assistant's that says and asks nothing may not."""
    return not (message.role is Role.ASSISTANT and _is_empty(message))


def repair(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the history as it may be sent; a history that any provider takes comes back unchanged.

    After an assistant's message stand the results of exactly its calls, in their order: the first one given before
    the assistant spoke again, or `INTERRUPTED_RESULT`. Other results are dropped. Arguments that are no JSON object
    are sent as `{}` (their result says what was wrong). Empty messages are dropped; only the user's last word stays.
    """
    # Empty answers go first: one between a call and its result would hide the result.
    spoken = list(_paired([_sendable(message) for message in messages if is_storable(message)]))
    return tuple(
        message
        for place, message in enumerate(spoken, start=1)
        if place == len(spoken) or message.role is not Role.USER or not _is_empty(message)
    )


def _is_empty(message: Message) -> bool:
    return not message.tool_calls and not message.content.strip()


def _sendable(message: Message) -> Message:
    if all(_is_object(call.arguments) for call in message.tool_calls):
        return message
    calls = tuple(
        call if _is_object(call.arguments) else msgspec.structs.replace(call, arguments="{}")
        for call in message.tool_calls
    )
    return msgspec.structs.replace(message, tool_calls=calls)


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False


def _paired(messages: list[Message]) -> Iterator[Message]:
    for place, message in enumerate(messages):
        if message.role is Role.TOOL:
            continue
        yield message
        if message.tool_calls:
            yield from _results(message.tool_calls, _until_assistant(messages, place + 1))


def _until_assistant(messages: list[Message], start: int) -> Iterator[Message]:
    for place in range(start, len(messages)):
        if messages[place].role is Role.ASSISTANT:
            return
        yield messages[place]


def _results(calls: tuple[ToolCall, ...], later: Iterable[Message]) -> Iterator[Message]:
    given = [message for message in later if message.role is Role.TOOL]
    for call in calls:
        found = next((message for message in given if message.tool_call_id == call.id), None)
        if found is None:
            yield Message(role=Role.TOOL, content=INTERRUPTED_RESULT, tool_call_id=call.id)
        else:
            given.remove(found)
            yield found
