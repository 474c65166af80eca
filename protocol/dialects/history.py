"""The history for dialects that keep the system's words apart and are strict about the names and ids of tool calls.

Histories outlive providers: an id that one of them made up may be refused by the next, for ever. So ids and names are
written in the letters that all accept, and an id that comes a second time gets a number. Which id a call gets depends
only on what stands before it, so a longer history begins like the shorter one and stays in the provider's cache.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from ..transcript import Message, Role, ToolCall, repair
from .tool_calls import UNNAMED_TOOL

LONGEST_NAME: Final = 64
"""Of an id or a tool; OpenAI's bound, Anthropic's is wider."""

_REFUSED: Final = re.compile(r"[^A-Za-z0-9_-]")


class History(msgspec.Struct, frozen=True):
    """A repaired history. Each result follows its call, by the call's id."""

    system: str
    """All that the system says, wherever it said it."""
    messages: tuple[Message, ...]


def history_of(messages: Iterable[Message]) -> History:
    """Repair a history and split it. Half surrogate pairs, which no JSON text can hold, become question marks."""
    repaired = repair(messages)
    system = [_encodable(message.content) for message in repaired if message.role is Role.SYSTEM]
    spoken = (message for message in repaired if message.role is not Role.SYSTEM)
    return History("\n\n".join(system), tuple(_renamed(spoken)))


def _renamed(messages: Iterable[Message]) -> Iterator[Message]:
    ids, asked = _Ids(), deque[str]()
    for message in messages:
        content = _encodable(message.content)
        if message.role is Role.TOOL:
            # Repaired: the results of an answer stand right behind it, in the order of its calls.
            yield Message(role=Role.TOOL, content=content, tool_call_id=asked.popleft())
            continue
        calls = tuple(_renamed_call(call, ids) for call in message.tool_calls)
        asked.extend(call.id for call in calls)
        yield Message(role=message.role, content=content, tool_calls=calls)


def _renamed_call(call: ToolCall, ids: _Ids) -> ToolCall:
    return ToolCall(id=ids.unlike_others(call.id), name=_word(call.name) or UNNAMED_TOOL, arguments=call.arguments)


class _Ids:
    """The ids given out in one history."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._times: Counter[str] = Counter()

    def unlike_others(self, id_: str) -> str:
        """An id as close to `id_` as may be."""
        word = _word(id_) or "call"
        chosen = word
        while chosen in self._given:
            self._times[word] += 1
            number = f"_{self._times[word] + 1}"
            chosen = word[: LONGEST_NAME - len(number)] + number
        self._given.add(chosen)
        return chosen


def _word(text: str) -> str:
    return _REFUSED.sub("_", text)[:LONGEST_NAME]


def _encodable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
