"""Anthropic Messages: the answer, streamed or whole.

Complete means that `message_stop` was seen. Thinking is shown and goes no further, but for the blocks that are signed
(or redacted): tool results are refused that come without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from ..settings import Dialect
from ..transcript import Signed
from .base import NO_NAMES, Finish, StreamEvent
from .chat_reader import FINISH as CHAT_FINISH
from .chat_wire import text_of
from .signed_blocks import signed_blocks
from .typed_reader import TypedReader, part_of

FINISH: Final[dict[str, Finish]] = {
    **CHAT_FINISH,  # from proxies that translate everything but the reason
    "end_turn": Finish.STOP,
    "stop_sequence": Finish.STOP,
    "tool_use": Finish.TOOL_CALLS,
    "refusal": Finish.FILTERED,
}

_NOTHING: Final = frozenset({"", "{}", "null"})


class _Block(msgspec.Struct, frozen=True):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | int | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw()


class _Delta(msgspec.Struct, frozen=True):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Message(msgspec.Struct, frozen=True):
    id: str | int | None = None
    model: str | None = None
    usage: msgspec.Raw = msgspec.Raw()
    content: list[_Block] | None = None
    stop_reason: str | None = None


class _Said(msgspec.Struct, frozen=True):
    type: str | None = None
    index: int | None = None
    message: msgspec.Raw = msgspec.Raw()
    content_block: msgspec.Raw = msgspec.Raw()
    delta: msgspec.Raw = msgspec.Raw()
    usage: msgspec.Raw = msgspec.Raw()


class AnthropicReader(TypedReader):
    """Reads the body of a successful response (a `StreamReader`)."""

    def __init__(
        self, names: Mapping[str, str] = NO_NAMES, *, model: str = "", reasoning_as_text: bool = False
    ) -> None:
        super().__init__(names, model=model, reasoning_as_text=reasoning_as_text)
        self._kept: dict[int | None, dict[str, str]] = {}
        """Blocks of thinking by their place, in the order they began."""

    def _signed(self, model: str) -> tuple[Signed, ...]:
        signed = [block for block in self._kept.values() if block.get("signature") or block.get("data")]
        return signed_blocks(signed, Dialect.ANTHROPIC, model)

    def _take(self, data: bytes, name: str, deltas: list[StreamEvent]) -> bool:
        said = part_of(data, _Said)
        if said is None:
            return False
        kind = said.type or name
        match kind:
            case "message_start":
                return self._begin(said)
            case "content_block_start":
                return self._open(said.index, part_of(said.content_block, _Block), deltas)
            case "content_block_delta":
                return self._go_on(said.index, part_of(said.delta, _Delta), deltas)
            case "message_delta":
                self._meter.take(said.usage)
                delta = part_of(said.delta, _Delta)
                self._end_with(delta.stop_reason if delta else None, FINISH)
            case "message_stop":
                self._is_complete = True
            case "content_block_stop" | "ping":
                pass
            case _:
                self._is_error(data, kind)
        return True

    def _take_body(self, body: bytes) -> bool:
        message = part_of(body, _Message)
        if message is None or message.content is None:
            return False
        self._name(message.model, message.id)
        self._meter.take(message.usage)
        for place, block in enumerate(message.content):
            self._open(place, block, [])
        self._end_with(message.stop_reason, FINISH)
        return self._fault is None

    def _begin(self, said: _Said) -> bool:
        message = part_of(said.message, _Message)
        if message is None:
            return False
        self._name(message.model, message.id)
        self._meter.take(message.usage, is_opening=True)
        return True

    def _open(self, place: int | None, block: _Block | None, deltas: list[StreamEvent]) -> bool:
        if block is None:
            return False
        if block.type == "tool_use":
            whole = text_of(block.input)
            id_ = str(block.id) if block.id is not None else ""
            whole = "" if whole in _NOTHING else whole
            deltas.append(self._calls.open(place, id_=id_, name=block.name or "", whole=whole))
        elif block.type == "text":
            self._say(block.text, deltas)
        else:
            self._think(block.thinking, deltas)
            self._keep(place, block)
        return True

    def _keep(self, place: int | None, block: _Block) -> None:
        if block.type == "thinking":
            said = {"thinking": block.thinking or "", "signature": block.signature or ""}
            self._kept[place] = {"type": "thinking", **said}
        elif block.type == "redacted_thinking":
            self._kept[place] = {"type": "redacted_thinking", "data": block.data or ""}

    def _go_on(self, place: int | None, delta: _Delta | None, deltas: list[StreamEvent]) -> bool:
        if delta is None:
            return False
        self._say(delta.text, deltas)
        self._think(delta.thinking, deltas)
        if (kept := self._kept.get(place)) is not None and kept["type"] == "thinking":
            kept["thinking"] += delta.thinking or ""
            kept["signature"] += delta.signature or ""
        shown = self._calls.add(place, piece=delta.partial_json or "")
        if shown is not None:
            deltas.append(shown)
        return True
