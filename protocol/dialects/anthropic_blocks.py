"""Anthropic Messages: turns and their blocks, and where breakpoints stand on them (`Layout.BLOCKS`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile, groupby, takewhile
from typing import Final, Literal

import msgspec

from ..transcript import Message, Role
from .ask import Choice, NamedTool
from .draft import Mark
from .signed_blocks import raw_blocks

WORDLESS: Final = "(nothing said)"
"""Stands in where the user has to speak and did not: at the beginning, and for an empty last word."""


class Text(msgspec.Struct, frozen=True, tag="text"):
    """Words."""

    text: str
    cache_control: Mark | msgspec.UnsetType = msgspec.UNSET


class ToolUse(msgspec.Struct, frozen=True, tag="tool_use"):
    """A call of the assistant's."""

    id: str
    name: str
    input: msgspec.Raw
    cache_control: Mark | msgspec.UnsetType = msgspec.UNSET


class ToolResult(msgspec.Struct, frozen=True, tag="tool_result"):
    """What came of it."""

    tool_use_id: str
    content: str
    cache_control: Mark | msgspec.UnsetType = msgspec.UNSET


Block = Text | ToolUse | ToolResult | msgspec.Raw
"""Raw are signed blocks, which must not be touched."""


class Turn(msgspec.Struct, frozen=True):
    """Everything one side says before the other does."""

    role: Literal["user", "assistant"]
    content: list[Block]


Placed = tuple[Turn, int]
"""A turn, and how many of its blocks are still there in the next request, from the first on."""


def turns_of(messages: Sequence[Message], turn_chars: int, *, has_signed: bool) -> list[Placed]:
    """Each role's words in a row as one turn; a tool's results are the user's, and come before his words.

    The last `turn_chars` characters, which hold for this turn only, become a block of their own if they are words and
    not all there is; else the whole block is not there in the next request.
    """
    turns = [(turn, len(turn.content)) for turn in _turns(messages, has_signed)]
    if not turn_chars or not messages:
        return turns
    turn, _ = turns[-1]
    *before, last = turn.content
    parts = _parts(last, turn_chars)
    return [*turns[:-1], (Turn(turn.role, [*before, *parts]), len(before) + len(parts) - 1)]


def marked_turns(turns: list[Placed], mark: Mark, marks: int) -> list[Placed]:
    """The turns with a breakpoint on each of the last `marks` of them that can have one."""
    left = marks
    marked: list[Placed] = []
    for turn, stable in reversed(turns):
        place = _markable(turn.content[:stable]) if left > 0 else None
        if place is not None:
            left -= 1
            blocks = list(turn.content)
            blocks[place] = _with_mark(blocks[place], mark)
            marked.append((Turn(turn.role, blocks), stable))
        else:
            marked.append((turn, stable))
    return marked[::-1]


def is_call_forced(choice: Choice | NamedTool | None) -> bool:
    """Whether the model has to call a tool; Anthropic takes no thinking then."""
    return isinstance(choice, NamedTool) or choice is Choice.REQUIRED


def began_thoughtless(messages: Sequence[Message]) -> bool:
    """Whether the calls made last belong to a turn that did not begin with thinking: no budget is taken then.

    A turn lasts from the user's words on, over all calls and their results. Only its beginning has to be thought about:
    models that think once a turn go on without.
    """
    backwards = dropwhile(lambda message: not _is_assistant(message), reversed(messages))
    turn = [
        message for message in takewhile(lambda one: one.role is not Role.USER, backwards) if _is_assistant(message)
    ]
    return bool(turn) and bool(turn[0].tool_calls) and not raw_blocks(turn[-1].signed)


def _turns(messages: Iterable[Message], has_signed: bool) -> Iterator[Turn]:
    is_first = True
    for is_assistant, said in groupby(messages, key=_is_assistant):
        if is_first and is_assistant:
            yield Turn("user", [Text(WORDLESS)])
        is_first = False
        blocks = [block for message in said for block in _blocks(message, has_signed)]
        yield Turn("assistant" if is_assistant else "user", blocks or [Text(WORDLESS)])
    if is_first:
        yield Turn("user", [Text(WORDLESS)])


def _is_assistant(message: Message) -> bool:
    return message.role is Role.ASSISTANT


def _blocks(message: Message, has_signed: bool) -> Iterator[Block]:
    if message.tool_call_id is not None:
        yield ToolResult(message.tool_call_id, message.content)
        return
    if has_signed and message.role is Role.ASSISTANT:
        yield from raw_blocks(message.signed)
    if message.content.strip():
        yield Text(message.content)
    for call in message.tool_calls:
        yield ToolUse(call.id, call.name, msgspec.Raw(call.arguments.encode()))


def _parts(block: Block, turn_chars: int) -> list[Block]:
    """The block in two, if what is of this turn only can be cut off; else alone. The last one is of this turn."""
    if not isinstance(block, Text):
        return [block]
    stable, turn = block.text[:-turn_chars], block.text[-turn_chars:]
    return [Text(stable), Text(turn)] if stable.strip() and turn.strip() else [block]


def _markable(blocks: Sequence[Block]) -> int | None:
    """Where a breakpoint can stand: on the last block that is not signed."""
    return next((place for place in reversed(range(len(blocks))) if not isinstance(blocks[place], msgspec.Raw)), None)


def _with_mark(block: Block, mark: Mark) -> Block:
    assert not isinstance(block, msgspec.Raw), "signed blocks are never marked"
    return msgspec.structs.replace(block, cache_control=mark)
