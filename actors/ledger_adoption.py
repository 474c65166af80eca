"""Adoption: one dead sender's spool after another, a part at a time. Owned by the ledger's thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from ..storage.inbox import Delivery
from ..storage.logs import log_event
from ..storage.orphans import Orphan, adopt

ADOPT_RECORDS: Final = 512

log = logging.getLogger(__name__)


class Adoption:
    """What is left of the last look at the folder of spools."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._orphans: Iterator[Orphan] | None = None
        self._orphan: Orphan | None = None
        self._adopted = 0

    @property
    def is_under_way(self) -> bool:
        """Whether there is something to do."""
        return self._orphans is not None

    @property
    def has_records(self) -> bool:
        """Whether records of an orphan wait to be committed."""
        return self._orphan is not None

    def look(self) -> None:
        """Look at the folder anew, unless the last look is not worked off yet."""
        if self._orphans is None:
            self._orphans = adopt(self._folder)

    def step(self, commit: Callable[[Sequence[Delivery]], bool]) -> None:
        """Commit the next part of an orphan; forget it after the last. Nothing changes if `commit` does not."""
        try:
            if self._orphan is None:
                self._next()
                return
            incarnation = self._orphan.incarnation
            part = self._orphan.entries[self._adopted : self._adopted + ADOPT_RECORDS]
            if not commit([(incarnation, seq, record) for seq, record in part]):
                return
            self._adopted += len(part)
            if self._adopted >= len(self._orphan.entries):
                self._orphan.forget()
                log_event(log, "spool_adopted", role=self._orphan.role, sender=incarnation, records=self._adopted)
                self._orphan = None
        except OSError as error:
            log_event(log, "outbox_unreadable", level=logging.ERROR, path=self._folder, error=error)
            self.release()

    def release(self) -> None:
        """Leave everything to another look."""
        if self._orphan is not None:
            self._orphan.release()
        self._orphan = self._orphans = None

    def _next(self) -> None:
        assert self._orphans is not None, "there is a look to go on with"
        self._orphan, self._adopted = next(self._orphans, None), 0
        if self._orphan is None:
            self._orphans = None
