"""The corpus of streams: what providers send in each dialect, and what has to come out of it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from covey.protocol.dialects.base import Answer, Finish, StreamEvent, StreamReader
from covey.protocol.dialects.registry import wire_dialect
from covey.protocol.settings import Dialect
from covey.protocol.transcript import ToolCall
from covey.protocol.usage import Usage

CORPUS: Final = Path(__file__).parent / "corpus"

ASKED: Final = "asked-model"
"""What every reader here is told to be the model that was asked."""


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a file of the corpus promises."""

    situation: str
    text: str
    tool_calls: tuple[ToolCall, ...]
    finish: Finish
    complete: bool
    usage: Usage | None
    model: str | None
    response_id: str | None
    fault: str | None
    code: str | None
    reasoning: str
    is_over: bool
    signed: tuple[dict[str, object], ...] = ()
    """The blocks to be sent back."""
    is_shown: bool = True
    """Whether the deltas say what the answer says; if not, they say nothing of it."""
    sdk: str | None = None
    """What the provider's own SDK makes of the stream, where that is something else."""


class Stream(msgspec.Struct, frozen=True):
    """The body of one successful response."""

    dialect: Dialect
    name: str
    body: bytes
    expected: Expected

    def __str__(self) -> str:
        return f"{self.dialect.value} {self.name}"

    @property
    def is_body(self) -> bool:
        """Whether it answers a request that asked for no stream."""
        return self.name.startswith("body_")

    def reader(self) -> StreamReader:
        """A new reader for it."""
        return wire_dialect(self.dialect).reader(model=ASKED)

    def read(self, *slices: bytes) -> tuple[list[StreamEvent], bool, Answer]:
        """What comes of these bytes in its dialect: the deltas, whether the end was seen early, and the answer."""
        reader = self.reader()
        events = [event for piece in slices for event in reader.feed(piece)]
        return events, reader.is_over, reader.close()


def _load(path: Path) -> Stream:
    expected = msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=Expected)
    return Stream(Dialect(path.parent.name), path.stem, path.read_bytes(), expected)


STREAMS: Final = tuple(_load(path) for name in Dialect for path in sorted((CORPUS / name.value).glob("*.sse")))
