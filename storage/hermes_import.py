"""What a hermes-agent database has and ours has not: the records that bring it over.

Both are read, neither is written here; whoever owns state.db commits the records. A second import finds nothing to do;
one after the session went on brings what was added. Where the beginning of a session is not what was brought over (its
messages were rewritten there), its messages stay here as they are, and it is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, cast

import msgspec

from ..protocol.ids import SessionId
from ..protocol.messages.ledger import (
    CallRecorded,
    CallStatus,
    LedgerRecord,
    MessageAppended,
    MessagesCompacted,
    SessionEnded,
    SessionOpened,
)
from .database import Row, Value
from .hermes import Hermes, HermesMessage, HermesSession, HermesUsage, Used
from .hermes_words import (
    agent_name,
    bounded,
    call_name,
    is_nothing,
    less,
    message_of,
    plain,
    plus,
    session_name,
    usage_of,
)
from .readonly import Reader
from .rows import MESSAGE_COLUMNS, message_row
from .schema import COST_COLUMNS

TASK: Final = "import"
"""The task of the rows of calls that stand for what was used there."""
SOURCE: Final = "hermes"
PROGRESS: Final = 1000

OnProgress = Callable[[int, int], None]
"""Messages read so far, and how many there are."""


class Counted(msgspec.Struct, kw_only=True):
    """What was found; grows while records are made."""

    sessions: int = 0
    sessions_new: int = 0
    sessions_changed: int = 0
    """Their messages were rewritten since they were brought over, and stayed here as they were."""
    messages: int = 0
    messages_new: int = 0
    messages_rewound: int = 0
    """Taken back by the user; they are not brought over."""
    messages_not_kept: int = 0
    """Empty answers and notes of the program's own, which no provider would take."""
    messages_without_session: int = 0
    calls_new: int = 0
    """Rows of calls, each for all calls of one route that were made since the last import."""
    api_calls: int = 0
    """Calls that these rows stand for."""
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Session:
    """What is known of one session while its messages go by."""

    def __init__(self, name: SessionId, started_ms: int, *, is_new: bool) -> None:
        self.name, self.started_ms, self.is_new = name, started_ms, is_new
        self.index = 0
        self.is_changed = False
        self.compacted_from: int | None = None


_Route = tuple[str, str, str, str]
"""Model, provider, base URL and task."""


class Ours:
    """What is in our own state.db, as far as an import has to know. Owned by the thread that opened it."""

    def __init__(self, path: Path) -> None:
        """Open it for reading; one that does not exist yet has nothing."""
        self._reader = Reader(path) if path.exists() and path.stat().st_size else None
        if self._reader is not None:
            try:
                self._reader.require_ours()
                self._has_compactions = bool(self._reader.columns("compactions"))
                has_costs = COST_COLUMNS[0] in self._reader.columns("calls")
                self._costs = ", ".join(f"sum({column})" if has_costs else "NULL" for column in COST_COLUMNS)
            except BaseException:
                self._reader.close()
                raise

    def session(self, name: SessionId) -> tuple[bool, bool]:
        """Whether its beginning is here, and whether its end is."""
        rows = self._rows("SELECT agent IS NOT NULL, outcome IS NOT NULL FROM sessions WHERE session = ?", name)
        return (bool(rows[0][0]), bool(rows[0][1])) if rows else (False, False)

    def message(self, name: SessionId, index: int) -> Row | None:
        """Role, content, tool calls and the call it answers, None if it is not here."""
        sql = "SELECT role, content, tool_calls, tool_call_id FROM messages WHERE session = ? AND idx = ?"
        rows = self._rows(sql, name, index)
        return rows[0] if rows else None

    def is_compacted(self, name: SessionId, first: int, upto: int) -> bool:
        """Whether this range is said to be."""
        # Read before the next ledger upgrades it, it may be from before there were any.
        if self._reader is None or not self._has_compactions:
            return False
        sql = "SELECT 1 FROM compactions WHERE session = ? AND first = ? AND upto = ?"
        return bool(self._rows(sql, name, first, upto))

    def used(self, name: SessionId, task: str, model: str, provider: str, base_url: str) -> Used:
        """What was brought over of this route so far."""
        rows = self._rows(
            "SELECT sum(input_tokens), sum(output_tokens), sum(cache_read_tokens), sum(cache_write_tokens),"
            f" sum(reasoning_tokens), count(*), {self._costs} FROM calls"
            " WHERE session = ? AND task = ? AND model = ? AND provider = ? AND base_url = ?",
            name, task, model, provider, base_url,
        )  # fmt: skip
        if not rows or not rows[0][5]:
            return Used()
        read, written, cache_read, cache_write, reasoning = (cast("int | None", cell) or 0 for cell in rows[0][:5])
        return Used(
            input=read,
            output=written + reasoning,
            cache_read=cache_read,
            cache_write=cache_write,
            reasoning=reasoning,
            cost_estimated_usd=_usd(rows[0][6]),
            cost_actual_usd=_usd(rows[0][7]),
        )

    def has_call(self, call: str) -> bool:
        """Whether this account is here."""
        return bool(self._rows("SELECT 1 FROM calls WHERE call = ?", call))

    def close(self) -> None:
        """Close it."""
        if self._reader is not None:
            self._reader.close()

    def _rows(self, sql: str, *values: str | int) -> list[Row]:
        if self._reader is None:
            return []
        return self._reader.rows(sql, values)


