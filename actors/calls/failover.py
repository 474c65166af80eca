"""Whether a call that met a fault stays where it is, takes another key, or may go elsewhere. Pure rules, no state.

Staying is cheap while it is short: the prompt is cached here and nowhere else, and the broker brings who waits through
in order. It is not worth hours, nor a third failure in a row where somebody else could answer.
"""

from __future__ import annotations

from typing import Final

from ...protocol.backend import NO_CREDENTIAL, Backend
from ...protocol.fault_kinds import Fault, FaultKind, FaultScope
from .benches import reset_in_s
from .patience import is_stale

WAIT_WORTH_S: Final = 60.0
"""A longer wait than this is worth less than another target. A prompt cache lives for five minutes, so a minute leaves
most of them warm; the broker's ordinary pauses are within it; and a window of hours is far beyond."""
FAILOVER_RETRIES: Final = 2
"""Where there is another target, a passing trouble gets so many more attempts here."""
OF_KEY: Final = (FaultScope.CREDENTIAL, FaultScope.ACCOUNT)
"""What another key may be without."""

_ROTATING: Final = frozenset(
    {
        FaultKind.AUTH,
        FaultKind.QUOTA,
        FaultKind.NO_BALANCE,
        FaultKind.PLAN_EXPIRED,
        FaultKind.MODEL_NOT_IN_PLAN,
        FaultKind.UNAFFORDABLE,
    }
)
"""Another key may belong to another account. LOCKED is not in here: the owner of the account is to act, and going round
a lock with the next key may close that one too. CONCURRENCY is the broker's."""


def may_rotate(fault: Fault, backend: Backend, *, rates: int, wall: float) -> bool:
    """Whether another key of the same target is to be tried; `rates` counts `RATE` faults with this key in a row."""
    if backend.credential in (None, NO_CREDENTIAL):
        return False
    wait_s = reset_in_s(fault, wall)
    if fault.kind is FaultKind.RATE:
        return rates > 1 or (wait_s is not None and wait_s > WAIT_WORTH_S)
    is_soon = fault.kind is FaultKind.QUOTA and wait_s is not None and wait_s <= WAIT_WORTH_S
    return fault.kind in _ROTATING and not is_soon


def is_worth_staying(fault: Fault, *, attempts: int, wall: float) -> bool:
    """Whether the same target is to be asked again although another could be; `attempts` have failed here."""
    if fault.kind is FaultKind.CONCURRENCY:
        return True
    if fault.kind is FaultKind.NOT_SENT or is_stale(fault):
        # A backend that is left alone asks for time, and a silence took longer than a prompt stays cached.
        return False
    wait_s = reset_in_s(fault, wall)
    if fault.kind is FaultKind.QUOTA and wait_s is None:
        return False
    return attempts <= FAILOVER_RETRIES and (wait_s is None or wait_s <= WAIT_WORTH_S)


def may_help_elsewhere(fault: Fault) -> bool:
    """Whether any other target could help.

    A request of too many bytes is the agent's to shorten; a process without a free file has none for anybody.
    """
    return fault.kind not in (FaultKind.PAYLOAD_TOO_LARGE, FaultKind.OUT_OF_FILES)
