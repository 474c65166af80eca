"""The conversation with the ledger: records, which are kept exactly once, and queries.

Records travel in order with a sequence number per sender incarnation and are acknowledged after they are committed.
A query by the same sender sees every record it sent before. Times are Unix milliseconds.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ..ids import AgentId, CallId, Incarnation, SessionId, SwarmId
from ..transcript import Message
from ..usage import Usage
from .base import Failed, Wire
from .pricing import PriceCells, PriceCellsQuery
from .tokens import RouteChosen, Tokens, TokensCounted, TokensQuery


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
    base_url: str | None = None
    profile: str | None = None
    swarm: str | None = None
    conversation: str | None = None
    """What it goes on with, see `GenerationAdvanced`."""


class SessionTouched(Wire, frozen=True, kw_only=True, tag="session_touched"):
    """The session is alive; `doing` says at what, in a few words. Records of its messages and calls say so as well."""

    session: SessionId
    doing: str | None = None
    at_ms: int


class MessageAppended(Wire, frozen=True, kw_only=True, tag="message_appended"):
    """Message number `index` (from 0) of the session. The same index again changes nothing."""

    session: SessionId
    index: int
    message: Message
    at_ms: int
    api_content: str | None = None
    """What the model gets instead of the message's content; None: the same."""
    display_kind: str | None = None
    """How it is shown: None as a message, `hidden` not at all and not found by a search, else the surface's word."""
    display_metadata: str | None = None
    """JSON of the surface that shows it. No model sees it."""


class MessagesCompacted(Wire, frozen=True, kw_only=True, tag="messages_compacted"):
    """Message `summary` stands for the messages `first` to `upto` from now on; they stay, out of the transcript.

    Only for these: what is appended later is not touched. The same range again changes nothing. `summary` is appended
    like any other message, before or after this record, and takes the place of `first`.
    """

    session: SessionId
    first: int
    upto: int
    summary: int | None = None
    at_ms: int


class CallRecorded(Wire, frozen=True, kw_only=True, tag="call_recorded"):
    """The account of one call: one row per `call`.

    A later record of the same call replaces an earlier one only if it knows more: any status over `lost`, then `usage`
    over None, then `cost_actual_usd` over None. So the broker's word about a dead holder never hides what the holder
    had already said, and a bill that comes later is added.
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
    fault_code: str | None = None
    """The provider's own code for the fault."""
    cost_estimated_usd: float | None = None
    """By the configured prices; None: there is none, or no usage."""
    cost_actual_usd: float | None = None
    """As the provider charged it; None: it did not say."""
    parent: SessionId | None = None
    """The session that `session` works for: counted with it even if nobody opened `session` here."""
    parent_agent: AgentId | None = None
    profile: str | None = None


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


class GenerationAdvanced(Wire, frozen=True, kw_only=True, tag="generation_advanced"):
    """A conversation that outlives its sessions (a chat) was begun anew: its generation goes up by one, never down.

    `session` is the one that ended with it; said again of the same session at once, it changes nothing.
    """

    source: str
    conversation: str
    session: SessionId | None = None
    reason: str
    at_ms: int


class SwarmOpened(Wire, frozen=True, kw_only=True, tag="swarm_opened"):
    """A swarm began. A repeated one changes nothing."""

    swarm: SwarmId
    source: str
    tasks: int
    name: str | None = None
    parent: SessionId | None = None
    profile: str | None = None
    at_ms: int


class TaskStarted(Wire, frozen=True, kw_only=True, tag="task_started"):
    """Task number `index` (from 0) of the swarm has its agent. A repeated one changes nothing."""

    swarm: SwarmId
    index: int
    goal: str
    session: SessionId | None = None
    agent: AgentId | None = None
    at_ms: int


class TaskEnded(Wire, frozen=True, kw_only=True, tag="task_ended"):
    """The task is over, by its agent's own account or because it got none. The first one counts."""

    swarm: SwarmId
    index: int
    outcome: str
    error: str | None = None
    at_ms: int


class SwarmEnded(Wire, frozen=True, kw_only=True, tag="swarm_ended"):
    """All tasks are over, or nobody waits for them. The first one counts."""

    swarm: SwarmId
    outcome: str
    at_ms: int


