"""The index of words over messages, and what becomes of it when it is damaged.

It is derived from `messages_shown` and never worth a message: where it fails, its triggers go, a note in `meta` says
why, and messages are kept without it. `mend` makes it anew in steps of bounded length, which survive a restart between
any two of them; what is appended meanwhile is in it at once. The text itself is not kept twice.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from ..protocol.errors import StoreDamaged, StoreError
from .database import Database, Value
from .logs import log_event

INDEX: Final = "messages_fts"
SPOILT: Final = f"{INDEX}_spoilt"
"""Beginning of the names of indices that could not even be removed."""
OFF: Final = "search_off"
"""In `meta`: why the index is not kept."""
UPTO: Final = "search_upto"
"""In `meta`: the last message from before the index; all later ones are in it."""
DONE: Final = "search_done"
"""In `meta`: the last message up to which the earlier ones are in it as well."""
MEND_ROWS: Final = 250

_SHOWN: Final = "SELECT id, content, tool_calls FROM messages_shown"
# Hits are in the order of rows, so no sizes for ranking are kept.
_TABLE: Final = (
    f"CREATE VIRTUAL TABLE {INDEX} USING fts5(content, tool_calls, content='messages_shown', content_rowid='id',"
    " columnsize=0, tokenize='unicode61 remove_diacritics 2')"
)
_TRIGGERS: Final = {
    "search_appended": "AFTER INSERT ON messages"
    f" BEGIN INSERT INTO {INDEX} (rowid, content, tool_calls) {_SHOWN} WHERE id = new.id; END",
    "search_removed": "BEFORE DELETE ON messages"
    f" BEGIN INSERT INTO {INDEX} ({INDEX}, rowid, content, tool_calls)"
    f" SELECT 'delete', id, content, tool_calls FROM messages_shown WHERE id = old.id; END",
}
_STEP: Final = f"INSERT INTO {INDEX} (rowid, content, tool_calls) {_SHOWN} WHERE id > ? AND id <= ? ORDER BY id"
_BOUND: Final = (
    "SELECT coalesce(max(id), ?2) FROM (SELECT id FROM messages WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3)"
)
_TREE: Final = re.compile(r"^Tree (\d+) ", re.MULTILINE)
_IS_THERE: Final = "SELECT count(*) FROM sqlite_schema WHERE name = ?"

log = logging.getLogger(__name__)


def is_missing(database: Database) -> bool:
    """Whether there is no index, and no note that there should be none."""
    return not _has(database, INDEX) and problem(database) is None


def problem(database: Database) -> str | None:
    """Why not everything can be found now; None if it can."""
    if not _has(database, "meta"):
        return None
    why = _read(database, OFF)
    if why is None and _read(database, UPTO) is not None:
        return "the search index is being made anew"
    return why


def is_on(database: Database) -> bool:
    """Whether messages go into the index."""
    return _has(database, "search_appended")


def install(database: Database) -> None:
    """Make the index, within the transaction that is open; messages that are there already are left to `mend`."""
    database.execute(_TABLE)
    for name, text in _TRIGGERS.items():
        database.execute(f"CREATE TRIGGER {name} {text}")
    database.execute("DELETE FROM meta WHERE key IN (?, ?, ?)", (OFF, UPTO, DONE))
    last = database.number("SELECT coalesce(max(id), 0) FROM messages")
    if last:
        _note(database, UPTO, str(last))
        _note(database, DONE, "0")


@contextmanager
def turned_off(database: Database, why: str) -> Iterator[None]:
    """A transaction without the index; it is off from then on if that is committed. The index is not touched."""
    with database.transaction():
        for name in _TRIGGERS:
            database.execute(f"DROP TRIGGER IF EXISTS {name}")
        database.execute("DELETE FROM meta WHERE key IN (?, ?)", (UPTO, DONE))
        _note(database, OFF, why)
        yield
    log_event(log, "search_off", level=logging.ERROR, path=database.path, problem=why)


def is_of_index(error: StoreError) -> bool:
    """Whether the index may be to blame for a statement that failed."""
    return isinstance(error, StoreDamaged) or INDEX in str(error)


def is_only_damage(database: Database) -> bool:
    """Whether a check that found damage finds it in the index only, or in one that was put aside."""
    # A check of everything may break off at its first finding, so every other table is checked for itself as well.
    roots = {row[0] for row in database.execute("SELECT rootpage FROM sqlite_schema WHERE name GLOB ?", (f"{INDEX}*",))}
    return _names(_finding(database, "1"), roots) and all(
        _finding(database, f"'{row[0]!s}'") == "ok"
        for row in database.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB ?", (f"{INDEX}*",)
        )
    )


def is_sound(database: Database) -> bool:
    """Whether a check finds no damage in the index; none is sound."""
    tables = database.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB ? AND name NOT GLOB ?",
        (f"{INDEX}*", f"{SPOILT}*"),
    )
    return all(_finding(database, f"'{row[0]!s}'") == "ok" for row in tables)


def _finding(database: Database, of: str) -> str:
    try:
        return str(database.execute(f"PRAGMA quick_check({of})")[0][0])
    except StoreError as error:
        return str(error)


def _names(finding: str, roots: Collection[Value]) -> bool:
    tree = _TREE.search(finding)
    return int(tree[1]) in roots if tree else finding == "ok" or INDEX in finding


def mend(database: Database, *, rows: int = MEND_ROWS) -> bool:
    """Do one step towards an index that holds every message; whether there is another one to do.

    Raises `StoreError` if the old index can neither be removed nor put aside, or the new one fails: it is off then.
    """
    if problem(database) is None:
        return False
    try:
        if _read(database, OFF) is not None:
            _renew(database)
            return True
        with database.transaction():
            return _step(database, rows)
    except StoreError as error:
        if is_of_index(error):
            with turned_off(database, str(error)):
                pass
        raise


def _step(database: Database, rows: int) -> bool:
    done, upto = int(_read(database, DONE) or 0), int(_read(database, UPTO) or 0)
    bound = database.number(_BOUND, (done, upto, rows))
    database.execute(_STEP, (done, bound))
    if bound < upto:
        _note(database, DONE, str(bound))
        return True
    database.execute("DELETE FROM meta WHERE key IN (?, ?)", (UPTO, DONE))
    log_event(log, "search_mended", path=database.path, messages=upto)
    return False


def _renew(database: Database) -> None:
    """Begin anew. An index that is too damaged to be removed is put aside under another name: its pages are lost."""
    try:
        with database.transaction():
            database.execute(f"DROP TABLE IF EXISTS {INDEX}")
            install(database)
    except StoreError as error:
        if not is_of_index(error):
            raise
        # In a transaction of its own: what was half removed cannot be renamed any more.
        with database.transaction():
            spoilt = database.number("SELECT count(*) FROM sqlite_schema WHERE name GLOB ?", (f"{SPOILT}_[0-9]",))
            database.execute(f"ALTER TABLE {INDEX} RENAME TO {SPOILT}_{spoilt + 1}")
            install(database)


def _has(database: Database, name: str) -> bool:
    return bool(database.number(_IS_THERE, (name,)))


def _read(database: Database, key: str) -> str | None:
    found = database.execute("SELECT value FROM meta WHERE key = ?", (key,))
    return str(found[0][0]) if found else None


def _note(database: Database, key: str, value: str) -> None:
    database.execute(
        "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", (key, value)
    )
