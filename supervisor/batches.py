"""Which records travel next: batches in order, a few under way at once, and all over again from the first refused one.

Pure. The ledger takes a sender's records without gaps: once it refuses a batch it refuses those behind it, too. Only a
sender that it does not know yet may begin anywhere; so until the first batch is committed, there is no second one that
could overtake it.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

from ..protocol.messages.ledger import Append, LedgerRecord

MAX_BATCH: Final = 512
MAX_UNDER_WAY: Final = 4


class Batches:
    """The records that are not committed, numbered from 1, and how far they were sent.

    Every batch from `next` ends in exactly one of `committed`, `refused` and `too_large`.
    """

    def __init__(self, *, most: int = MAX_BATCH, under_way: int = MAX_UNDER_WAY) -> None:
        self._records: deque[LedgerRecord] = deque()
        self._most = self._now_most = most
        self._may_be_under_way = under_way
        self._under_way = 0
        self._is_refused = False
        self._sent = 0
        self.last = 0
        """The number of the newest record."""
        self.upto = 0
        """Everything up to this number is committed."""

    @property
    def is_all_sent(self) -> bool:
        """Whether every record is under way or committed."""
        return self._sent >= self.last

    @property
    def is_to_be_resumed(self) -> bool:
        """Whether a batch was refused and those behind it have come back: time to `resume`, after a while."""
        return self._is_refused and not self._under_way

    def add(self, record: LedgerRecord) -> None:
        """One more record, with the next number."""
        self._records.append(record)
        self.last += 1

    def next(self) -> Append | None:
        """The batch to send now; None if there is nothing to send, or it has to wait for an answer."""
        may_be = self._may_be_under_way if self.upto else 1
        if self._is_refused or self.is_all_sent or self._under_way >= may_be:
            return None
        skip = self._sent - self.upto
        batch = tuple(islice(self._records, skip, skip + self._now_most))
        append = Append(first=self._sent + 1, records=batch)
        self._sent += len(batch)
        self._under_way += 1
        return append

    def committed(self, upto: int) -> None:
        """A batch came back: the ledger has everything up to `upto`."""
        self._under_way -= 1
        self._now_most = min(self._most, self._now_most * 2)
        for _ in range(min(upto, self.last) - self.upto):
            self._records.popleft()
        self.upto = max(self.upto, min(upto, self.last))
        self._sent = max(self._sent, self.upto)

    def refused(self) -> None:
        """A batch came back: nothing of it was taken."""
        self._under_way -= 1
        self._is_refused = True

    def too_large(self) -> None:
        """A batch was never sent, because a link does not carry so much at once: send fewer."""
        self._now_most = max(1, self._now_most // 2)
        self.refused()

    def resume(self) -> None:
        """Send again from the first record that is not committed."""
        assert self.is_to_be_resumed, "what is still under way would be sent twice at once"
        self._is_refused = False
        self._sent = self.upto
