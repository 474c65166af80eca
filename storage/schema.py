"""The tables of state.db.

Rows are ordered by id, which is the order of commit; times are for people. What a provider did not report is NULL in
all token columns. Names that senders chose are no foreign keys: a record is never refused because another sender's
has not arrived yet.
"""

from __future__ import annotations

from typing import Final

APPLICATION_ID: Final = 0x63766579
"""`cvey`, in the header of every state.db of ours."""

SESSIONS: Final = """
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    session TEXT NOT NULL UNIQUE,
    agent TEXT,          -- NULL up to opened_at_ms: its end is known, its beginning has not arrived
    goal TEXT,
    source TEXT,
    provider TEXT,
    model TEXT,
    parent TEXT,
    opened_at_ms INTEGER,
    outcome TEXT,        -- NULL: it has not ended
    result TEXT,
    error TEXT,
    ended_at_ms INTEGER
) STRICT
"""

MESSAGES: Final = """
CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    session TEXT NOT NULL,
    idx INTEGER NOT NULL,
    role TEXT NOT NULL,
    content TEXT NOT NULL,
    tool_calls TEXT,     -- JSON array of {id, name, arguments}
    tool_call_id TEXT,
    at_ms INTEGER NOT NULL,
    UNIQUE (session, idx)
) STRICT
"""

CALLS: Final = """
CREATE TABLE calls (
    id INTEGER PRIMARY KEY,
    call TEXT NOT NULL UNIQUE,
    session TEXT,
    agent TEXT,
    task TEXT,
    provider TEXT NOT NULL,
    base_url TEXT NOT NULL,
    model TEXT NOT NULL,
    model_answered TEXT,
    response_id TEXT,
    status TEXT NOT NULL,
    fault TEXT,
    started_at_ms INTEGER NOT NULL,
    waited_ms REAL,
    first_byte_ms REAL,
    duration_ms REAL,
    input_tokens INTEGER,
    output_tokens INTEGER,
    cache_read_tokens INTEGER,
    cache_write_tokens INTEGER,
    reasoning_tokens INTEGER,
    CHECK ((input_tokens IS NULL) = (output_tokens IS NULL)
       AND (input_tokens IS NULL) = (cache_read_tokens IS NULL)
       AND (input_tokens IS NULL) = (cache_write_tokens IS NULL)
       AND (input_tokens IS NULL) = (reasoning_tokens IS NULL))
) STRICT
"""

# Covers both totals: of one session by search, of everything by a scan that reads no row.
CALLS_BY_SESSION: Final = """
CREATE INDEX calls_by_session ON calls (
    session, status, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens
)
"""

INBOX: Final = """
CREATE TABLE inbox (
    incarnation TEXT PRIMARY KEY,
    seq INTEGER NOT NULL -- every record up to this one is committed
) STRICT, WITHOUT ROWID
"""

UNSTORABLE: Final = """
CREATE TABLE unstorable (
    id INTEGER PRIMARY KEY,
    incarnation TEXT NOT NULL,
    seq INTEGER NOT NULL,
    problem TEXT NOT NULL,
    record TEXT NOT NULL -- as text for people: its columns would not hold it, and it must not hold up the others
) STRICT
"""

META: Final = """
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID
"""

VERSION_1: Final = (SESSIONS, MESSAGES, CALLS, CALLS_BY_SESSION, INBOX, UNSTORABLE, META)

RESTARTS: Final = """
CREATE TABLE restarts (
    id INTEGER PRIMARY KEY,
    incarnation TEXT NOT NULL UNIQUE, -- the life that ended
    child TEXT NOT NULL,
    reason TEXT NOT NULL,
    at_ms INTEGER NOT NULL
) STRICT
"""

RESTARTS_BY_TIME: Final = "CREATE INDEX restarts_by_time ON restarts (at_ms)"

VERSION_2: Final = (RESTARTS, RESTARTS_BY_TIME)
