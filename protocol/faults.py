"""Provider errors, named: from the answer's status and body, or by their own name where there was no answer.

Pure: the caller passes `now` (Unix seconds) where a header holds a date.
"""

from __future__ import annotations

from typing import Final

import msgspec

from .fault_evidence import Evidence, one_line, read_evidence
from .fault_fingerprint import fingerprint_of
from .fault_kinds import OUTCOME, Fault, FaultAction, FaultKind, FaultScope
from .fault_table import TABLE, Row
from .limit_texts import affordable_tokens, answer_tokens, room_tokens, speaks_of_answer, window_tokens
from .resets import Reset, read_reset
from .retry_times import MAX_RETRY_AFTER_S, retry_after_of, retry_after_s, said_s

__all__ = [
    "MAX_RETRY_AFTER_S",
    "Fault",
    "FaultAction",
    "FaultKind",
    "FaultScope",
    "classify",
    "fault_named",
    "retry_after_of",
    "retry_after_s",
    "without_key",
]

FAR_BELOW: Final = 2
"""A request this many times smaller than every known bound is not too long, however roughly its tokens are counted."""

_WAITS: Final = frozenset({FaultKind.RATE, FaultKind.CONCURRENCY, FaultKind.OVERLOADED, FaultKind.UPSTREAM_LIMITED})
_NO_RESET: Final = Reset(at=None, window_s=None)


def classify(
    *,
    status: int | None,
    body: bytes,
    retry_after: str | None = None,
    now: float | None = None,
    sent_tokens: int | None = None,
    window_tokens: int | None = None,
) -> Fault:
    """Name the error of an answer, or of an event inside a stream (`status` None). Never raises, whatever the body.

    `retry_after` is the header as it came, or what `retry_after_of` makes of all of them; one that holds a date counts
    only with `now`. Nor is a reset stamp checked against the time without it. A prompt of about `sent_tokens` that
    is far below `window_tokens`, the model's window, is never called too long.
    """
    evidence = read_evidence(body)
    stated = status if status is not None and status >= 300 else evidence.status
    row = next((row for row in TABLE if row.fits(evidence, stated)), None)
    kind, limit_tokens = _bounded(
        row.kind if row is not None else FaultKind.UNKNOWN, evidence.text, sent=sent_tokens, window=window_tokens
    )
    code = _code(evidence, row)
    reset = read_reset(evidence.text, code=code, now=now) if kind is FaultKind.QUOTA else _NO_RESET
    wait_s = retry_after_s(retry_after, now=now)
    return fault_named(
        kind,
        evidence.message or (f"HTTP {stated} without a message" if stated is not None else "no message"),
        code=code,
        status=stated if stated is not None else status,
        retry_after_s=said_s(evidence.text) if wait_s is None and kind in _WAITS else wait_s,
        resets_at=reset.at,
        window_s=reset.window_s,
        limit_tokens=limit_tokens,
        fingerprint=_fingerprint(evidence, stated) if kind is FaultKind.UNKNOWN else None,
    )


def fault_named(
    kind: FaultKind,
    message: str,
    *,
    code: str | None = None,
    status: int | None = None,
    retry_after_s: float | None = None,
    resets_at: float | None = None,
    window_s: float | None = None,
    limit_tokens: int | None = None,
    fingerprint: str | None = None,
) -> Fault:
    """Make a fault of a known kind: scope and action follow from it. For what no body tells: timeouts, connections."""
    scope, action = OUTCOME[kind]
    return Fault(
        kind=kind,
        scope=scope,
        action=action,
        message=one_line(message),
        code=code,
        status=status,
        retry_after_s=retry_after_s,
        resets_at=resets_at,
        window_s=window_s,
        limit_tokens=limit_tokens,
        fingerprint=fingerprint,
    )


def without_key(fault: Fault, key: str | None) -> Fault:
    """The same fault without the key, in case the provider quoted it."""
    if not key or key not in fault.message:
        return fault
    return msgspec.structs.replace(fault, message=fault.message.replace(key, "[key]"))


def _bounded(kind: FaultKind, text: str, *, sent: int | None, window: int | None) -> tuple[FaultKind, int | None]:
    """The kind once the numbers of the text are read, and the bound it names."""
    match kind:
        case FaultKind.UNAFFORDABLE:
            return kind, affordable_tokens(text)
        case FaultKind.OUTPUT_TOO_LONG:
            # "too large: 32000; the maximum context length is 32768": the window is no bound on the answer.
            named, room = answer_tokens(text), room_tokens(text)
            return kind, min((bound for bound in (named, room) if bound is not None), default=None)
        case FaultKind.CONTEXT_OVERFLOW:
            return _overflow(text, sent=sent, window=window)
        case _:
            return kind, None


def _overflow(text: str, *, sent: int | None, window: int | None) -> tuple[FaultKind, int | None]:
    room = room_tokens(text)
    if room is not None:
        return FaultKind.OUTPUT_TOO_LONG, room
    named = window_tokens(text)
    bounds = [bound for bound in (named, window) if bound is not None]
    if sent is None or not bounds or sent * FAR_BELOW >= min(bounds):
        return FaultKind.CONTEXT_OVERFLOW, named
    # The prompt fits twice over. Either the answer asked for does not, or it is about something else.
    return (FaultKind.OUTPUT_TOO_LONG if speaks_of_answer(text) else FaultKind.BAD_REQUEST), None


def _fingerprint(evidence: Evidence, status: int | None) -> str:
    codes = " ".join(code for code in evidence.codes if not code.isdigit())
    # The digits of a status would be taken for one number among many.
    stated = "" if status is None else "".join(chr(ord("a") + int(digit)) for digit in str(status))
    return fingerprint_of(f"{stated} {codes} {evidence.text}")


def _code(evidence: Evidence, row: Row | None) -> str | None:
    known = row.codes if row is not None else None
    if known is not None:
        return next(code for code in evidence.codes if code in known)
    return evidence.codes[0] if evidence.codes else None
