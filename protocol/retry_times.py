"""When the provider wants to be asked again: its headers, or what the text says. Pure: `now` is in Unix seconds.

`x-ratelimit-reset…` is not read: it tells when an allowance is whole again, in seconds, milliseconds, dates or spans
as the provider likes, and not when the next request would pass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

MAX_RETRY_AFTER_S: Final = 31 * 86_400.0
"""No window is longer than a month; more is a mistake."""

_SECONDS: Final = re.compile(r"\d{1,18}(?:\.\d{1,9})?", re.ASCII)
_SPAN: Final = re.compile(
    r"\b(?:try again|retry)(?: your request)? (?:in|after) "
    r"(?:(\d{1,9}) ?(?:h|hours?)(?![a-z]) ?)?(?:(\d{1,9}) ?(?:m|min|minutes?)(?![a-z]) ?)?"
    r"(?:(\d{1,9}(?:\.\d{1,9})?) ?(?:s|sec|seconds?)(?![a-z]))?"
    r"(?:(\d{1,9}(?:\.\d{1,9})?) ?(?:ms|milliseconds?)(?![a-z]))?",
    re.ASCII,
)
_FACTORS: Final = (3600.0, 60.0, 1.0, 0.001)


def retry_after_of(headers: Mapping[str, str]) -> str | None:
    """Take from the answer's headers (names in lower case, or in no case at all) what `classify` wants to be told.

    `retry-after-ms`, where it is a number, is finer than `retry-after`; of two numbers the smaller one counts.
    """
    plain, fine = headers.get("retry-after"), (headers.get("retry-after-ms") or "").strip()
    if not _SECONDS.fullmatch(fine):
        return plain
    seconds = float(fine) / 1000
    stated = (plain or "").strip()
    if _SECONDS.fullmatch(stated):
        seconds = min(seconds, float(stated))
    return f"{min(seconds, MAX_RETRY_AFTER_S):.3f}"


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


def said_s(text: str) -> float | None:
    """Read `try again in 1m30s` and its like from an error's text, in lower case; None if it says no such thing."""
    found = _SPAN.search(text)
    if found is None or not any(found.groups()):
        return None
    span_s = sum(float(number) * factor for number, factor in zip(found.groups(), _FACTORS, strict=True) if number)
    return min(span_s, MAX_RETRY_AFTER_S)


def _date(text: str) -> float | None:
    if not 0 < len(text) <= 64:
        return None
    try:
        date = parsedate_to_datetime(text)
        return (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
