"""Which index each statement of the reader runs through: none of them reads a table from end to end."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from types import ModuleType

import pytest

from covey.protocol.messages.ledger import UsageBy
from covey.storage import activity, lookups, queries, search, search_queries, session_queries, usage_queries
from covey.storage.session_queries import FILTERS, sessions_statement
from covey.storage.store import Store
from covey.storage.usage_queries import USAGE

MODULES = (activity, lookups, queries, search_queries, session_queries, usage_queries)

BELOW = "SEARCH sessions USING INDEX sessions_by_parent (parent=?)"
BY_TIME = "SEARCH calls USING INDEX calls_by_time (started_at_ms>? AND started_at_ms<?)"
BY_SESSION = "SEARCH calls USING INDEX calls_by_session (session=?)"
COVERED = "SEARCH calls USING COVERING INDEX calls_by_session (session=?)"
ITS_SESSION = "SEARCH sessions USING INDEX sqlite_autoindex_sessions_1 (session=?)"
ITS_MESSAGES = "SEARCH messages USING COVERING INDEX sqlite_autoindex_messages_1 (session=?)"
ITS_TASKS = "SEARCH tasks USING INDEX sqlite_autoindex_tasks_1 (swarm=?)"
ITS_ROUTE = "SEARCH session_tokens USING INDEX sqlite_autoindex_session_tokens_1 (session=?) LEFT-JOIN"
WORDS = "SCAN messages_fts VIRTUAL TABLE INDEX 192:M2<"
HIT = "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)"

PLANS = [
    pytest.param(queries.TRANSCRIPT, ["SEARCH messages USING INDEX sqlite_autoindex_messages_1 (session=? AND idx>?)"]),
    pytest.param(queries.COMPACTIONS, ["SEARCH compactions USING INDEX sqlite_autoindex_compactions_1 (session=?)"]),
    pytest.param(queries.OUTCOME, [ITS_SESSION]),
    pytest.param(queries.CALLS, ["SEARCH calls USING INTEGER PRIMARY KEY (rowid>?)"]),
    pytest.param(queries.SESSION_CALLS, ["SEARCH calls USING INDEX calls_by_session (session=? AND id>?)"]),
    pytest.param(queries.INBOX, ["SCAN inbox"]),
    pytest.param(queries.ROWS, ["SEARCH sessions", "SEARCH messages", "SEARCH calls"]),
    pytest.param(queries.RESTARTS, ["SEARCH restarts USING INDEX restarts_by_time (at_ms>?)"]),
    pytest.param(queries.TOTALS[0], ["SCAN calls USING COVERING INDEX calls_by_session"]),
    pytest.param(
        queries.TOTALS[1],
        [
            "SCAN sessions USING COVERING INDEX sessions_by_activity",
            "SCAN messages USING COVERING INDEX sqlite_autoindex_messages_1",
        ],
    ),
    pytest.param(queries.SESSION_TOTALS[0], [COVERED]),
    pytest.param(
        queries.SESSION_TOTALS[1],
        ["SEARCH sessions USING COVERING INDEX sqlite_autoindex_sessions_1 (session=?)", ITS_MESSAGES],
    ),
    pytest.param(queries.TREE_TOTALS[0], [BELOW, COVERED]),
    pytest.param(
        queries.TREE_TOTALS[1],
        [
            BELOW,
            "SEARCH sessions USING COVERING INDEX sqlite_autoindex_sessions_1 (session=?) LEFT-JOIN",
            ITS_MESSAGES,
        ],
    ),
    pytest.param(
        lookups.GENERATION,
        ["SEARCH conversations USING INDEX sqlite_autoindex_conversations_1 (source=? AND conversation=?)"],
    ),
    pytest.param(lookups.SWARMS, ["SEARCH swarms USING INTEGER PRIMARY KEY (rowid<?)", *[ITS_TASKS] * 3]),
    pytest.param(lookups.TASKS, ["SEARCH tasks USING INDEX sqlite_autoindex_tasks_1 (swarm=? AND idx>?)"]),
    pytest.param(lookups.TURN_LEASE, ["SEARCH turn_leases USING INDEX sqlite_autoindex_turn_leases_1 (session=?)"]),
    pytest.param(lookups.DEAD_LETTERS, ["SEARCH dead_letters USING INTEGER PRIMARY KEY (rowid>?)"]),
    pytest.param(search_queries.SEARCH, [WORDS, HIT]),
    pytest.param(search_queries.SEARCH_SESSION, [WORDS, HIT]),
    pytest.param(session_queries.SESSION, [ITS_SESSION, ITS_ROUTE, ITS_MESSAGES]),
    pytest.param(usage_queries.TOTAL[0], [BY_TIME]),
    pytest.param(usage_queries.TOTAL[1], [BELOW, BY_SESSION]),
    pytest.param(
        activity.TOUCH,
        [
            "SCAN touched VIRTUAL TABLE INDEX 1:",
            "SEARCH sessions USING COVERING INDEX sqlite_autoindex_sessions_1 (session=?)",
            "SEARCH sessions USING COVERING INDEX sessions_by_activity",
        ],
    ),
    pytest.param(search._STEP, ["SEARCH messages USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]),
]

_CLIMB = [ITS_SESSION, "SCAN climb", ITS_SESSION, "SEARCH tops USING AUTOMATIC COVERING INDEX (session=?)"]
USAGE_PLANS = {
    UsageBy.MODEL: ([BY_TIME], [BELOW, BY_SESSION]),
    UsageBy.SESSION: ([BY_TIME], [BELOW, BY_SESSION]),
    UsageBy.DAY: ([BY_TIME], [BELOW, BY_SESSION]),
    UsageBy.PROFILE: ([BY_TIME, ITS_SESSION], [BELOW, BY_SESSION, ITS_SESSION]),
    UsageBy.TREE: (
        [BY_TIME, BY_TIME, "SCAN climb", *_CLIMB],
        [BELOW, BY_SESSION, BY_SESSION, "SCAN climb", *_CLIMB],
    ),
}


_STATEMENT = re.compile(r"SELECT|UPDATE|WITH .*\) SELECT ")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(tmp_path_factory.mktemp("plans") / "state.db")
    yield store
    store.close()


def plan(store: Store, sql: str) -> list[str]:
    numbers = [int(number) for number in re.findall(r"\?(\d+)", sql)]
    values = (None,) * (max(numbers) if numbers else sql.count("?"))
    steps = [str(row[3]) for row in store._database.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    # What reads what was found before is no matter of an index.
    return [step for step in steps if step.startswith(("SCAN", "SEARCH")) and not _is_found(step)]


def _is_found(step: str) -> bool:
    return step in ("SCAN CONSTANT ROW", "SCAN tree") or "subquery" in step


def statements_of(module: ModuleType) -> set[str]:
    shipped = [value for name, value in vars(module).items() if name.isupper() and not name.startswith("_")]
    texts = [text for value in shipped for text in (value if isinstance(value, tuple) else (value,))]
    return {text for text in texts if isinstance(text, str) and _STATEMENT.match(text)}


@pytest.mark.parametrize(("sql", "steps"), PLANS)
def test_a_query_runs_through_its_index(store: Store, sql: str, steps: list[str]) -> None:
    assert plan(store, sql) == steps


@pytest.mark.parametrize("by", UsageBy)
def test_usage_is_added_up_along_an_index(store: Store, by: UsageBy) -> None:
    assert tuple(plan(store, sql) for sql in USAGE[by]) == USAGE_PLANS[by]


@pytest.mark.parametrize(
    "filters", [some for count in range(5) for some in itertools.combinations(FILTERS, count)], ids=" and ".join
)
def test_a_page_of_sessions_is_found_in_its_order_whatever_it_is_filtered_by(
    store: Store, filters: tuple[str, ...]
) -> None:
    found, *rest = plan(store, sessions_statement(filters))

    assert re.fullmatch(r"SEARCH sessions USING INDEX sessions_by_\w+ \((\w+=\? AND )?activity<\?\)", found)
    assert rest == [ITS_ROUTE, ITS_MESSAGES]


def test_every_statement_of_the_reader_has_a_plan() -> None:
    statements = set().union(*(statements_of(module) for module in MODULES))

    assert len(statements) > 20
    assert statements <= {param.values[0] for param in PLANS}


def test_no_page_of_sessions_and_no_page_of_hits_is_sorted(store: Store) -> None:
    for sql in (sessions_statement(()), sessions_statement(("source", "top")), search_queries.SEARCH):
        steps = store._database.execute(f"EXPLAIN QUERY PLAN {sql}", (None,) * len(set(re.findall(r"\?\d", sql))))
        assert not [step for step in steps if "TEMP B-TREE" in str(step[3])]
