"""A hermes-agent `state.db`, read: its sessions, messages and what its sessions used, whatever its version.

Only tables and columns that are there are asked for; what is missing is None. Rows are read by their number, in pages,
so that a hermes-agent that goes on writing is not held up. Nothing is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self, cast

import msgspec

from ..protocol.errors import StoreError
from .database import Row, Value
from .readonly import Reader, quoted

PAGE: Final = 500
MAX_GOAL: Final = 500
MAX_TOKENS: Final = 1 << 40

_AS_IT_IS: Final = frozenset({"id", "session_id"})
_NUMBERS: Final = ("_at", "timestamp", "active", "compacted", "_count", "_tokens", "_usd", "_seen")
"""Endings of the names of columns that hold numbers."""

SESSION_COLUMNS: Final = (
    "id",
    "source",
    "model",
    "parent_session_id",
    "started_at",
    "ended_at",
    "end_reason",
    "title",
    "billing_provider",
    "billing_base_url",
    "profile_name",
    "api_call_count",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "estimated_cost_usd",
    "actual_cost_usd",
)
MESSAGE_COLUMNS: Final = (
    "id",
    "session_id",
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "timestamp",
    "active",
    "compacted",
    "api_content",
    "display_kind",
    "display_metadata",
)
USAGE_COLUMNS: Final = (
    "session_id",
    "model",
    "billing_provider",
    "billing_base_url",
    "billing_mode",
    "task",
    "api_call_count",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "estimated_cost_usd",
    "actual_cost_usd",
    "first_seen",
    "last_seen",
)


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """What was used in some calls. Reasoning is a part of the output; cached tokens are none of the input."""

    api_calls: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost_estimated_usd: float | None = None
    cost_actual_usd: float | None = None

    @property
    def tokens(self) -> tuple[int, int, int, int, int]:
        """The five counts."""
        return (self.input, self.output, self.cache_read, self.cache_write, self.reasoning)


class HermesSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session; times are Unix milliseconds."""

    id: str
    source: str
    model: str | None
    parent: str | None
    started_ms: int
    ended_ms: int | None
    end_reason: str | None
    title: str | None
    provider: str | None
    base_url: str | None
    profile: str | None
    used: Used


class HermesMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message. `is_rewound`: the user took it back; `is_compacted`: a summary stands for it."""

    number: int
    session: str
    role: str
    content: str | None
    tool_calls: str | None
    tool_call_id: str | None
    at_ms: int | None
    is_rewound: bool
    is_compacted: bool
    api_content: str | None
    display_kind: str | None
    display_metadata: str | None


class HermesUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What one session used of one model over one route, for its main loop (`task` is empty) or an auxiliary job."""

    session: str
    model: str
    provider: str
    base_url: str
    mode: str
    task: str
    used: Used
    first_ms: int | None


