"""How the ledger stands with its file: sound, faulty for now, or done with it for good.

Pure: the caller passes `now` (monotonic seconds).
"""

from __future__ import annotations

from typing import Final

from ..protocol.errors import StoreError
from ..storage.faults import is_lasting

RETRY_S: Final = 0.5


class Standing:
    """The fault, if there is one, and when the next try is due. Owned by the ledger's thread."""

    def __init__(self) -> None:
        self.fault: StoreError | None = None
        self.retry_at = 0.0
        """While there is a fault, or the journal takes nothing: nothing is written before this monotonic time."""

    @property
    def is_lasting(self) -> bool:
        """Whether nothing more is written to this file. That never ends in this life of the ledger."""
        return self.fault is not None and is_lasting(self.fault)

    @property
    def is_waiting(self) -> bool:
        """Whether records wait for a fault to end."""
        return self.retry_at > 0.0

    def fail(self, error: StoreError, now: float) -> bool:
        """The file cannot be written to; whether that is news. A lasting fault stays what it is."""
        if self.is_lasting:
            return False
        is_news = self.fault is None or str(self.fault) != str(error)
        self.fault = error
        self.retry_at = 0.0 if is_lasting(error) else now + RETRY_S
        return is_news

    def put_off(self, now: float) -> None:
        """The journal takes nothing either."""
        self.retry_at = now + RETRY_S

    def recover(self) -> StoreError | None:
        """Something was written; return the fault that is over by that."""
        self.retry_at = 0.0
        if self.is_lasting:
            return None
        fault, self.fault = self.fault, None
        return fault
