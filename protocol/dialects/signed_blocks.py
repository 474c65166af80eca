"""Signed blocks of thinking on their way into a request and out of an answer."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..settings import Dialect
from ..transcript import Signed


def raw_blocks(signed: Iterable[Signed]) -> list[msgspec.Raw]:
    """The blocks as they came; one that is no JSON object any more is left out."""
    return [msgspec.Raw(block.data.encode()) for block in signed if _is_object(block.data)]


def signed_blocks(blocks: Iterable[object], dialect: Dialect, model: str) -> tuple[Signed, ...]:
    """Keep blocks for the next request to `model`."""
    return tuple(Signed(dialect=dialect, model=model, data=msgspec.json.encode(block).decode()) for block in blocks)


def _is_object(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True
