"""The tables of state.db, as they are to be.

Declared, not told: a file that lacks a table, a column, an index, a view or a trigger of these gets it when it is
opened (`migrations`); only what becomes of data is a step of the ladder. A column that comes later is therefore
nullable or has a default.

Rows are ordered by id, which is the order of commit; times are for people. What a provider did not report is NULL in
all token columns, what nobody could price is NULL in the cost columns, and both stay NULL through sums. Costs are whole
billionths of a dollar, so that sums are exact. Names that senders chose are no foreign keys: a record is never refused
because another sender's has not arrived yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

APPLICATION_ID: Final = 0x63766579
"""`cvey`, in the header of every state.db of ours."""


@dataclass(frozen=True, slots=True)
class Table:
    """A STRICT table: its columns by name, in the order of a new file, and what holds for several of them."""

    name: str
    columns: dict[str, str]
    rules: tuple[str, ...] = ()
    has_rowid: bool = True

    @property
    def sql(self) -> str:
        """The statement that makes it."""
        parts = [f"{name} {kind}" for name, kind in self.columns.items()]
        options = "STRICT" if self.has_rowid else "STRICT, WITHOUT ROWID"
        return f"CREATE TABLE {self.name} ({', '.join([*parts, *self.rules])}) {options}"


@dataclass(frozen=True, slots=True)
class Part:
    """An index, a view or a trigger: made anew where its text differs."""

    kind: str
    name: str
    text: str

    @property
    def sql(self) -> str:
        """The statement that makes it."""
        return f"CREATE {self.kind} {self.name} {self.text}"


@dataclass(frozen=True, slots=True)
class Schema:
    """All that is declared."""

    tables: tuple[Table, ...]
    parts: tuple[Part, ...] = ()


SESSIONS: Final = Table(
    "sessions",
    {
        "id": "INTEGER PRIMARY KEY",
        "session": "TEXT NOT NULL UNIQUE",
        "agent": "TEXT",  # NULL up to opened_at_ms: something else of it is known, its beginning has not arrived
        "goal": "TEXT",
        "source": "TEXT",
        "provider": "TEXT",  # with model and base_url the route it takes now
        "model": "TEXT",
        "parent": "TEXT",
        "opened_at_ms": "INTEGER",
        "outcome": "TEXT",  # NULL: it has not ended
        "result": "TEXT",
        "error": "TEXT",
        "ended_at_ms": "INTEGER",
        "base_url": "TEXT",
        "profile": "TEXT",
        "swarm": "TEXT",
        "conversation": "TEXT",  # what it goes on with, see `conversations`
        "doing": "TEXT",  # in its own words
        "activity": "INTEGER NOT NULL DEFAULT 0",  # number of the last commit that concerned it
        "active_at_ms": "INTEGER",
    },
)

MESSAGES: Final = Table(
    "messages",
    {
        "id": "INTEGER PRIMARY KEY",
        "session": "TEXT NOT NULL",
        "idx": "INTEGER NOT NULL",
        "role": "TEXT NOT NULL",
        "content": "TEXT NOT NULL",  # what is shown
        "tool_calls": "TEXT",  # JSON array of {id, name, arguments}
        "tool_call_id": "TEXT",
        "at_ms": "INTEGER NOT NULL",
        "api_content": "TEXT",  # what the model gets, where that is something else
        "display_kind": "TEXT",  # NULL: an ordinary message; `hidden`: for the model only
        "display_metadata": "TEXT",
        "compacted": "INTEGER NOT NULL DEFAULT 0",  # 1: a summary stands for it
        "signed": "TEXT",  # JSON array of {dialect, model, data}: what the model's provider wants back as it was
    },
    ("UNIQUE (session, idx)",),
)

COMPACTIONS: Final = Table(
    "compactions",
    {
        "id": "INTEGER PRIMARY KEY",
        "session": "TEXT NOT NULL",
        "first": "INTEGER NOT NULL",
        "upto": "INTEGER NOT NULL",
        "summary": "INTEGER",  # idx of the message that stands for them
        "at_ms": "INTEGER NOT NULL",
    },
    ("UNIQUE (session, first, upto)",),
)

TOKEN_COLUMNS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)
COST_COLUMNS: Final = ("cost_estimated_nusd", "cost_actual_nusd")

CALLS: Final = Table(
    "calls",
    {
        "id": "INTEGER PRIMARY KEY",
        "call": "TEXT NOT NULL UNIQUE",
        "session": "TEXT",
        "agent": "TEXT",
        "task": "TEXT",
        "provider": "TEXT NOT NULL",
        "base_url": "TEXT NOT NULL",
        "model": "TEXT NOT NULL",
        "model_answered": "TEXT",
        "response_id": "TEXT",
        "status": "TEXT NOT NULL",
        "fault": "TEXT",
        "started_at_ms": "INTEGER NOT NULL",
        "waited_ms": "REAL",
        "first_byte_ms": "REAL",
        "duration_ms": "REAL",
        "input_tokens": "INTEGER",
        "output_tokens": "INTEGER",
        "cache_read_tokens": "INTEGER",
        "cache_write_tokens": "INTEGER",
        "reasoning_tokens": "INTEGER",
        "cache_write_1h_tokens": "INTEGER",  # of cache_write_tokens; NULL before it was told apart
        "usage_raw": "TEXT",  # the report, where it contradicted itself and was bounded
        "cost_estimated_nusd": "INTEGER",  # billionths of a dollar
        "cost_actual_nusd": "INTEGER",
        "fault_code": "TEXT",
        "parent": "TEXT",
        "parent_agent": "TEXT",
        "profile": "TEXT",
    },
    (
        "CHECK ((input_tokens IS NULL) = (output_tokens IS NULL)"
        " AND (input_tokens IS NULL) = (cache_read_tokens IS NULL)"
        " AND (input_tokens IS NULL) = (cache_write_tokens IS NULL)"
        " AND (input_tokens IS NULL) = (reasoning_tokens IS NULL))",
    ),
)

CONVERSATIONS: Final = Table(
    "conversations",
    {
        "id": "INTEGER PRIMARY KEY",
        "source": "TEXT NOT NULL",
        "conversation": "TEXT NOT NULL",
        "generation": "INTEGER NOT NULL",
        "session": "TEXT",  # the one whose end was the last step
        "reason": "TEXT NOT NULL",
        "at_ms": "INTEGER NOT NULL",
    },
    ("UNIQUE (source, conversation)",),
)

SWARMS: Final = Table(
    "swarms",
    {
        "id": "INTEGER PRIMARY KEY",
        "swarm": "TEXT NOT NULL UNIQUE",
        "source": "TEXT",  # NULL up to opened_at_ms: only its end is known
        "name": "TEXT",
        "tasks": "INTEGER",
        "parent": "TEXT",
        "profile": "TEXT",
        "opened_at_ms": "INTEGER",
        "outcome": "TEXT",
        "ended_at_ms": "INTEGER",
    },
)

TASKS: Final = Table(
    "tasks",
    {
        "id": "INTEGER PRIMARY KEY",
        "swarm": "TEXT NOT NULL",
        "idx": "INTEGER NOT NULL",
        "goal": "TEXT",
        "session": "TEXT",
        "agent": "TEXT",
        "started_at_ms": "INTEGER",
        "outcome": "TEXT",
        "error": "TEXT",
        "ended_at_ms": "INTEGER",
    },
    ("UNIQUE (swarm, idx)",),
)

TURN_LEASES: Final = Table(
    "turn_leases",
    {
        "id": "INTEGER PRIMARY KEY",
        "session": "TEXT NOT NULL UNIQUE",
        "lease": "TEXT NOT NULL",
        "holder": "TEXT",  # NULL: only the release is known
        "leased_at_ms": "INTEGER",
        "until_ms": "INTEGER",
        "released_at_ms": "INTEGER",
    },
)

DEAD_LETTERS: Final = Table(
    "dead_letters",
    {
        "id": "INTEGER PRIMARY KEY",
        "receiver": "TEXT NOT NULL",
        "sender": "TEXT",
        "kind": "TEXT NOT NULL",
        "reason": "TEXT NOT NULL",
        "body": "TEXT NOT NULL",
        "at_ms": "INTEGER NOT NULL",
    },
)

RESTARTS: Final = Table(
    "restarts",
    {
        "id": "INTEGER PRIMARY KEY",
        "incarnation": "TEXT NOT NULL UNIQUE",  # the life that ended
        "child": "TEXT NOT NULL",
        "reason": "TEXT NOT NULL",
        "at_ms": "INTEGER NOT NULL",
    },
)

SESSION_TOKENS: Final = Table(
    "session_tokens",
    {
        "id": "INTEGER PRIMARY KEY",
        "session": "TEXT NOT NULL UNIQUE",
        "provider": "TEXT",
        "base_url": "TEXT",
        "model": "TEXT",
        "mode": "TEXT",
        "input_tokens": "INTEGER NOT NULL",
        "output_tokens": "INTEGER NOT NULL",
        "cache_read_tokens": "INTEGER NOT NULL",
        "cache_write_tokens": "INTEGER NOT NULL",
        "reasoning_tokens": "INTEGER NOT NULL",
        "api_calls": "INTEGER NOT NULL",
        "estimated_nano_usd": "INTEGER",
        "actual_nano_usd": "INTEGER",
        "cost_status": "TEXT",
        "cost_source": "TEXT",
        "pricing_version": "TEXT",
    },
)

ROUTE_TOKENS: Final = Table(
    "route_tokens",
    {
        "id": "INTEGER PRIMARY KEY",
        "session": "TEXT NOT NULL",
        "provider": "TEXT NOT NULL",  # empty: not known, and so for the rest of the route
        "base_url": "TEXT NOT NULL",
        "model": "TEXT NOT NULL",
        "mode": "TEXT NOT NULL",
        "task": "TEXT NOT NULL",
        "input_tokens": "INTEGER NOT NULL",
        "output_tokens": "INTEGER NOT NULL",
        "cache_read_tokens": "INTEGER NOT NULL",
        "cache_write_tokens": "INTEGER NOT NULL",
        "reasoning_tokens": "INTEGER NOT NULL",
        "api_calls": "INTEGER NOT NULL",
        "estimated_nano_usd": "INTEGER",
        "actual_nano_usd": "INTEGER",
        "cost_status": "TEXT",
        "cost_source": "TEXT",
        "first_at_ms": "INTEGER NOT NULL",
        "last_at_ms": "INTEGER NOT NULL",
    },
    ("UNIQUE (session, provider, base_url, model, mode, task)",),
)

INBOX: Final = Table(
    "inbox",
    {"incarnation": "TEXT PRIMARY KEY", "seq": "INTEGER NOT NULL"},  # every record up to seq is committed
    has_rowid=False,
)

UNSTORABLE: Final = Table(
    "unstorable",
    {
        "id": "INTEGER PRIMARY KEY",
        "incarnation": "TEXT NOT NULL",
        "seq": "INTEGER NOT NULL",
        "problem": "TEXT NOT NULL",
        "record": "TEXT NOT NULL",  # as text for people: its columns would not hold it, and it must not hold up others
    },
)

META: Final = Table("meta", {"key": "TEXT PRIMARY KEY", "value": "TEXT NOT NULL"}, has_rowid=False)

INDICES: Final = (
    # Covers the sums of one session, of a tree and of everything, and gives the calls of a session in their order.
    Part(
        "INDEX",
        "calls_by_session",
        f"ON calls (session, id, status, {', '.join((*TOKEN_COLUMNS, *COST_COLUMNS))})",
    ),
    Part("INDEX", "calls_by_time", "ON calls (started_at_ms)"),
    Part("INDEX", "sessions_by_activity", "ON sessions (activity)"),
    Part("INDEX", "sessions_by_source", "ON sessions (source, activity)"),
    Part("INDEX", "sessions_by_profile", "ON sessions (profile, activity)"),
    Part("INDEX", "sessions_by_parent", "ON sessions (parent, activity)"),
    Part("INDEX", "restarts_by_time", "ON restarts (at_ms)"),
)

VIEWS: Final = (
    # What can be found: no hidden message, and of a tool's output the beginning.
    Part(
        "VIEW",
        "messages_shown",
        "AS SELECT id, iif(role = 'tool', substr(content, 1, 8192), content) AS content, tool_calls"
        " FROM messages WHERE display_kind IS NOT 'hidden'",
    ),
    Part(
        "VIEW",
        "usage_by_model",
        "AS SELECT provider, base_url, model, model_answered, coalesce(task, '') AS task,"
        " count(*) FILTER (WHERE status <> 'refused') AS calls,"
        " count(*) FILTER (WHERE status <> 'refused' AND input_tokens IS NULL) AS unknown_calls,"
        " count(*) FILTER (WHERE status = 'refused') AS refused_calls,"
        f" {', '.join(f'sum({column}) AS {column}' for column in TOKEN_COLUMNS)},"
        " sum(cost_estimated_nusd) / 1e9 AS cost_estimated_usd, sum(cost_actual_nusd) / 1e9 AS cost_actual_usd"
        " FROM calls GROUP BY provider, base_url, model, model_answered, coalesce(task, '')",
    ),
)

TRIGGERS: Final = (
    # Whichever comes first, the message or the word that a summary stands for it.
    Part(
        "TRIGGER",
        "messages_compacted_before",
        "AFTER INSERT ON messages WHEN EXISTS (SELECT 1 FROM compactions WHERE session = new.session"
        " AND first <= new.idx AND upto >= new.idx AND summary IS NOT new.idx)"
        " BEGIN UPDATE messages SET compacted = 1 WHERE id = new.id; END",
    ),
    Part(
        "TRIGGER",
        "messages_compacted_after",
        "AFTER INSERT ON compactions BEGIN UPDATE messages SET compacted = 1 WHERE session = new.session"
        " AND idx BETWEEN new.first AND new.upto AND idx IS NOT new.summary AND compacted = 0; END",
    ),
    # A generation that was issued must never be issued again: caches of providers go by it.
    Part(
        "TRIGGER",
        "conversations_only_rise",
        "BEFORE UPDATE ON conversations WHEN new.generation <= old.generation"
        " BEGIN SELECT RAISE(ABORT, 'a generation only rises'); END",
    ),
    Part(
        "TRIGGER",
        "conversations_stay",
        "BEFORE DELETE ON conversations BEGIN SELECT RAISE(ABORT, 'a conversation is never forgotten'); END",
    ),
)

SCHEMA: Final = Schema(
    tables=(
        SESSIONS,
        MESSAGES,
        COMPACTIONS,
        CALLS,
        CONVERSATIONS,
        SWARMS,
        TASKS,
        TURN_LEASES,
        DEAD_LETTERS,
        SESSION_TOKENS,
        ROUTE_TOKENS,
        RESTARTS,
        INBOX,
        UNSTORABLE,
        META,
    ),
    parts=(*INDICES, *VIEWS, *TRIGGERS),
)
