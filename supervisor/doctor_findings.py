"""What a check found: how it stands, and what to do about it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    """It works, and something is probably not meant."""
    FAIL = "fail"
    """The fleet, or a provider, will not work like this."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a check; never holds a secret."""

    check: str
    """A fixed word for what was looked at."""
    level: Level
    says: str
    to_do: str | None = None
    """Whose move it is and which; None where there is nothing to do."""


def ok(check: str, says: str) -> Finding:
    """All is well."""
    return Finding(check=check, level=Level.OK, says=says)


def warn(check: str, says: str, to_do: str) -> Finding:
    """Probably not meant."""
    return Finding(check=check, level=Level.WARN, says=says, to_do=to_do)


def fail(check: str, says: str, to_do: str) -> Finding:
    """Will not work."""
    return Finding(check=check, level=Level.FAIL, says=says, to_do=to_do)
