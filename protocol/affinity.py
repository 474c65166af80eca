"""Who a conversation is, for providers that route or cache by it: a hash, for nobody there needs the names behind it.

A declared conversation (its source, its key there, the generation it is in) goes before everything else: all sessions
that carry it on are one. Without one it is the session that the lineage began with: what a resume or a compaction goes
on with is the same conversation still. An agent's children are conversations of their own, since they begin with other
words, and a key that many use at once is spread over machines by the providers and helps nobody; only a child that
begins with a copy of its parent's history takes its parent's key along.

Keys are only ever compared: nothing is read out of one.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from .ids import SessionId

PREFIX: Final = "cvy_"
_HEX: Final = 24


def affinity_key(source: str, key: str, generation: int) -> str:
    """The key of a declared conversation; the same key under another source, or a generation later, is another one."""
    return _hashed(["conversation", source, key, str(generation)])


def session_affinity(root: SessionId) -> str:
    """The key of a conversation that nobody declared, by the session it began with."""
    return _hashed(["session", root])


def _hashed(parts: list[str]) -> str:
    # In hex, so that no two lists of parts look alike, whatever stands in them.
    text = "|".join(part.encode("utf-8", "surrogatepass").hex() for part in parts)
    return PREFIX + sha256(text.encode()).hexdigest()[:_HEX]
