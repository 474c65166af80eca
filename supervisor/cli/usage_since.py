"""From when on: `7d`, `24h`, `90m`, `2w`, a date or a date with a time, in this machine's time zone."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from ...protocol.errors import UsageError

UNITS_S: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}

_SPAN: Final = re.compile(r"([1-9][0-9]{0,5})([mhdw])")


def since_ms(text: str, *, now: float) -> int:
    """The moment that is meant, in Unix milliseconds; raises `UsageError`."""
    if span := _SPAN.fullmatch(text.strip()):
        return int((now - int(span[1]) * UNITS_S[span[2]]) * 1000)
    try:
        return int(datetime.fromisoformat(text.strip()).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"--since {text} is no time; valid: a span such as 90m, 24h, 7d or 2w, or a date such as 2026-01-31"
        ) from None


def utc_offset_s(at: float) -> int:
    """What this machine's clock is ahead of UTC at that moment."""
    offset = datetime.fromtimestamp(at).astimezone().utcoffset()
    assert offset is not None, "astimezone makes it aware"
    return int(offset.total_seconds())
