"""Tool calls of dialects that announce each call by its name, and then tell its arguments, in pieces or whole.

Pieces win: what is told whole only counts for a call of which no piece came.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

import msgspec

from ..transcript import ToolCall
from .base import NO_NAMES, ToolCallDelta
from .chat_wire import CallDelta, FunctionDelta
from .tool_calls import ToolCalls


@dataclass(slots=True)
class _Open:
    index: int
    id: str
    name: str
    whole: str
    pieces: list[str] = field(default_factory=list)


class NamedCalls:
    """The calls of one answer, as far as they have come. Owned by its reader.

    A call is found by any of its places (its number, its block's id), or by its own id. `names` are those of
    `Rendered`.
    """

    def __init__(self, names: Mapping[str, str] = NO_NAMES) -> None:
        self._names = names
        self._calls: list[_Open] = []
        self._by_place: dict[Hashable, _Open] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def open(self, *places: Hashable, id_: str, name: str, whole: str = "") -> ToolCallDelta:
        """Begin a call; its places are its own from now on."""
        call = _Open(index=len(self._calls), id=id_, name=name, whole=whole)
        self._calls.append(call)
        self._by_place.update((place, call) for place in places)
        return ToolCallDelta(index=call.index, name=self._shown(call), arguments="")

    def add(self, *places: Hashable, piece: str) -> ToolCallDelta | None:
        """Put a piece of arguments where it belongs; None if it says nothing or no call was announced there."""
        call = self._at(places)
        if call is None or not piece:
            return None
        call.pieces.append(piece)
        return ToolCallDelta(index=call.index, name=self._shown(call), arguments=piece)

    def settle(self, *places: Hashable, id_: str = "", name: str = "", whole: str = "") -> None:
        """Take what is told of a call at its end; one that was not announced is opened, if it has a name."""
        call = next((call for call in self._calls if id_ and call.id == id_), None) or self._at(places)
        if call is not None:
            call.id, call.name, call.whole = call.id or id_, call.name or name, whole or call.whole
        elif name:
            self.open(*places, id_=id_, name=name, whole=whole)

    def finished(self, response_id: str | None) -> tuple[ToolCall, ...]:
        """Return the calls in the order they began, each with an id of its own and JSON text for arguments."""
        calls = ToolCalls(self._names)
        for call in self._calls:
            arguments = msgspec.Raw(msgspec.json.encode("".join(call.pieces) or call.whole))
            calls.add(CallDelta(index=call.index, id=call.id, function=FunctionDelta(call.name, arguments)))
        return calls.whole(response_id)

    def _shown(self, call: _Open) -> str:
        return self._names.get(call.name, call.name)

    def _at(self, places: tuple[Hashable, ...]) -> _Open | None:
        return next((call for place in places if (call := self._by_place.get(place)) is not None), None)