def _usd(nano: Value) -> float | None:
    return nano / 1e9 if isinstance(nano, int) else None


def records(theirs: Hermes, ours: Ours, counted: Counted, on_progress: OnProgress) -> Iterator[LedgerRecord]:
    """Yield what is missing here: beginnings, messages in their order, what was used, ends. `counted` grows meanwhile.

    All may be given to a ledger again; the second time changes nothing.
    """
    _, in_all = theirs.size()
    sessions: dict[str, _Session] = {}
    ends: list[SessionEnded] = []
    yield from _opened(theirs, ours, counted, sessions, ends)
    yield from _messages(theirs, ours, counted, sessions, lambda done: on_progress(done, in_all))
    yield from _calls(theirs, ours, counted, sessions)
    yield from ends


def _opened(
    theirs: Hermes, ours: Ours, counted: Counted, sessions: dict[str, _Session], ends: list[SessionEnded]
) -> Iterator[LedgerRecord]:
    found = list(theirs.sessions())
    names = {session.id: session_name(session) for session in found}
    goals = theirs.goals()
    for session in found:
        name = names[session.id]
        has_begun, has_ended = ours.session(name)
        sessions[session.id] = _Session(name, session.started_ms, is_new=not has_begun)
        counted.sessions += 1
        if not has_begun:
            counted.sessions_new += 1
            goal = session.title or plain(goals.get(session.id, ""))
            yield _beginning(session, name, goal, names.get(session.parent or ""))
        if session.ended_ms is not None and not has_ended:
            ends.append(SessionEnded(session=name, outcome="done", at_ms=session.ended_ms))


def _beginning(session: HermesSession, name: SessionId, goal: str, parent: SessionId | None) -> SessionOpened:
    return SessionOpened(
        session=name,
        agent=agent_name(name),
        goal=goal,
        source=f"{SOURCE}:{session.source}",
        provider=session.provider,
        model=session.model,
        parent=parent,
        at_ms=session.started_ms,
        base_url=session.base_url,
        profile=session.profile,
    )


# --- messages --------------------------------------------------------------------------------------------------------


def _messages(
    theirs: Hermes, ours: Ours, counted: Counted, sessions: dict[str, _Session], on_progress: Callable[[int], None]
) -> Iterator[LedgerRecord]:
    for row in theirs.messages():
        counted.messages += 1
        if counted.messages % PROGRESS == 0:
            on_progress(counted.messages)
        session = sessions.get(row.session)
        if session is None:
            counted.messages_without_session += 1
        elif not session.is_changed:
            yield from _appended(row, session, ours, counted)
    on_progress(counted.messages)
    for session in sessions.values():
        yield from _compacted(session, ours)


