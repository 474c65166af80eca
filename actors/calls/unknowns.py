"""Errors that no row of the table knows: each is logged once, so that somebody can write the row.

By its fingerprint, which is the same for the same text with other numbers in it: a storm of one error is one line.
"""

from __future__ import annotations

import logging
from typing import Final

from ...protocol.faults import Fault, FaultKind
from ...storage.logs import log_event
from .route import Target

log = logging.getLogger(__name__)

KEPT: Final = 1024
"""Fingerprints that are remembered; behind them, silence."""


class Unknowns:
    """One per process; owned by the loop."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def met(self, fault: Fault, target: Target) -> None:
        """Log `fault` if it is one nobody knows, and the first of its kind."""
        mark = fault.fingerprint
        if fault.kind is not FaultKind.UNKNOWN or mark is None or mark in self._seen or len(self._seen) >= KEPT:
            return
        self._seen.add(mark)
        log_event(
            log,
            "fault_unknown",
            level=logging.WARNING,
            fingerprint=mark,
            provider=target.provider.name,
            model=target.model,
            status=fault.status,
            code=fault.code,
            message=fault.message,
        )