class Hermes:
    """The open database. Owned by the thread that opened it."""

    def __init__(self, path: Path) -> None:
        """Open it; raises `StoreError` for a file that is none."""
        self.path = path
        self._reader = Reader(path)
        try:
            self._reader.forbid_writes()
            self._columns = {
                name: self._reader.columns(name) for name in ("sessions", "messages", "session_model_usage")
            }
            self._require("sessions", "id", "started_at")
            self._require("messages", "id", "session_id", "role", "content")
            self.version = self._version()
        except BaseException:
            self._reader.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.close()

    def size(self) -> tuple[int, int]:
        """How many sessions and messages there are, for a measure of progress."""
        return (
            self._reader.number("SELECT count(*) FROM sessions"),
            self._reader.number("SELECT count(*) FROM messages"),
        )

    def sessions(self) -> Iterator[HermesSession]:
        """Yield all sessions in the order in which they were made."""
        for row in self._pages("sessions", SESSION_COLUMNS, "rowid"):
            yield _session(row)

    def goals(self) -> dict[str, str]:
        """The beginning of what the user said first, for each session."""
        found = self._reader.rows(
            f"SELECT message.session_id, CAST(substr(message.content, 1, {MAX_GOAL}) AS BLOB) FROM messages AS message"
            " JOIN (SELECT min(id) AS id FROM messages WHERE role = 'user' GROUP BY session_id) AS first"
            " ON first.id = message.id WHERE message.content IS NOT NULL"
        )
        return {str(session): _text(said) or "" for session, said in found}

    def messages(self) -> Iterator[HermesMessage]:
        """Yield all messages by their number: within a session, that is their order."""
        for row in self._pages("messages", MESSAGE_COLUMNS, "id"):
            yield _message(row)

    def usage(self) -> Iterator[HermesUsage]:
        """Yield what is known by model; nothing where that was not kept yet."""
        if self._columns["session_model_usage"]:
            for row in self._pages("session_model_usage", USAGE_COLUMNS, "rowid"):
                yield _usage(row)

    def _require(self, table: str, *columns: str) -> None:
        if not set(columns) <= set(self._columns[table]):
            raise StoreError(
                f"{self.path} is not a state.db of hermes-agent: it has no table {table} with {columns[0]}"
            )

    def _version(self) -> int | None:
        if not self._reader.columns("schema_version"):
            return None
        rows = self._reader.rows("SELECT max(version) FROM schema_version")
        return rows[0][0] if rows and isinstance(rows[0][0], int) else None

    def _pages(self, table: str, columns: Sequence[str], order: str) -> Iterator[Row]:
        chosen = ", ".join(self._as_read(table, column) for column in columns)
        sql = f"SELECT {order}, {chosen} FROM {table} WHERE {order} > ? ORDER BY {order} LIMIT {PAGE}"
        after = -1
        while rows := self._reader.rows(sql, (after,)):
            yield from (row[1:] for row in rows)
            after = cast(int, rows[-1][0])

    def _as_read(self, table: str, column: str) -> str:
        if column not in self._columns[table]:
            return "NULL"
        if column in _AS_IT_IS or column.endswith(_NUMBERS):
            return quoted(column)
        # Text that is no UTF-8 shall not cost its row.
        return f"CAST({quoted(column)} AS BLOB)"


def _session(row: Row) -> HermesSession:
    (id_, source, model, parent, started, ended, reason, title, provider, base_url, profile, *used) = row
    return HermesSession(
        id=str(id_),
        source=_text(source) or "unknown",
        model=_text(model),
        parent=_text(parent),
        started_ms=_ms(started) or 0,
        ended_ms=_ms(ended),
        end_reason=_text(reason),
        title=_text(title),
        provider=_text(provider),
        base_url=_text(base_url),
        profile=_text(profile),
        used=_used(used),
    )


def _message(row: Row) -> HermesMessage:
    (number, session, role, content, tool_calls, tool_call_id, at, active, compacted, api, kind, metadata) = row
    is_active = active is None or bool(active)
    return HermesMessage(
        number=cast(int, number),
        session=str(session),
        role=_text(role) or "",
        content=_text(content),
        tool_calls=_text(tool_calls),
        tool_call_id=_text(tool_call_id),
        at_ms=_ms(at),
        is_rewound=not is_active and not compacted,
        is_compacted=not is_active and bool(compacted),
        api_content=_text(api),
        display_kind=_text(kind),
        display_metadata=_text(metadata),
    )


def _usage(row: Row) -> HermesUsage:
    (session, model, provider, base_url, mode, task, *used, first, _last) = row
    return HermesUsage(
        session=str(session),
        model=_text(model) or "unknown",
        provider=_text(provider) or "",
        base_url=_text(base_url) or "",
        mode=_text(mode) or "",
        task=_text(task) or "",
        used=_used(used),
        first_ms=_ms(first),
    )


def _used(columns: Sequence[Value]) -> Used:
    calls, read, written, cache_read, cache_write, reasoning, estimated, actual = columns
    return Used(
        api_calls=_count(calls),
        input=_count(read),
        output=_count(written),
        cache_read=_count(cache_read),
        cache_write=_count(cache_write),
        reasoning=_count(reasoning),
        cost_estimated_usd=_money(estimated),
        cost_actual_usd=_money(actual),
    )


def _text(value: Value) -> str | None:
    """Text as it can be stored again: without lone surrogates, whatever the column held."""
    if value is None:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _ms(value: Value) -> int | None:
    """Unix seconds as milliseconds; None for what is no time."""
    if not isinstance(value, int | float) or not math.isfinite(value) or not 0 <= value < 1e11:
        return None
    return int(value * 1000)


def _count(value: Value) -> int:
    return int(value) if isinstance(value, int | float) and 0 <= value <= MAX_TOKENS else 0


def _money(value: Value) -> float | None:
    """A cost of nothing is what an unknown one looks like there."""
    return float(value) if isinstance(value, int | float) and 0 < value < 1e9 else None
