"""How a call that was not answered is told: in one line, every target that was tried with its reason. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.advice import advice
from ...protocol.errors import CoveyError
from ...protocol.faults import Fault
from .route import Target

Cause = Fault | CoveyError


def problem(cause: Cause, target: Target, trail: Iterable[tuple[Target, Cause]], *, attempts: int) -> str:
    """What went wrong: `cause` at `target` in the end, and before that what is in `trail`; and whose move it is."""
    last = {where.name: why for where, why in trail} | {target.name: cause}
    if len(last) == 1:
        reasons = words(cause) + (f" (after {attempts} attempts)" if attempts > 1 else "")
    else:
        reasons = "; ".join(f"{name}: {words(why)}" for name, why in last.items())
    hint = advice(cause, target.provider.base_url) if isinstance(cause, Fault) else None
    return f"{reasons}; {hint}" if hint else reasons


def words(cause: Cause) -> str:
    """One reason."""
    return cause.summary if isinstance(cause, Fault) else str(cause)
