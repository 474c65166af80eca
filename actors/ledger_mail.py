"""What the ledger's loop side says to its thread, and what of it waits there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ..protocol.ids import Incarnation
from ..protocol.messages.ledger import LedgerQuery, LedgerReply
from ..storage.inbox import Delivery
from ..storage.spool import Entry

GROUP_RECORDS: Final = 256
"""So many records are committed at once …"""
GROUP_S: Final = 0.002
"""… and fewer when the first has waited this long."""
MAX_GROUP_RECORDS: Final = 2048


@dataclass(frozen=True, slots=True)
class Submission:
    """A sender's records; `at` is the monotonic time they came."""

    incarnation: Incarnation
    entries: Sequence[Entry]
    on_committed: Callable[[int], None]
    at: float


@dataclass(frozen=True, slots=True)
class Question:
    """A query, to be answered after everything that came before it."""

    query: LedgerQuery
    on_reply: Callable[[LedgerReply], None]


@dataclass(frozen=True, slots=True)
class AdoptNow:
    """Look for orphans without waiting for the timer."""


@dataclass(frozen=True, slots=True)
class Close:
    """Nothing follows; end when all is done, or at the monotonic time `by`."""

    by: float


Mail = Submission | Question | AdoptNow | Close


@dataclass(frozen=True, slots=True)
class Group:
    """Submissions that are committed together."""

    submissions: Sequence[Submission]
    records: int

    def deliveries(self) -> list[Delivery]:
        """Their records, in the order they came."""
        return [(mail.incarnation, *entry) for mail in self.submissions for entry in mail.entries]


class Backlog:
    """Submissions and questions in the order they came. Owned by the ledger's thread."""

    def __init__(self) -> None:
        self.records = 0
        """Records that wait."""
        self._submissions: deque[Submission] = deque()
        self._questions: deque[tuple[int, Question]] = deque()
        self._taken = self._done = 0

    @property
    def has_submissions(self) -> bool:
        """Whether any wait."""
        return bool(self._submissions)

    @property
    def has_questions(self) -> bool:
        """Whether any wait."""
        return bool(self._questions)

    @property
    def is_question_due(self) -> bool:
        """Whether all that came before the next question is done; there may be none."""
        return bool(self._questions) and self._questions[0][0] <= self._done

    def submit(self, submission: Submission) -> None:
        """One more."""
        self._submissions.append(submission)
        self.records += len(submission.entries)
        self._taken += 1

    def ask(self, question: Question) -> None:
        """One more, behind everything that was submitted so far."""
        self._questions.append((self._taken, question))

    def commit_at(self, *, is_urgent: bool) -> float:
        """When the next group is due; there is one. A question is answered the sooner for it."""
        if is_urgent or self._questions or self.records >= GROUP_RECORDS:
            return 0.0
        return self._submissions[0].at + GROUP_S

    def next_group(self) -> Group:
        """What is committed next; it waits on until it is `done`."""
        group: list[Submission] = []
        records = 0
        for mail in self._submissions:
            if group and records + len(mail.entries) > MAX_GROUP_RECORDS:
                break
            group.append(mail)
            records += len(mail.entries)
        return Group(group, records)

    def done(self, group: Group) -> None:
        """The group is kept."""
        for _ in group.submissions:
            self._submissions.popleft()
        self.records -= group.records
        self._done += len(group.submissions)

    def next_question(self) -> Question:
        """The oldest one; there is one. It waits no more."""
        return self._questions.popleft()[1]
