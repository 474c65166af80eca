"""The conversation with the ledger: records, which are kept exactly once, and queries.

Records travel in order with a sequence number per sender incarnation and are acknowledged after they are committed.
A query by the same sender sees every record it sent before. Times are Unix milliseconds.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ..ids import AgentId, CallId, Incarnation, SessionId
from ..transcript import Message
from ..usage import Usage
from .base import Failed, Wire


class CallStatus(StrEnum):
    """How a call to a provider ended."""

    COMPLETED = "completed"
    """The dialect's own terminal fact was seen."""
    TRUNCATED = "truncated"
    """The stream ended without it."""
    CANCELLED = "cancelled"
    """We closed it."""
    REFUSED = "refused"
    """The provider answered with an error before any output: no tokens were spent."""
    FAILED = "failed"
    """It could not be reached, or broke in a way that leaves the cost open."""
    LOST = "lost"
    """The process that made it died; the broker says so, because its slot was still held."""


class SessionOpened(Wire, frozen=True, kw_only=True, tag="session_opened"):
    """A conversation began. A repeated one changes nothing."""

    session: SessionId
    agent: AgentId
    goal: str
    source: str
    provider: str | None = None
    model: str | None = None
    parent: SessionId | None = None
    at_ms: int


class MessageAppended(Wire, frozen=True, kw_only=True, tag="message_appended"):
    """Message number `index` (from 0) of the session. The same index again changes nothing."""

    session: SessionId
    index: int
    message: Message
    at_ms: int


class CallRecorded(Wire, frozen=True, kw_only=True, tag="call_recorded"):
    """The account of one call: one row per `call`.

    A later record of the same call replaces an earlier one only if it knows more: `usage` over None, any status
    over `lost`. So the broker's word about a dead holder never hides what the holder had already said.
    """

    call: CallId
    provider: str
    base_url: str
    model: str
    status: CallStatus
    started_at_ms: int
    usage: Usage | None = None
    session: SessionId | None = None
    agent: AgentId | None = None
    task: str | None = None
    model_answered: str | None = None
    response_id: str | None = None
    waited_ms: float | None = None
    first_byte_ms: float | None = None
    duration_ms: float | None = None
    fault: str | None = None


class SessionEnded(Wire, frozen=True, kw_only=True, tag="session_ended"):
    """The conversation reached its end: `outcome` is `done`, `failed` or `stopped`. The first one counts."""

    session: SessionId
    outcome: str
    result: str | None = None
    error: str | None = None
    at_ms: int


class ChildRestarted(Wire, frozen=True, kw_only=True, tag="child_restarted"):
    """The root replaced a process of the fleet, at the cost of its restart limit. `incarnation` is the life that ended.

    A repeated one changes nothing.
    """

    child: str
    incarnation: Incarnation
    reason: str
    at_ms: int


LedgerRecord = SessionOpened | MessageAppended | CallRecorded | SessionEnded | ChildRestarted


class Append(Wire, frozen=True, kw_only=True, tag="append"):
    """Records `first`, `first + 1`, … of the sender's incarnation. Answered by `Committed`; repeatable."""

    first: int
    records: tuple[LedgerRecord, ...]


class Committed(Wire, frozen=True, kw_only=True, tag="committed"):
    """Every record of the sender up to and including number `upto` is in state.db."""

    upto: int


class TranscriptQuery(Wire, frozen=True, kw_only=True, tag="transcript_query"):
    """Answered by `Transcript`."""

    session: SessionId


class TotalsQuery(Wire, frozen=True, kw_only=True, tag="totals_query"):
    """Sums over all calls, or over one session. Answered by `Totals`."""

    session: SessionId | None = None


class CallsQuery(Wire, frozen=True, kw_only=True, tag="calls_query"):
    """Rows of calls in the order they were first recorded, after row `after`. Answered by `Calls`."""

    after: int = 0
    limit: int = 1000


class RestartsQuery(Wire, frozen=True, kw_only=True, tag="restarts_query"):
    """Restarts of the fleet's processes from `since_ms` on, over all lives of the root. Answered by `Restarts`."""

    since_ms: int
    limit: int = 1000


class LedgerStatsQuery(Wire, frozen=True, kw_only=True, tag="ledger_stats_query"):
    """Answered by `LedgerStats`."""


class Transcript(Wire, frozen=True, kw_only=True, tag="transcript"):
    """The messages in order, from index 0 without gaps; `outcome` and `result` once it ended."""

    messages: tuple[Message, ...] = ()
    outcome: str | None = None
    result: str | None = None
    error: str | None = None


class Totals(Wire, frozen=True, kw_only=True, tag="totals"):
    """Sums of what providers reported. `unknown_calls` had no report and are in no sum; refused ones cost nothing."""

    calls: int
    """Calls that a provider took on: all but the refused ones."""
    unknown_calls: int
    refused_calls: int
    prompt_tokens: int
    completion_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    sessions: int = 0
    messages: int = 0


class CallRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stored call with its row number."""

    row: int
    record: CallRecorded


class Calls(Wire, frozen=True, kw_only=True, tag="calls"):
    """At most `limit` rows; fewer mean that there are no more now."""

    rows: tuple[CallRow, ...] = ()


class Restarts(Wire, frozen=True, kw_only=True, tag="restarts"):
    """The newest `limit` restarts that were asked for, oldest first."""

    restarts: tuple[ChildRestarted, ...] = ()


class LedgerStats(Wire, frozen=True, kw_only=True, tag="ledger_stats"):
    """The ledger's own state."""

    rows: int
    """Rows in sessions, messages and calls together."""
    backlog: int
    """Records received and not yet committed."""
    committed: int
    """Records committed by this incarnation."""
    duplicates: int
    """Records that had been committed before and changed nothing."""
    db_bytes: int
    wal_bytes: int
    commit_p50_ms: float | None = None
    commit_p99_ms: float | None = None
    fault: str | None = None
    """Why records are not committed right now; None while they are."""
    foreign_writes: int = 0
    """How often somebody else was found to have written to state.db."""


LedgerQuery = TranscriptQuery | TotalsQuery | CallsQuery | RestartsQuery | LedgerStatsQuery
LedgerRequest = Append | LedgerQuery
LedgerReply = Committed | Transcript | Totals | Calls | Restarts | LedgerStats | Failed