def _appended(row: HermesMessage, session: _Session, ours: Ours, counted: Counted) -> Iterator[LedgerRecord]:
    message = None if row.is_rewound else message_of(row)
    if message is None:
        counted.messages_rewound += row.is_rewound
        counted.messages_not_kept += not row.is_rewound
        return
    record = MessageAppended(
        session=session.name,
        index=session.index,
        message=message,
        at_ms=row.at_ms if row.at_ms is not None else session.started_ms,
        api_content=bounded(row.api_content) if row.api_content is not None else None,
        display_kind=row.display_kind,
        display_metadata=row.display_metadata,
    )
    known = None if session.is_new else ours.message(session.name, session.index)
    if known is not None and known != _compared(record):
        session.is_changed = True
        session.compacted_from = None
        counted.sessions_changed += 1
        return
    if known is None:
        counted.messages_new += 1
        yield record
    if not row.is_compacted:
        yield from _compacted(session, ours)
    elif session.compacted_from is None:
        session.compacted_from = session.index
    session.index += 1


def _compared(record: MessageAppended) -> Row:
    named = dict(zip(MESSAGE_COLUMNS, message_row(record), strict=True))
    return tuple(named[column] for column in ("role", "content", "tool_calls", "tool_call_id"))


def _compacted(session: _Session, ours: Ours) -> Iterator[LedgerRecord]:
    """Say of the run of compacted messages that ends here that it is one, if there is one."""
    first, upto = session.compacted_from, session.index - 1
    session.compacted_from = None
    if first is not None and not ours.is_compacted(session.name, first, upto):
        yield MessagesCompacted(session=session.name, first=first, upto=upto, at_ms=session.started_ms)


# --- what was used ---------------------------------------------------------------------------------------------------


def _calls(theirs: Hermes, ours: Ours, counted: Counted, sessions: dict[str, _Session]) -> Iterator[LedgerRecord]:
    by_session: dict[str, dict[_Route, tuple[Used, int]]] = {}
    for row in theirs.usage():
        session = sessions.get(row.session)
        if session is not None:
            _add(by_session.setdefault(row.session, {}), _route(row), row.used, row.first_ms or session.started_ms)
    for whole in theirs.sessions():
        session = sessions.get(whole.id)
        if session is None:
            continue
        routes = by_session.pop(whole.id, {})
        _add_rest(routes, whole)
        for route, (used, first_ms) in routes.items():
            yield from _call(session, route, used, first_ms=first_ms, ours=ours, counted=counted)


def _route(row: HermesUsage) -> _Route:
    return (row.model, row.provider, row.base_url, row.task)


def _add(routes: dict[_Route, tuple[Used, int]], route: _Route, used: Used, first_ms: int) -> None:
    before, first = routes.get(route, (Used(), first_ms))
    routes[route] = (plus(before, used), min(first, first_ms))


def _add_rest(routes: dict[_Route, tuple[Used, int]], session: HermesSession) -> None:
    """What the session's sums have beyond those of its models was used by the model of the session."""
    told = Used()
    for (*_, task), (used, _first) in routes.items():
        if not task:
            told = plus(told, used)
    rest = less(session.used, told)
    if not is_nothing(rest):
        route = (session.model or "unknown", session.provider or "", session.base_url or "", "")
        _add(routes, route, rest, session.started_ms)


def _call(
    session: _Session, route: _Route, used: Used, *, first_ms: int, ours: Ours, counted: Counted
) -> Iterator[LedgerRecord]:
    model, provider, base_url, there = route
    task = f"{TASK}/{there}" if there else TASK
    before = Used() if session.is_new else ours.used(session.name, task, model, provider, base_url)
    rest = less(used, before)
    name = call_name(session.name, *route, upto=used)
    is_unreported = not any(used.tokens) and used.api_calls > 0
    if not (any(rest.tokens) or is_unreported) or (not session.is_new and ours.has_call(name)):
        return
    usage = usage_of(rest)
    counted.calls_new += 1
    counted.api_calls += 0 if any(before.tokens) else used.api_calls
    if usage is not None:
        counted.prompt_tokens += usage.prompt_tokens
        counted.completion_tokens += usage.completion_tokens
    yield CallRecorded(
        call=name,
        session=session.name,
        agent=agent_name(session.name),
        task=task,
        provider=provider,
        base_url=base_url,
        model=model,
        status=CallStatus.COMPLETED,
        started_at_ms=first_ms,
        usage=usage,
        cost_estimated_usd=rest.cost_estimated_usd,
        cost_actual_usd=rest.cost_actual_usd,
    )
