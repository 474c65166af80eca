"""One row of the table of configuration keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .config_kinds import Kind, Scalar

Path = tuple[str, ...]
"""A key in its parts: ("providers", "zai", "max_concurrent")."""

NAME: Final = "<name>"
MODEL: Final = "<model>"


@dataclass(frozen=True, slots=True)
class Key:
    """One row of the table. A default of None means that there is none."""

    pattern: str
    kind: Kind
    default: Scalar
    meaning: str

    @property
    def path(self) -> Path:
        """The pattern in its parts."""
        return tuple(self.pattern.split("."))

    @property
    def field(self) -> str:
        """The last part: the name of the field in `protocol.settings`."""
        return self.path[-1]
