"""What the body of an error answer says, whatever its shape: codes, a status, a message, text to search.

Envelopes read: OpenAI's and Z.AI's `error` object (code as text or number), the `[code][text][trace]` that the
Anthropic-shaped endpoint puts into the message, a flat `code`/`msg`, litellm's `errorMessage`, `detail`, an error
inside an error's message, plain text, a web page. Nothing a body can contain raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from .redaction import redact

MAX_MESSAGE_CHARS: Final = 300
_MAX_JSON_BYTES: Final = 1 << 20
_MAX_TEXT_CHARS: Final = 16_384
_MAX_FACT_CHARS: Final = 200

_CODE: Final = re.compile(r"[\w.:/-]{1,64}", re.ASCII)
_BRACKETS: Final = re.compile(r"(?<!\w)\[(\d{3,4})\]\[(.*)", re.DOTALL | re.ASCII)
_TRACE: Final = re.compile(r"\]\[[\w-]*\]?\s*")
_EMBEDDED_CODE: Final = re.compile(r'"code"\s*:\s*"?(\d{4})\b', re.ASCII)
_TITLE: Final = re.compile(r"<title[^>]{0,200}>([^<]{1,500})", re.IGNORECASE)
_TAG: Final = re.compile(r"<[^<>]{0,500}>")
_UNPRINTABLE: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")

Object = dict[str, object]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """`codes` in order of trust; `text` is lower-case and bounded; `status` is what the body itself states."""

    codes: tuple[str, ...]
    status: int | None
    message: str
    text: str


def read_evidence(body: bytes) -> Evidence:
    """Read the body of an error answer, or an error inside a stream."""
    parsed = _parse(body[:_MAX_JSON_BYTES])
    if isinstance(parsed, list) and parsed and isinstance(parsed[0], dict):
        parsed = parsed[0]  # Gemini's answer to a stream that never began
    if not isinstance(parsed, dict):
        return _from_text(parsed if isinstance(parsed, str) else body[: _MAX_TEXT_CHARS * 4].decode("utf-8", "replace"))
    layers = list(_layers(parsed))
    messages = [text for layer in layers for text in _messages(layer)]
    if not messages:
        messages = [body[: _MAX_TEXT_CHARS * 4].decode("utf-8", "replace")]
    said = [_in_brackets(text) for text in messages]
    # In order of trust: a number in brackets, the fields, a number quoted somewhere in a message.
    quoted = [code for text in messages for code in _EMBEDDED_CODE.findall(text[:_MAX_TEXT_CHARS])]
    fields = [code for layer in layers for code in _codes(layer)]
    codes = [*(code for code, _ in said if code), *fields, *quoted]
    return Evidence(
        codes=tuple(dict.fromkeys(code for code in codes if not _is_status(code))),
        status=next((int(code) for code in codes if _is_status(code)), None),
        message=one_line(next((text for _, text in said if not _is_object_text(text)), said[0][1])),
        text="\n".join([*(text[:_MAX_TEXT_CHARS] for text in messages), *_facts(layers)]).lower()[:_MAX_TEXT_CHARS],
    )


def one_line(text: str) -> str:
    """Make any text fit into a log line: no control characters, line ends or keys, at most 300 characters."""
    line = redact(_UNPRINTABLE.sub(" ", text[: MAX_MESSAGE_CHARS * 4]).strip())
    return line if len(line) <= MAX_MESSAGE_CHARS else line[: MAX_MESSAGE_CHARS - 1] + "…"


def _parse(body: bytes) -> object:
    try:
        return msgspec.json.decode(body.decode("utf-8", "replace").lstrip("\ufeff"))
    except (msgspec.DecodeError, RecursionError):
        return None


def _from_text(text: str) -> Evidence:
    code, inner = _in_brackets(text[:_MAX_TEXT_CHARS])
    quoted = _EMBEDDED_CODE.findall(text[:_MAX_TEXT_CHARS])
    title = _TITLE.search(text[:_MAX_TEXT_CHARS])
    message = title[1] if title else _TAG.sub(" ", inner)
    return Evidence(
        codes=tuple(dict.fromkeys([*([code] if code else []), *quoted])),
        status=None,
        message=one_line(message),
        text=text[:_MAX_TEXT_CHARS].lower(),
    )


def _layers(parsed: Object) -> Iterator[Object]:
    """The objects that may speak for the error, inner ones first."""
    error = parsed.get("error")
    for layer in (error, parsed) if isinstance(error, dict) else (parsed,):
        for text in _messages(layer):
            deeper = _parse(text.encode("utf-8", "replace")) if _is_object_text(text) else None
            if isinstance(deeper, dict):
                yield _error_of(deeper)
        metadata = layer.get("metadata")
        raw = metadata.get("raw") if isinstance(metadata, dict) else None
        if isinstance(raw, dict):
            yield _error_of(raw)
        yield layer


def _error_of(parsed: Object) -> Object:
    nested = parsed.get("error")
    return nested if isinstance(nested, dict) else parsed


def _facts(layers: Iterable[Object]) -> Iterator[str]:
    """Fields that say something no message does, as text to search."""
    for layer in layers:
        for name in ("param", "n_ctx"):
            value = layer.get(name)
            if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1e9):
                yield f"{name}: {str(value)[:_MAX_FACT_CHARS]}"


def _is_object_text(text: str) -> bool:
    return text.lstrip()[:1] == "{"


def _messages(layer: Object) -> Iterator[str]:
    arguments, metadata, detail = layer.get("errorArgs"), layer.get("metadata"), layer.get("detail")
    found = (
        layer.get("message"),
        layer.get("msg"),
        layer.get("error"),
        layer.get("errorMessage"),
        arguments.get("reason") if isinstance(arguments, dict) else None,
        detail.get("message") if isinstance(detail, dict) else detail,
        metadata.get("raw") if isinstance(metadata, dict) else None,
    )
    yield from (text for text in found if isinstance(text, str) and text.strip())


def _codes(layer: Object) -> Iterator[str]:
    for field in ("code", "error_code", "errorCode", "__type", "type", "status"):
        value = layer.get(field)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1_000_000:
            yield str(value)
        elif isinstance(value, str) and _CODE.fullmatch(value.strip()) and value != "error":
            yield value.strip()


def _is_status(code: str) -> bool:
    return code.isascii() and code.isdigit() and len(code) == 3 and code >= "300"


def _in_brackets(text: str) -> tuple[str | None, str]:
    """Split `[code][text][trace]`; text without brackets comes back as it is."""
    found = _BRACKETS.search(text[:_MAX_TEXT_CHARS])
    if found is None:
        return None, text
    inner = found[2]
    cut = inner.rfind("][")
    if cut >= 0 and _TRACE.fullmatch(inner, cut):
        inner = inner[:cut]
    return found[1], inner.removesuffix("]")
