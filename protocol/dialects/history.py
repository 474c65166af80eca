"""The history for dialects that keep the system's words apart and are strict about the names and ids of tool calls.

Histories outlive providers: an id that one of them made up may be refused by the next, for ever. So ids and names are
written in the letters that all accept, and an id that comes a second time gets a number. Which id a call gets depends
only on what stands before it, so a longer history begins like the shorter one and stays in the provider's cache.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator

import msgspec

from ..transcript import Message, Role, ToolCall
from .aliases import LONGEST_NAME, word_of
from .tool_calls import UNNAMED_TOOL


class History(msgspec.Struct, frozen=True):
    """A repaired history. Each result follows its call, by the call's id."""

    system: str
    """All that the system says, wherever it said it."""
    messages: tuple[Message, ...]


def split(repaired: Iterable[Message]) -> History:
    """Split a repaired history. Half surrogate pairs, which no JSON text can hold, become question marks."""
    repaired = tuple(repaired)
    system = [encodable(message.content) for message in repaired if message.role is Role.SYSTEM]
    spoken = (message for message in repaired if message.role is not Role.SYSTEM)
    return History("\n\n".join(system), tuple(_renamed(spoken)))


def _renamed(messages: Iterable[Message]) -> Iterator[Message]:
    ids, asked = _Ids(), deque[str]()
    for message in messages:
        content = encodable(message.content)
        if message.role is Role.TOOL:
            # Repaired: the results of an answer stand right behind it, in the order of its calls.
            yield Message(role=Role.TOOL, content=content, tool_call_id=asked.popleft())
            continue
        calls = tuple(_renamed_call(call, ids) for call in message.tool_calls)
        asked.extend(call.id for call in calls)
        yield Message(role=message.role, content=content, tool_calls=calls, signed=message.signed)


def _renamed_call(call: ToolCall, ids: _Ids) -> ToolCall:
    return ToolCall(id=ids.unlike_others(call.id), name=word_of(call.name) or UNNAMED_TOOL, arguments=call.arguments)


class _Ids:
    """The ids given out in one history."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._times: Counter[str] = Counter()

    def unlike_others(self, id_: str) -> str:
        """An id as close to `id_` as may be."""
        word = word_of(id_) or "call"
        chosen = word
        while chosen in self._given:
            self._times[word] += 1
            number = f"_{self._times[word] + 1}"
            chosen = word[: LONGEST_NAME - len(number)] + number
        self._given.add(chosen)
        return chosen


def encodable(text: str) -> str:
    """The text with question marks for half surrogate pairs."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
