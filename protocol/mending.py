"""What can be mended in a request that a provider refused, once each. Pure.

A `Mends` goes into the rendering of the next attempt; those in `LASTING` are remembered for the backend, so that its
next call does not have to be refused first.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from .fault_kinds import Fault, FaultKind

LEAST_ANSWER: Final = 512
"""Below that an answer is cut before it says anything."""
AFFORD_MARGIN: Final = 64
"""What the prompt costs is counted a little differently every time."""


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


_ANSWERS: Final[dict[FaultKind, tuple[Mend, ...]]] = {
    FaultKind.REASONING_MANDATORY: (Mend.THINK, Mend.SAY_NO_EFFORT),
    FaultKind.REASONING_REFUSED: (Mend.SAY_NO_EFFORT,),
    FaultKind.SIGNATURE_REFUSED: (Mend.DROP_SIGNED,),
    FaultKind.SCHEMA_REFUSED: (Mend.PLAIN_SCHEMAS,),
    FaultKind.NAME_REFUSED: (Mend.ALIAS_TOOLS,),
    FaultKind.ROLES_REFUSED: (Mend.MERGE_TURNS,),
    # Histories are repaired on the way out; what is left is the order some providers want and do not name.
    FaultKind.MALFORMED_HISTORY: (Mend.MERGE_TURNS,),
    FaultKind.CACHE_REFUSED: (Mend.NO_CACHE_MARKS,),
}
"""What answers a fault: the first that is not done yet."""


def mended(fault: Fault, mends: Mends, *, max_tokens: int | None) -> Mends | None:
    """Mend the request that met `fault` with `mends` already in it; None where nothing (more) can be mended.

    `max_tokens` is the bound on the answer that was sent, None if none was. No mend is made twice, so that a request
    is mended at most as often as there are mends.
    """
    bound = _shorter(fault, max_tokens)
    if bound is not None and Mend.SHORTER_ANSWER not in mends.done:
        return Mends(done=mends.done | {Mend.SHORTER_ANSWER}, max_tokens=bound)
    mend = next((one for one in _ANSWERS.get(fault.kind, ()) if one not in mends.done), None)
    return None if mend is None else Mends(done=mends.done | {mend}, max_tokens=mends.max_tokens)


def _shorter(fault: Fault, sent: int | None) -> int | None:
    """The bound on the answer that `fault` asks for, if it is lower than the one that was sent."""
    bound: int | None = None
    match fault:
        case Fault(kind=FaultKind.OUTPUT_TOO_LONG, limit_tokens=int(limit)):
            bound = limit
        case Fault(kind=FaultKind.UNAFFORDABLE, limit_tokens=int(limit)) if limit >= LEAST_ANSWER:
            bound = max(LEAST_ANSWER, limit - AFFORD_MARGIN)
        case _:
            pass
    return bound if bound is not None and (sent is None or bound < sent) else None
