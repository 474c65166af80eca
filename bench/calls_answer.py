"""The answer that every call of the calls benchmark gets, and the least that can be done to read it."""

from __future__ import annotations

from typing import Final

import msgspec

CHUNKS: Final = 20
"""Pieces with text in one answer; a last one ends it."""

WORDS: Final = tuple(f" and word number {number:02}" for number in range(CHUNKS))
TEXT: Final = "".join(WORDS)
USAGE: Final = {"prompt_tokens": 180, "completion_tokens": 100, "total_tokens": 280}
DONE: Final = b"data: [DONE]\n\n"

QUESTION: Final = "Count as far as you like, and say a word about every number. " * 12
"""About as much as a short conversation has."""

HURRIED: Final = "hurry"
"""A model that answers at once: for what is to be warm before anything is measured."""


def _event(delta: dict[str, str], finish: str | None = None, usage: dict[str, int] | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {
        "id": "chatcmpl-0123456789abcdef",
        "object": "chat.completion.chunk",
        "created": 1767225600,
        "model": "sim-1",
        "choices": [choice],
        **({} if usage is None else {"usage": usage}),
    }
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


PIECES: Final[tuple[bytes, ...]] = (
    _event({"role": "assistant", "content": WORDS[0]}),
    *(_event({"content": word}) for word in WORDS[1:]),
    _event({}, "stop", USAGE) + DONE,
)
"""What is sent at once each time."""


class _Delta(msgspec.Struct, frozen=True, gc=False):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True, gc=False):
    delta: _Delta


class _Chunk(msgspec.Struct, frozen=True, gc=False):
    choices: tuple[_Choice, ...]
    usage: dict[str, int] | None = None


_decoder = msgspec.json.Decoder(_Chunk)


class LeastReader:
    """Reads just this one answer, in any pieces: what no client can do without."""

    __slots__ = ("_rest", "_text", "is_done", "usage")

    def __init__(self) -> None:
        self._rest = b""
        self._text: list[str] = []
        self.usage: dict[str, int] | None = None
        self.is_done = False

    def feed(self, data: bytes) -> None:
        """Take bytes of the body."""
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            if event == b"data: [DONE]":
                self.is_done = True
                return
            chunk = _decoder.decode(event[6:])
            self.usage = chunk.usage
            content = chunk.choices[0].delta.content
            if content:
                self._text.append(content)

    def check(self) -> None:
        """Raise unless the answer came whole."""
        if not self.is_done or "".join(self._text) != TEXT or self.usage != USAGE:
            raise RuntimeError("an answer did not come as it was sent")
