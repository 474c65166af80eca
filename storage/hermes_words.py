"""What hermes-agent wrote, as covey keeps it: names, messages, usage. Pure.

A name follows from the session's own id and the moment it began, which are unique over all databases and survive
copies, upgrades and pruning: so the same session gets the same name wherever and whenever it is read.
"""

from __future__ import annotations

import hashlib
from typing import Final, cast

import msgspec

from ..protocol.ids import AgentId, CallId, SessionId
from ..protocol.transcript import Message, Role, ToolCall, is_storable
from ..protocol.usage import Usage
from .hermes import HermesMessage, HermesSession, Used

STRUCTURED: Final = "\0json:"
"""Begins content that is no plain text there."""
MAX_CHARS: Final = 8 << 20
"""Of one message; a link carries no message that is much longer."""
CUT: Final = "\n[cut here when it was brought over]"
ROLES: Final = frozenset(role.value for role in Role)

_json = msgspec.json.Encoder()


class _Function(msgspec.Struct, frozen=True):
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b'""')


class _Call(msgspec.Struct, frozen=True):
    id: str | None = None
    call_id: str | None = None
    function: _Function = _Function()


_calls = msgspec.json.Decoder(list[_Call])


def session_name(session: HermesSession) -> SessionId:
    """The name of this session in covey."""
    return SessionId(f"ses_{_digest('session', session.id, str(session.started_ms), length=12)}")


def agent_name(session: SessionId) -> AgentId:
    """The name of the agent that is said to have had this session."""
    return AgentId(f"ag_{_digest('agent', session, length=12)}")


def call_name(session: SessionId, *route: str, upto: Used) -> CallId:
    """The name of the account that brings a route of a session up to these counts."""
    counts = ",".join(map(str, (upto.api_calls, *upto.tokens)))
    return CallId(f"call_{_digest('call', session, *route, counts, length=16)}")


def message_of(row: HermesMessage) -> Message | None:
    """The message; None if it is none that a provider would take (an empty answer, a note of the program's own)."""
    if row.role not in ROLES:
        return None
    role = Role(row.role)
    message = Message(
        role=role,
        content=bounded(plain(row.content or "")),
        tool_calls=tool_calls(row.tool_calls) if role is Role.ASSISTANT and row.tool_calls else (),
        tool_call_id=row.tool_call_id if role is Role.TOOL else None,
    )
    return message if is_storable(message) else None


def bounded(text: str) -> str:
    """The text, cut at `MAX_CHARS`."""
    return text if len(text) <= MAX_CHARS else text[:MAX_CHARS] + CUT


def plain(content: str) -> str:
    """The text of a content; of one with several parts the texts, and what else there was in brackets."""
    if not content.startswith(STRUCTURED):
        return content
    try:
        value = cast(object, msgspec.json.decode(content[len(STRUCTURED) :]))
    except (msgspec.DecodeError, RecursionError):
        return content[len(STRUCTURED) :]
    parts = value if isinstance(value, list) else [value]
    return "\n".join(_part(part) for part in parts)


def tool_calls(text: str) -> tuple[ToolCall, ...]:
    """The calls; none if the text does not read."""
    if len(text) > MAX_CHARS:
        return ()
    try:
        found = _calls.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return ()
    return tuple(
        ToolCall(
            id=call.id or call.call_id or "", name=call.function.name, arguments=_arguments(call.function.arguments)
        )
        for call in found
    )


def usage_of(used: Used) -> Usage | None:
    """The tokens; None where calls were counted and no tokens: nobody reported any."""
    if not any(used.tokens):
        return None
    reasoning = min(used.reasoning, used.output)
    return Usage(
        input=used.input,
        output=used.output - reasoning,
        cache_read=used.cache_read,
        cache_write=used.cache_write,
        reasoning=reasoning,
    )


def less(used: Used, others: Used) -> Used:
    """What is left of `used` without the others, never below nothing."""
    return Used(
        api_calls=max(0, used.api_calls - others.api_calls),
        input=max(0, used.input - others.input),
        output=max(0, used.output - others.output),
        cache_read=max(0, used.cache_read - others.cache_read),
        cache_write=max(0, used.cache_write - others.cache_write),
        reasoning=max(0, used.reasoning - others.reasoning),
        cost_estimated_usd=_left(used.cost_estimated_usd, others.cost_estimated_usd),
        cost_actual_usd=_left(used.cost_actual_usd, others.cost_actual_usd),
    )


def plus(one: Used, other: Used) -> Used:
    """Both together; what both do not know stays unknown."""
    return Used(
        api_calls=one.api_calls + other.api_calls,
        input=one.input + other.input,
        output=one.output + other.output,
        cache_read=one.cache_read + other.cache_read,
        cache_write=one.cache_write + other.cache_write,
        reasoning=one.reasoning + other.reasoning,
        cost_estimated_usd=_sum(one.cost_estimated_usd, other.cost_estimated_usd),
        cost_actual_usd=_sum(one.cost_actual_usd, other.cost_actual_usd),
    )


def is_nothing(used: Used) -> bool:
    """Whether there is nothing to account for."""
    return not used.api_calls and not any(used.tokens)


def _digest(*words: str, length: int) -> str:
    text = "\0".join(("hermes-agent", *words)).encode("utf-8", "replace")
    return hashlib.sha256(text).hexdigest()[:length]


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        text = part.get("text")
        return text if isinstance(text, str) else f"[{part.get('type', 'something that is no text')}]"
    return _json.encode(part).decode()


def _arguments(raw: msgspec.Raw) -> str:
    """As the model wrote them: usually JSON in a string, sometimes the object itself."""
    value = cast(object, msgspec.json.decode(raw))
    return value if isinstance(value, str) else bytes(raw).decode()


def _left(used: float | None, others: float | None) -> float | None:
    if used is None:
        return None
    left = used - (others or 0.0)
    return left if left > 1e-9 else None


def _sum(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other
