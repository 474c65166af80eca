"""Other names for tools whose own ones a target refuses, and back.

An alias depends on the tool's name alone, so that a conversation begins with the same bytes each time and stays in the
provider's cache; only if two should meet, one of them gets another. It keeps the letters of the name, for the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

import msgspec

LONGEST_NAME: Final = 64
"""Of an id or a tool; OpenAI's bound, Anthropic's is wider."""

_ACCEPTED: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_REFUSED: Final = re.compile(r"[^A-Za-z0-9_-]")
_HEX: Final = 8


class Aliases(msgspec.Struct, frozen=True):
    """Which tool goes by another name in one request."""

    to_target: dict[str, str]
    """The caller's name → the target's, where they differ."""

    def of(self, name: str) -> str:
        """The name that the target knows."""
        return self.to_target.get(name, name)

    def back(self, offered: Iterable[str]) -> dict[str, str]:
        """The target's names of these tools → the caller's, where they differ."""
        return {self.to_target[name]: name for name in offered if name in self.to_target}


def aliases_for(names: Iterable[str], *, refused: Iterable[str] = (), every: bool = False) -> Aliases:
    """Choose aliases for those of `names` that are refused or have other letters; for all of them if `every`.

    None of them is among `names` or `refused`, and no two are the same.
    """
    known, bad = frozenset(names), frozenset(refused)
    taken = {*known, *bad}
    chosen: dict[str, str] = {}
    for name in sorted(known):
        if every or name in bad or not _ACCEPTED.fullmatch(name):
            chosen[name] = _alias(name, taken)
            taken.add(chosen[name])
    return Aliases(chosen)


def word_of(text: str) -> str:
    """The text in the letters that all targets accept, none of them longer than `LONGEST_NAME`."""
    return _REFUSED.sub("_", text)[:LONGEST_NAME]


def _alias(name: str, taken: set[str]) -> str:
    word = word_of(name)[: LONGEST_NAME - _HEX - 3]
    # Some targets want a letter first.
    word = word if word[:1].isalpha() else f"t_{word}"
    attempt = 0
    while True:
        digest = sha256(f"{attempt}:{name}".encode("utf-8", "surrogatepass")).hexdigest()[:_HEX]
        if (alias := f"{word}_{digest}") not in taken:
            return alias
        attempt += 1
