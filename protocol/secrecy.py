"""Structs that carry secrets: they travel and are kept, and their text shows none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

SECRET_FIELDS: Final = frozenset({"secret", "key", "access_token", "refresh_token", "client_secret"})
"""Fields whose value never stands in a text."""

HIDDEN: Final = "…"


class Guarded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of structs with a field of `SECRET_FIELDS`: logs, tracebacks and failed tests show that it is there."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={shown}' for name, shown in _shown(self))})"

    def __rich_repr__(self) -> Iterator[tuple[str, str]]:  # type: ignore[override]  # msgspec's own yields the values
        yield from _shown(self)


def _shown(struct: msgspec.Struct) -> Iterator[tuple[str, str]]:
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        yield name, HIDDEN if name in SECRET_FIELDS and value else repr(value)
