"""Chat completions as they come in: the parts of a chunk we read, decoded once, as generously as is safe."""

from __future__ import annotations

import json

import msgspec

_NO_ERROR = frozenset({b"", b"null", b"false", b'""', b"{}"})


class Part(msgspec.Struct, frozen=True):
    """A piece of structured content; only text counts."""

    text: str | None = None


class FunctionDelta(msgspec.Struct, frozen=True):
    """`arguments` is text in pieces, or (from some) the whole object."""

    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw()


class CallDelta(msgspec.Struct, frozen=True):
    """A piece of a tool call; any part of it may be missing or repeated."""

    index: int | None = None
    id: str | int | None = None
    function: FunctionDelta | None = None


class Delta(msgspec.Struct, frozen=True):
    """What a choice adds, or, in a body that is no stream, all of it."""

    content: str | list[Part] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CallDelta] | None = None


class Choice(msgspec.Struct, frozen=True):
    """One of the alternatives; we ask for one only."""

    index: int | None = None
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    usage: msgspec.Raw = msgspec.Raw()


class Chunk(msgspec.Struct, frozen=True):
    """One event of a stream, or a whole body."""

    id: str | int | None = None
    model: str | None = None
    choices: list[Choice] | None = None
    usage: msgspec.Raw = msgspec.Raw()
    timings: msgspec.Raw = msgspec.Raw()
    """llama.cpp's; a report of usage where there is no other."""
    error: msgspec.Raw = msgspec.Raw()
    object: str | None = None
    type: str | None = None
    code: msgspec.Raw = msgspec.Raw()
    message: msgspec.Raw = msgspec.Raw()
    msg: msgspec.Raw = msgspec.Raw()

    @property
    def is_error(self) -> bool:
        """Whether this is an error in place of an answer, in any of the envelopes seen."""
        if bytes(self.error) not in _NO_ERROR or "error" in (self.object, self.type):
            return True
        return not self.choices and is_given(self.code) and (is_given(self.message) or is_given(self.msg))


_chunk_decoder = msgspec.json.Decoder(Chunk)


def chunk_of(data: bytes) -> Chunk | None:
    """Decode one event's data; None if it is no chunk."""
    try:
        return _chunk_decoder.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return _mended_chunk(data)


def is_given(raw: msgspec.Raw) -> bool:
    """Whether a field was there and not null."""
    return bytes(raw) not in (b"", b"null")


def text_of(raw: msgspec.Raw) -> str:
    """Tool arguments as JSON text: a string's content, or the text of the object that stands in its place."""
    if not is_given(raw):
        return ""
    text = bytes(raw)
    if not text.startswith(b'"'):
        return text.decode("utf-8", "replace")
    try:
        return msgspec.json.decode(text, type=str)
    except msgspec.DecodeError:
        return _mended_string(text)


def _mended_string(text: bytes) -> str:
    readable = text.decode("utf-8", "replace")
    try:
        return str(json.loads(readable)).encode("utf-8", "replace").decode("utf-8")
    except ValueError:
        return readable


def _mended_chunk(data: bytes) -> Chunk | None:
    """Decode a chunk whose text was split inside a character: half a surrogate pair, or bytes that are not UTF-8."""
    try:
        parsed = json.loads(data.decode("utf-8", "replace"))
        return _chunk_decoder.decode(json.dumps(parsed, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
