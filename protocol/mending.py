"""What can be mended in a request that a provider refused, once each. Pure.

A `Mends` goes into the rendering of the next attempt; those in `LASTING` are remembered for the backend, so that its
next call does not have to be refused first.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from .fault_kinds import Fault


class Mend(StrEnum):
    """One change to a request. Rendering a request with it changes nothing else."""

    SHORTER_ANSWER = "shorter_answer"
    """`Mends.max_tokens` bounds the answer."""
    THINK = "think"
    """Thinking is not switched off, whatever the caller said."""
    SAY_NO_EFFORT = "say_no_effort"
    """Nothing is said about thinking at all."""
    DROP_SIGNED = "drop_signed"
    """Signed blocks of earlier answers stay at home."""
    PLAIN_SCHEMAS = "plain_schemas"
    """Tool schemas go without `pattern` and `format`."""
    ALIAS_TOOLS = "alias_tools"
    """Every tool goes by an alias."""
    MERGE_TURNS = "merge_turns"
    """Neighbouring messages of one role become one."""
    NO_CACHE_MARKS = "no_cache_marks"
    """No breakpoints and no cache key."""


LASTING: Final = frozenset(
    {Mend.THINK, Mend.SAY_NO_EFFORT, Mend.PLAIN_SCHEMAS, Mend.ALIAS_TOOLS, Mend.MERGE_TURNS, Mend.NO_CACHE_MARKS}
)
"""What is true of the backend and not of this one request."""


class Mends(msgspec.Struct, frozen=True, kw_only=True):
    """All that is mended in one request."""

    done: frozenset[Mend] = frozenset()
    max_tokens: int | None = None
    """With `SHORTER_ANSWER`: the bound on the answer."""


NO_MENDS: Final = Mends()


def mended(fault: Fault, mends: Mends, *, max_tokens: int | None) -> Mends | None:
    """Mend the request that met `fault` with `mends` already in it; None where nothing (more) can be mended.

    `max_tokens` is the bound on the answer that was sent, None if none was.
    """
    del fault, mends, max_tokens
    return None
