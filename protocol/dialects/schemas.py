"""Tool schemas without the parts that some targets cannot make a grammar of."""

from __future__ import annotations

from typing import Final

import msgspec

_DROPPED: Final = frozenset({"pattern", "format"})
_BY_NAME: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
"""Keywords whose object holds schemas under names that mean nothing."""
_VALUES: Final = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords that hold what an argument may be, and no schemas."""


def plain_schema(schema: msgspec.Raw) -> msgspec.Raw:
    """The schema without `pattern` and `format`, at any depth; arguments of these names stay.

    One that cannot be read comes back as it is.
    """
    try:
        return msgspec.Raw(msgspec.json.encode(_plain(msgspec.json.decode(schema))))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return schema


def _plain(schema: object) -> object:
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _below(key, value) for key, value in schema.items() if key not in _DROPPED}


def _below(key: str, value: object) -> object:
    if key in _VALUES:
        return value
    if key in _BY_NAME and isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return _plain(value)
