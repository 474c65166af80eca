"""Contents of chat messages: text, or parts of it where a breakpoint stands on one (`Layout.ENVELOPE`)."""

from __future__ import annotations

from typing import Literal

import msgspec

from ..transcript import Message, Role
from .draft import MARKS, Draft, Mark


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a message's text."""

    type: Literal["text"] = "text"
    text: str
    cache_control: Mark | msgspec.UnsetType = msgspec.UNSET


Content = str | list[Part]


def contents_of(draft: Draft) -> list[Content]:
    """The content of each message; all text, if nothing is to be marked.

    Marked are the static part of the system's words, their end, and the last messages that say something; never what
    the last message says for this turn only.
    """
    contents: list[Content] = [message.content for message in draft.messages]
    if draft.mark is None:
        return contents
    left = MARKS
    system = next((place for place, message in enumerate(draft.messages) if message.role is Role.SYSTEM), None)
    if system is not None and (parts := _system(draft.messages[system], draft, draft.mark)):
        contents[system], left = parts, left - len(parts)
    for place in reversed(range(len(contents))):
        if left == 0:
            break
        if place == system:
            continue
        turn_chars = draft.turn_chars if place == len(contents) - 1 else 0
        if parts := _marked(draft.messages[place].content, turn_chars, draft.mark):
            contents[place], left = parts, left - 1
    return contents


def _system(message: Message, draft: Draft, mark: Mark) -> list[Part]:
    text, static = message.content, draft.static_chars
    if message is draft.messages[-1] and draft.turn_chars:
        return _marked(text, draft.turn_chars, mark)
    texts = [text[:static], text[static:]]
    if not all(part.strip() for part in texts):
        texts = [text] if text.strip() else []
    return [Part(text=part, cache_control=mark) for part in texts]


def _marked(text: str, turn_chars: int, mark: Mark) -> list[Part]:
    """The text as parts, the stable one marked; none, if there is no such part, or the other one would be blank."""
    stable, turn = text[: len(text) - turn_chars], text[len(text) - turn_chars :]
    if not stable.strip() or (turn and not turn.strip()):
        return []
    rest = [Part(text=turn)] if turn else []
    return [Part(text=stable, cache_control=mark), *rest]
