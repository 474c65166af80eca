"""How long a key is left alone after a fault. Pure.

A busy or paused account is no reason: the broker holds calls back, and another key would only add to the load.
"""

from __future__ import annotations

from typing import Final

from ...protocol.fault_kinds import Fault, FaultKind
from ...protocol.messages.credentials import Rest
from ...protocol.redaction import redact

USUAL_MS: Final = 3_600_000
"""Where nobody says when the account is good again."""

LEAST_MS: Final = 60_000
MOST_MS: Final = 31 * 24 * 3_600_000
"""A provider whose clock is wrong must not put a key away for years."""

REASON_CHARS: Final = 200

_DEAD: Final = frozenset({FaultKind.AUTH, FaultKind.LOCKED})
_RESTING: Final = frozenset({FaultKind.QUOTA, FaultKind.NO_BALANCE, FaultKind.PLAN_EXPIRED})


def rest_for(fault: Fault, *, now_ms: int, secret: str | None = None) -> Rest | None:
    """The rest a key deserves for `fault`; None for one that is not the key's. `secret` is kept out of the reason."""
    if fault.kind not in _DEAD | _RESTING:
        return None
    until_ms = None if fault.kind in _DEAD else _until_ms(fault, now_ms)
    return Rest(kind=fault.kind, reason=_reason(fault, secret), since_ms=now_ms, until_ms=until_ms)


def longer(one: Rest | None, other: Rest | None) -> Rest | None:
    """The one of two rests that ends later."""
    if one is None or other is None:
        return one or other
    if one.until_ms is None or other.until_ms is None:
        return one if one.until_ms is None else other
    return one if one.until_ms >= other.until_ms else other


def _until_ms(fault: Fault, now_ms: int) -> int:
    if fault.resets_at is not None:
        wait_ms = fault.resets_at * 1000 - now_ms
    elif fault.retry_after_s is not None:
        wait_ms = fault.retry_after_s * 1000
    else:
        wait_ms = USUAL_MS
    # Also right for what is no number: then no comparison holds, and the least is taken.
    return now_ms + int(max(LEAST_MS, min(wait_ms, MOST_MS)))


def _reason(fault: Fault, secret: str | None) -> str:
    text = fault.summary
    if secret:
        text = text.replace(secret, "[key]")
    return redact(" ".join(text.split())[:REASON_CHARS])