class TurnLeased(Wire, frozen=True, kw_only=True, tag="turn_leased"):
    """`holder` wants to take the next turn of the session, alone. Whether it may, `TurnLeaseQuery` says afterwards.

    It gets the lease if there is none, or the last one was released or is over at `at_ms`. Said again by who has it, it
    moves `until_ms`.
    """

    session: SessionId
    lease: str
    holder: str
    until_ms: int
    at_ms: int


class TurnReleased(Wire, frozen=True, kw_only=True, tag="turn_released"):
    """The turn is over. Nothing changes if another holds the lease by now."""

    session: SessionId
    lease: str
    at_ms: int


class DeadLetter(Wire, frozen=True, kw_only=True, tag="dead_letter"):
    """A message that nobody will take any more. `body` is for people; it is cut at 4,096 characters."""

    receiver: str
    kind: str
    reason: str
    body: str = ""
    sender: str | None = None
    at_ms: int


LedgerRecord = (
    SessionOpened
    | SessionTouched
    | RouteChosen
    | MessageAppended
    | MessagesCompacted
    | CallRecorded
    | TokensCounted
    | SessionEnded
    | ChildRestarted
    | GenerationAdvanced
    | SwarmOpened
    | TaskStarted
    | TaskEnded
    | SwarmEnded
    | TurnLeased
    | TurnReleased
    | DeadLetter
)


class Append(Wire, frozen=True, kw_only=True, tag="append"):
    """Records `first`, `first + 1`, … of the sender's incarnation. Answered by `Committed`; repeatable."""

    first: int
    records: tuple[LedgerRecord, ...]


class Committed(Wire, frozen=True, kw_only=True, tag="committed"):
    """Every record of the sender up to and including number `upto` is in state.db.

    While state.db is not to be written to, they are in the journal beside it, which the next ledger takes in first.
    """

    upto: int


class TranscriptQuery(Wire, frozen=True, kw_only=True, tag="transcript_query"):
    """Answered by `Transcript`; with `rows` also row by row, with `compacted` those a summary stands for as well."""

    session: SessionId
    rows: bool = False
    compacted: bool = False


class TotalsQuery(Wire, frozen=True, kw_only=True, tag="totals_query"):
    """Sums over all calls, or over one session, with `tree` and everything below it. Answered by `Totals`."""

    session: SessionId | None = None
    tree: bool = False


class CallsQuery(Wire, frozen=True, kw_only=True, tag="calls_query"):
    """Rows of calls in the order they were first recorded, after row `after`. Answered by `Calls`."""

    after: int = 0
    limit: int = 1000
    session: SessionId | None = None


class RestartsQuery(Wire, frozen=True, kw_only=True, tag="restarts_query"):
    """Restarts of the fleet's processes from `since_ms` on, over all lives of the root. Answered by `Restarts`."""

    since_ms: int
    limit: int = 1000


class SessionsQuery(Wire, frozen=True, kw_only=True, tag="sessions_query"):
    """Sessions, those with the newest activity first; `before` is where the last page ended. Answered by `Sessions`.

    Activity is counted in commits: no clock has a say in the order.
    """

    source: str | None = None
    profile: str | None = None
    parent: SessionId | None = None
    """Only those that this one opened."""
    top: bool = False
    """Only those that nobody opened."""
    before: Place | None = None
    limit: int = 50


class SessionQuery(Wire, frozen=True, kw_only=True, tag="session_query"):
    """One session, if there is one. Answered by `Sessions`."""

    session: SessionId


class UsageBy(StrEnum):
    """What usage is added up by."""

    MODEL = "model"
    SESSION = "session"
    TREE = "tree"
    """The session at the top, with everything below it."""
    DAY = "day"
    PROFILE = "profile"


class UsageQuery(Wire, frozen=True, kw_only=True, tag="usage_query"):
    """Sums of the calls that began from `since_ms` on and before `until_ms`, by `by`. Answered by `UsageRows`."""

    by: UsageBy
    since_ms: int = 0
    until_ms: int | None = None
    within: SessionId | None = None
    """Only of this session and everything below it."""
    utc_offset_s: int = 0
    """What local time is ahead of UTC: where days end."""
    limit: int = 1000


