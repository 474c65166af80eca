"""A request before it is put into a dialect's shape: all that is decided in the same way for the three of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Final

import msgspec

from ..mending import Mend, Mends
from ..settings import Dialect
from ..transcript import Message, Role, repair
from .aliases import aliases_for
from .ask import Ask, Choice, Layout, NamedTool, Traits
from .schemas import plain_schema
from .thinking import Thought, thought_of
from .tool_spec import ToolSpec

MARKS: Final = 4
"""Breakpoints in one request; Anthropic refuses more."""

_BETWEEN: Final = "\n\n"
_DATE: Final = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2})$")


class Mark(msgspec.Struct, frozen=True):
    """A breakpoint: what stands before it, and the part it is on, is to be cached."""

    type: str = "ephemeral"
    ttl: str | msgspec.UnsetType = msgspec.UNSET


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What a request will say. Tools have the target's names, everywhere."""

    model: str
    messages: tuple[Message, ...]
    """Repaired. `signed` are those that the target gets."""
    tools: tuple[ToolSpec, ...]
    choice: Choice | NamedTool | None
    """None: nothing is said of it, which leaves it to the model."""
    names: dict[str, str]
    """For `Rendered`."""
    stream: bool
    max_tokens: int | None
    thought: Thought | None
    mark: Mark | None
    """What marks a breakpoint, in the layout that the dialect has; None: there are none."""
    static_chars: int
    """Of the first system message; never more than it has."""
    turn_chars: int
    """Of the last message; never more than it has."""


def draft_of(ask: Ask, traits: Traits, mends: Mends, dialect: Dialect, layout: Layout) -> Draft:
    """Decide what is said to a target; `layout` is the one that the dialect can mark breakpoints in."""
    repaired = repair(ask.messages)
    tools = {tool.name: tool for tool in reversed(ask.tools)}
    called = (call.name for message in repaired for call in message.tool_calls)
    every = Mend.ALIAS_TOOLS in mends.done
    aliases = aliases_for((*tools, *called), refused=traits.refused_names, every=every)
    messages = _merged(repaired) if Mend.MERGE_TURNS in mends.done else repaired
    is_marked = traits.layout is layout and Mend.NO_CACHE_MARKS not in mends.done
    signer = None if Mend.DROP_SIGNED in mends.done else ask.model
    return Draft(
        model=ask.model,
        messages=tuple(_for_target(message, aliases.to_target, dialect, signer) for message in messages),
        tools=tuple(_tool(tools[name], aliases.of(name), mends) for name in reversed(tools)),
        choice=_choice(ask.tool_choice, tools, aliases.to_target),
        names=aliases.back(tools),
        stream=ask.stream,
        max_tokens=_bound(ask.max_tokens, mends),
        thought=thought_of(ask.effort, traits, mends),
        mark=Mark(ttl="1h" if traits.cache_hour else msgspec.UNSET) if is_marked else None,
        static_chars=_static_chars(ask, messages),
        turn_chars=_turn_chars(ask, messages),
    )


def is_same_model(kept: str, asked: str) -> bool:
    """Whether both are one model; the date in a name tells no two apart."""
    return _undated(kept) == _undated(asked)


def _merged(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Neighbours of one role as one message; the results of tools stay apart."""
    runs = (list(run) for _, run in groupby(messages, key=lambda message: message.role))
    return tuple(message for run in runs for message in (run if run[0].role is Role.TOOL else [_joined(run)]))


def _joined(run: list[Message]) -> Message:
    if len(run) == 1:
        return run[0]
    return Message(
        role=run[0].role,
        content=_BETWEEN.join(message.content for message in run if message.content),
        tool_calls=tuple(call for message in run for call in message.tool_calls),
        signed=tuple(block for message in run for block in message.signed),
    )


def _for_target(message: Message, names: dict[str, str], dialect: Dialect, model: str | None) -> Message:
    """The message with the target's names of tools, and without the blocks of others (of all, where it has none)."""
    if not message.signed and not (names and message.tool_calls):
        return message
    signed = tuple(
        block
        for block in message.signed
        if model is not None and block.dialect is dialect and is_same_model(block.model, model)
    )
    if any(call.name in names for call in message.tool_calls):
        calls = tuple(
            msgspec.structs.replace(call, name=names.get(call.name, call.name)) for call in message.tool_calls
        )
        return msgspec.structs.replace(message, tool_calls=calls, signed=signed)
    return message if signed == message.signed else msgspec.structs.replace(message, signed=signed)


def _tool(tool: ToolSpec, name: str, mends: Mends) -> ToolSpec:
    schema = plain_schema(tool.parameters) if Mend.PLAIN_SCHEMAS in mends.done else tool.parameters
    return ToolSpec(name=name, description=tool.description, parameters=schema)


def _choice(choice: Choice | NamedTool, tools: Iterable[str], names: dict[str, str]) -> Choice | NamedTool | None:
    """What is said of the choice: nothing without tools, or of what goes without saying."""
    if isinstance(choice, NamedTool):
        return NamedTool(names.get(choice.name, choice.name)) if choice.name in tools else None
    return None if choice is Choice.AUTO or not tools else choice


def _bound(asked: int | None, mends: Mends) -> int | None:
    mended = mends.max_tokens if Mend.SHORTER_ANSWER in mends.done else None
    bounds = [bound for bound in (asked, mended) if bound is not None]
    return min(bounds, default=None)


def _static_chars(ask: Ask, messages: Iterable[Message]) -> int:
    first = next((message for message in messages if message.role is Role.SYSTEM), None)
    return min(max(ask.static_chars, 0), len(first.content)) if first is not None else 0


def _turn_chars(ask: Ask, messages: tuple[Message, ...]) -> int:
    """Nothing, if the message that ended with them is not the last one after repair."""
    said = ask.messages[-1].content if ask.messages else ""
    if ask.turn_chars <= 0 or not messages or not said.strip() or not messages[-1].content.endswith(said):
        return 0
    return min(ask.turn_chars, len(said))


def _undated(model: str) -> str:
    return _DATE.sub("", model)
