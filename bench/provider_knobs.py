"""What a request turns on, off and up, in any dialect: its knobs, by the names that real providers take."""

from __future__ import annotations

from typing import Final

import msgspec

Field = dict[str, msgspec.Raw]

_LONGEST: Final = ("max_completion_tokens", "max_output_tokens", "max_tokens")


class Knobs(msgspec.Struct, frozen=True, kw_only=True):
    """The knobs that a mood looks at."""

    max_tokens: int | None = None
    """Where the answer is to be cut."""
    is_without_reasoning: bool = False
    """Whether the model is told not to think."""
    fields: frozenset[str] = frozenset()
    """Every field at the request's top."""


def knobs_of(body: bytes) -> Knobs:
    """The knobs of a request that was read already; what is set to nonsense is not set."""
    top = msgspec.json.decode(body, type=Field)
    longest = (_value(top, name) for name in _LONGEST)
    return Knobs(
        max_tokens=next((tokens for tokens in longest if isinstance(tokens, int) and tokens is not True), None),
        is_without_reasoning=_is_without_reasoning(top),
        fields=frozenset(top),
    )


def _is_without_reasoning(top: Field) -> bool:
    reasoning = _below(top, "reasoning")
    return (
        _value(reasoning, "enabled") is False
        or "none" in (_value(reasoning, "effort"), _value(top, "reasoning_effort"))
        or _value(_below(top, "thinking"), "type") == "disabled"
        or _value(top, "enable_thinking") is False
        or _value(_below(top, "chat_template_kwargs"), "enable_thinking") is False
    )


def _below(top: Field, name: str) -> Field:
    try:
        return msgspec.json.decode(top.get(name, b"{}"), type=Field)
    except msgspec.DecodeError:
        return {}


def _value(top: Field, name: str) -> int | bool | str | None:
    try:
        return msgspec.json.decode(top.get(name, b"null"), type=bool | int | str | None)
    except msgspec.DecodeError:
        return None