class SearchQuery(Wire, frozen=True, kw_only=True, tag="search_query"):
    """Messages that hold all words of `text`, newest first. Answered by `Found`; `before` is the last row of its page.

    "Words in quotes" stand side by side; a word with `*` at its end is a beginning. Everything else is taken literally,
    and text beyond 2,048 characters is not looked at.
    """

    text: str
    session: SessionId | None = None
    before: int | None = None
    limit: int = 20


class GenerationQuery(Wire, frozen=True, kw_only=True, tag="generation_query"):
    """Answered by `Generation`."""

    source: str
    conversation: str


class SwarmsQuery(Wire, frozen=True, kw_only=True, tag="swarms_query"):
    """Swarms, the newest first, before row `before`. Answered by `Swarms`."""

    before: int | None = None
    limit: int = 50


class TasksQuery(Wire, frozen=True, kw_only=True, tag="tasks_query"):
    """A swarm's tasks by their number, after number `after`. Answered by `Tasks`."""

    swarm: SwarmId
    after: int = -1
    limit: int = 1000


class TurnLeaseQuery(Wire, frozen=True, kw_only=True, tag="turn_lease_query"):
    """Who has the turn of a session. Answered by `TurnLease`."""

    session: SessionId


class DeadLettersQuery(Wire, frozen=True, kw_only=True, tag="dead_letters_query"):
    """Letters in the order they were kept, after row `after`. Answered by `DeadLetters`."""

    after: int = 0
    limit: int = 1000


class LedgerStatsQuery(Wire, frozen=True, kw_only=True, tag="ledger_stats_query"):
    """Answered by `LedgerStats`."""


class MessageRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stored message."""

    index: int
    message: Message
    at_ms: int
    api_content: str | None = None
    display_kind: str | None = None
    display_metadata: str | None = None
    compacted: bool = False


class Transcript(Wire, frozen=True, kw_only=True, tag="transcript"):
    """The messages in order, from index 0 without gaps; `outcome` and `result` once it ended.

    A summary takes the place of the messages it stands for, so a message's place need not be its index.
    """

    messages: tuple[Message, ...] = ()
    outcome: str | None = None
    result: str | None = None
    error: str | None = None
    next_index: int | None = None
    """Where the next message goes; None: where the messages end."""
    rows: tuple[MessageRow, ...] = ()
    """If they were asked for: the messages with all that is kept of them."""


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
    cost_usd: float | None = None
    """What was charged, else what was estimated, over the `cost_known_calls`; None: of no call is either known."""
    cost_known_calls: int = 0
    cost_estimated_usd: float | None = None
    cost_actual_usd: float | None = None

    @property
    def known_calls(self) -> int:
        """Calls whose usage is in the sums."""
        return self.calls - self.unknown_calls


class UsageSums(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sums, and how much of it all they cover. A sum over nothing known is None."""

    calls: int
    """Calls that a provider took on: all but the refused ones."""
    unknown_calls: int = 0
    """Of these, those without a report of usage."""
    refused_calls: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None
    """What was charged, else what was estimated, over the `cost_known_calls`."""
    cost_known_calls: int = 0
    cost_estimated_usd: float | None = None
    cost_actual_usd: float | None = None

    @property
    def known_calls(self) -> int:
        """Calls whose usage is in the sums."""
        return self.calls - self.unknown_calls


class UsageRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The sums of one model, session, tree, day (`2026-01-31`) or profile; `key` is None where a call names none."""

    key: str | None
    provider: str | None = None
    """By model only."""
    sums: UsageSums


class UsageRows(Wire, frozen=True, kw_only=True, tag="usage_rows"):
    """Days in their order, all else by tokens, most first; at most `limit`, and `total` is of all of them."""

    rows: tuple[UsageRow, ...] = ()
    total: UsageSums


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the list of sessions."""

    activity: int
    row: int


class SessionRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session. Without `agent` its beginning was not recorded here: it is known by its calls or by its end."""

    place: Place
    session: SessionId
    agent: AgentId | None = None
    goal: str | None = None
    source: str | None = None
    profile: str | None = None
    provider: str | None = None
    model: str | None = None
    base_url: str | None = None
    parent: SessionId | None = None
    swarm: str | None = None
    conversation: str | None = None
    doing: str | None = None
    messages: int = 0
    """Up to the last one; compacted ones count."""
    opened_at_ms: int | None = None
    active_at_ms: int | None = None
    outcome: str | None = None
    result: str | None = None
    error: str | None = None
    ended_at_ms: int | None = None


class Sessions(Wire, frozen=True, kw_only=True, tag="sessions"):
    """At most `limit` sessions; fewer mean that there are no more now."""

    rows: tuple[SessionRow, ...] = ()


class SearchHit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message that was found. `snippet` has what was looked for between U+0002 and U+0003."""

    row: int
    session: SessionId
    index: int
    role: str
    at_ms: int
    snippet: str
    compacted: bool = False


class Found(Wire, frozen=True, kw_only=True, tag="found"):
    """At most `limit` hits."""

    hits: tuple[SearchHit, ...] = ()
    problem: str | None = None
    """Why there may be more than can be found now; None: everything was looked at."""


class Generation(Wire, frozen=True, kw_only=True, tag="generation"):
    """How often the conversation was begun anew."""

    generation: int


class SwarmRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A swarm, and how many of its tasks have ended how."""

    row: int
    swarm: SwarmId
    source: str | None = None
    name: str | None = None
    tasks: int | None = None
    started: int = 0
    ended: int = 0
    done: int = 0
    """Of the ended ones: with the outcome `done`."""
    parent: SessionId | None = None
    profile: str | None = None
    opened_at_ms: int | None = None
    outcome: str | None = None
    ended_at_ms: int | None = None


class Swarms(Wire, frozen=True, kw_only=True, tag="swarms"):
    """At most `limit` swarms; fewer mean that there are no more."""

    rows: tuple[SwarmRow, ...] = ()


class TaskRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task of a swarm."""

    index: int
    goal: str | None = None
    session: SessionId | None = None
    agent: AgentId | None = None
    started_at_ms: int | None = None
    outcome: str | None = None
    error: str | None = None
    ended_at_ms: int | None = None


class Tasks(Wire, frozen=True, kw_only=True, tag="tasks"):
    """At most `limit` tasks; fewer mean that there are no more now."""

    rows: tuple[TaskRow, ...] = ()


class TurnLease(Wire, frozen=True, kw_only=True, tag="turn_lease"):
    """Who has the turn; all None: nobody. One that is over (`until_ms`) stands here until another takes it."""

    lease: str | None = None
    holder: str | None = None
    until_ms: int | None = None


class LetterRow(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter with its row number."""

    row: int
    letter: DeadLetter


class DeadLetters(Wire, frozen=True, kw_only=True, tag="dead_letters"):
    """At most `limit` letters; fewer mean that there are no more now."""

    rows: tuple[LetterRow, ...] = ()


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
    fault_kind: str | None = None
    """The name of the error class behind `fault`."""
    is_fault_lasting: bool = False
    """Nothing is written to this state.db any more, until a ledger is started anew."""
    journaled: int = 0
    """Records that wait in the journal beside state.db for the next ledger."""
    is_wal_large: bool = False
    """The WAL is over its bound: something reads for long and keeps it from being taken in."""


StoreQuery = (
    TranscriptQuery
    | TotalsQuery
    | CallsQuery
    | RestartsQuery
    | SessionsQuery
    | SessionQuery
    | UsageQuery
    | SearchQuery
    | GenerationQuery
    | SwarmsQuery
    | TasksQuery
    | TurnLeaseQuery
    | DeadLettersQuery
    | TokensQuery
    | PriceCellsQuery
)
"""What state.db answers."""
StoreReply = (
    Transcript
    | Totals
    | Calls
    | Restarts
    | Sessions
    | UsageRows
    | Found
    | Generation
    | Swarms
    | Tasks
    | TurnLease
    | DeadLetters
    | Tokens
    | PriceCells
)
LedgerQuery = StoreQuery | LedgerStatsQuery
LedgerRequest = Append | LedgerQuery
LedgerReply = Committed | StoreReply | LedgerStats | Failed
