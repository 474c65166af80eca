"""The writer's statements: one per kind of record, each of which may be repeated and come in any order.

A later account of a call wins if it knows more: any status over `lost`, then usage over none. Where each knows what
the other does not (which only an account that is lost *and* has usage can do), the row takes the usage of the one
and all else of the other.
"""

from __future__ import annotations

from typing import Final

from .bulk import Bulk
from .rows import CALL_COLUMNS, ENDED_COLUMNS, MESSAGE_COLUMNS, OPENED_COLUMNS, RESTART_COLUMNS, TOKEN_COLUMNS

_KNOWS: Final = "({0}.status <> 'lost', {0}.input_tokens IS NOT NULL)"
_KNOWS_MORE: Final = f"{_KNOWS.format('excluded')} > {_KNOWS.format('calls')}"
_HAS_USAGE_FIRST: Final = "(excluded.input_tokens IS NOT NULL AND calls.input_tokens IS NULL)"


def _account(column: str) -> str:
    if column in TOKEN_COLUMNS:
        newer, older = f"coalesce(excluded.{column}, calls.{column})", f"coalesce(calls.{column}, excluded.{column})"
    else:
        newer, older = f"excluded.{column}", f"calls.{column}"
    return f"{column} = iif({_KNOWS_MORE}, {newer}, {older})"


def _overwrite(columns: tuple[str, ...]) -> str:
    return ", ".join(f"{column} = excluded.{column}" for column in columns)


OPENED: Final = Bulk(
    "sessions",
    OPENED_COLUMNS,
    f"ON CONFLICT (session) DO UPDATE SET {_overwrite(OPENED_COLUMNS[1:])} WHERE sessions.agent IS NULL",
)

ENDED: Final = Bulk(
    "sessions",
    ENDED_COLUMNS,
    f"ON CONFLICT (session) DO UPDATE SET {_overwrite(ENDED_COLUMNS[1:])} WHERE sessions.outcome IS NULL",
)

MESSAGES: Final = Bulk("messages", MESSAGE_COLUMNS, "ON CONFLICT (session, idx) DO NOTHING")

CALLS: Final = Bulk(
    "calls",
    CALL_COLUMNS,
    f"ON CONFLICT (call) DO UPDATE SET {', '.join(_account(column) for column in CALL_COLUMNS[1:])} "
    f"WHERE {_KNOWS_MORE} OR {_HAS_USAGE_FIRST}",
)

RESTARTS: Final = Bulk("restarts", RESTART_COLUMNS, "ON CONFLICT (incarnation) DO NOTHING")

INBOX: Final = Bulk(
    "inbox",
    ("incarnation", "seq"),
    "ON CONFLICT (incarnation) DO UPDATE SET seq = excluded.seq WHERE excluded.seq > inbox.seq",
)

UNSTORABLE: Final = Bulk("unstorable", ("incarnation", "seq", "problem", "record"), "")
