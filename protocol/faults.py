"""Provider errors, named: from the answer's status and body, or by their own name where there was no answer.

Pure: the caller passes `now` (Unix seconds) where a header holds a date.
"""

from __future__ import annotations

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from .fault_evidence import Evidence, one_line, read_evidence
from .fault_kinds import OUTCOME, Fault, FaultAction, FaultKind, FaultScope
from .fault_table import TABLE, Row
from .resets import Reset, read_reset

__all__ = ["Fault", "FaultAction", "FaultKind", "FaultScope", "classify", "fault_named", "retry_after_s", "without_key"]

MAX_RETRY_AFTER_S: Final = 31 * 86_400.0
"""No window is longer than a month; more is a mistake."""

_SECONDS: Final = re.compile(r"\d{1,18}(?:\.\d{1,9})?", re.ASCII)

_NO_RESET: Final = Reset(at=None, window_s=None)


def classify(*, status: int | None, body: bytes, retry_after: str | None = None, now: float | None = None) -> Fault:
    """Name the error of an answer, or of an event inside a stream (`status` None). Never raises, whatever the body.

    `retry_after` is the header as it came; one that holds a date counts only with `now`. Nor is a reset stamp checked
    against the time without it.
    """
    evidence = read_evidence(body)
    stated = status if status is not None and status >= 300 else evidence.status
    row = next((row for row in TABLE if row.fits(evidence, stated)), None)
    kind = row.kind if row is not None else FaultKind.UNKNOWN
    code = _code(evidence, row)
    reset = read_reset(evidence.text, code=code, now=now) if kind is FaultKind.QUOTA else _NO_RESET
    return fault_named(
        kind,
        evidence.message or (f"HTTP {stated} without a message" if stated is not None else "no message"),
        code=code,
        status=stated if stated is not None else status,
        retry_after_s=retry_after_s(retry_after, now=now),
        resets_at=reset.at,
        window_s=reset.window_s,
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
    )


def without_key(fault: Fault, key: str | None) -> Fault:
    """The same fault without the key, in case the provider quoted it."""
    if not key or key not in fault.message:
        return fault
    return msgspec.structs.replace(fault, message=fault.message.replace(key, "[key]"))


def retry_after_s(header: str | None, *, now: float | None) -> float | None:
    """Read a `Retry-After` header, seconds or a date, as seconds from `now`; None if it says nothing usable.

    A date in the past is 0, anything beyond `MAX_RETRY_AFTER_S` is that.
    """
    text = (header or "").strip()
    if _SECONDS.fullmatch(text):
        return min(float(text), MAX_RETRY_AFTER_S)
    date = _date(text) if now is not None else None
    if date is None or now is None:
        return None
    return min(max(0.0, date - now), MAX_RETRY_AFTER_S)


def _date(text: str) -> float | None:
    if not 0 < len(text) <= 64:
        return None
    try:
        date = parsedate_to_datetime(text)
        return (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _code(evidence: Evidence, row: Row | None) -> str | None:
    known = row.codes if row is not None else None
    if known is not None:
        return next(code for code in evidence.codes if code in known)
    return evidence.codes[0] if evidence.codes else None
