"""Tool calls out of their pieces.

Providers disagree about which piece belongs to which call: most number the calls, some leave the number out or give
every call the number 0, some send calls whole, some repeat id and name with each piece, and some invent a new id for
each. So a piece opens a call if its number is new, or if it names a function and shows that another call is meant:
by an id that differs, or by arguments that begin anew after the ones before were whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from ..transcript import ToolCall
from .base import NO_NAMES, ToolCallDelta
from .chat_wire import CallDelta, text_of

UNNAMED_TOOL: Final = "unnamed"
"""Stands in for a name that never came: the history must be sendable, and the agent answers with an error."""


@dataclass(slots=True)
class _Open:
    index: int
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class ToolCalls:
    """The calls of one answer, as far as they have come. Owned by its reader. `names` are those of `Rendered`."""

    def __init__(self, names: Mapping[str, str] = NO_NAMES) -> None:
        self._names = names
        self._calls: list[_Open] = []
        self._by_number: dict[int, _Open] = {}

    def add(self, delta: CallDelta) -> ToolCallDelta | None:
        """Put a piece where it belongs; None if it says nothing."""
        function = delta.function
        name = (function.name or "") if function is not None else ""
        arguments = text_of(function.arguments) if function is not None else ""
        if not (_id(delta) or name or arguments):
            return None
        call = self._meant(delta, name, arguments)
        call.id = call.id or _id(delta)
        if name and not (call.name and call.arguments):
            call.name = name if name.startswith(call.name) else call.name + name
        if arguments:
            call.arguments.append(arguments)
        return ToolCallDelta(index=call.index, name=self._names.get(call.name, call.name), arguments=arguments)

    def whole(self, response_id: str | None) -> tuple[ToolCall, ...]:
        """Return the calls in the order they began, each with an id of its own.

        Missing ids are made from the answer's id; missing arguments mean none (`{}`).
        """
        seen: set[str] = set()
        calls = []
        for call in self._calls:
            call_id = call.id if call.id and call.id not in seen else _own_id(call, response_id)
            seen.add(call_id)
            arguments = "".join(call.arguments)
            name = self._names.get(call.name, call.name) or UNNAMED_TOOL
            calls.append(ToolCall(id=call_id, name=name, arguments=arguments or "{}"))
        return tuple(calls)

    def _meant(self, delta: CallDelta, name: str, arguments: str) -> _Open:
        known = self._known(delta)
        if known is not None and not (name and _is_another(known, _id(delta), name, arguments)):
            return known
        call = _Open(index=len(self._calls))
        self._calls.append(call)
        if delta.index is not None:
            self._by_number[delta.index] = call
        return call

    def _known(self, delta: CallDelta) -> _Open | None:
        if delta.index is not None:
            return self._by_number.get(delta.index)
        same_id = next((call for call in self._calls if call.id and call.id == _id(delta)), None)
        return same_id or (self._calls[-1] if self._calls else None)


def _is_another(call: _Open, id_: str, name: str, arguments: str) -> bool:
    """Whether a piece with a name speaks of another call than the one its number points at."""
    if id_ and call.id:
        return id_ != call.id
    if not (call.name and call.arguments):
        return False
    return name != call.name or (arguments[:1] == "{" and _is_json("".join(call.arguments)))


def _id(delta: CallDelta) -> str:
    return "" if delta.id is None else str(delta.id)


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _own_id(call: _Open, response_id: str | None) -> str:
    origin = re.sub(r"[^A-Za-z0-9]", "", response_id or call.id)[-24:]
    return f"call_{origin}_{call.index}" if origin else f"call_{call.index}"
