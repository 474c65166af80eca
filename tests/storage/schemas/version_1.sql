-- state.db as version 1 of the schema made it, with rows.
PRAGMA application_id = 1668703609;
PRAGMA user_version = 1;

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
) STRICT;

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
) STRICT;

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
) STRICT;

CREATE INDEX calls_by_session ON calls (
    session, status, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens
);

CREATE TABLE inbox (
    incarnation TEXT PRIMARY KEY,
    seq INTEGER NOT NULL -- every record up to this one is committed
) STRICT, WITHOUT ROWID;

CREATE TABLE unstorable (
    id INTEGER PRIMARY KEY,
    incarnation TEXT NOT NULL,
    seq INTEGER NOT NULL,
    problem TEXT NOT NULL,
    record TEXT NOT NULL -- as text for people: its columns would not hold it, and it must not hold up the others
) STRICT;

CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO sessions (session, agent, goal, source, provider, model, parent, opened_at_ms, outcome, result, error, ended_at_ms) VALUES
    ('ses_top', 'ag_top', 'write the report', 'run', 'zai', 'glm-4.6', NULL, 1000, 'done', 'written', NULL, 9000),
    ('ses_child', 'ag_child', 'count the words', 'run', 'zai', 'glm-4.6', 'ses_top', 2000, NULL, NULL, NULL, NULL),
    ('ses_end_only', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'failed', NULL, 'it broke', 3000),
    ('ses_silent', 'ag_silent', 'say nothing', 'client', NULL, NULL, NULL, 4000, NULL, NULL, NULL, NULL);

INSERT INTO messages (session, idx, role, content, tool_calls, tool_call_id, at_ms) VALUES
    ('ses_child', 0, 'user', 'How many words are in Wörterbuch?', NULL, NULL, 2001),
    ('ses_top', 0, 'user', 'Please write the report', NULL, NULL, 1001),
    ('ses_top', 1, 'assistant', '', '[{"id":"t1","name":"run","arguments":"{\"command\": \"ls\"}"}]', NULL, 1002),
    ('ses_top', 2, 'tool', 'report.txt', NULL, 't1', 900);

INSERT INTO calls (call, session, agent, task, provider, base_url, model, model_answered, response_id, status, fault, started_at_ms, waited_ms, first_byte_ms, duration_ms, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens) VALUES
    ('call_1', 'ses_top', 'ag_top', NULL, 'zai', 'https://api.example/v4', 'glm-4.6', 'glm-4.6-x', 'r1', 'completed', NULL, 1500, 1.5, 20.0, 300.0, 100, 20, 30, 4, 5),
    ('call_2', 'ses_child', 'ag_child', NULL, 'zai', 'https://api.example/v4', 'glm-4.6', NULL, NULL, 'lost', NULL, 2500, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    ('call_3', NULL, NULL, 'title', 'other', 'https://other.example/v1', 'm', NULL, NULL, 'refused', '1302: too many', 500, NULL, NULL, 8.0, NULL, NULL, NULL, NULL, NULL);

INSERT INTO inbox (incarnation, seq) VALUES ('inc_a', 11), ('inc_b', 3);
INSERT INTO unstorable (incarnation, seq, problem, record) VALUES ('inc_b', 2, 'UnicodeEncodeError', 'SessionOpened(...)');
INSERT INTO meta (key, value) VALUES ('note', 'kept');
