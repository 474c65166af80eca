"""Which keys rest, on file in the run directory: no secrets, and nothing that could not be found out again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from ..protocol.messages.credentials import Rest
from .home import Home, replace_file

NAME: Final = "keys.json"


class RestFile:
    """See `actors.keys.credentials.RestStore`."""

    def __init__(self, home: Home) -> None:
        self._path = home.run / NAME

    def load(self) -> dict[str, dict[str, Rest]]:
        """Who rests; nobody where the file is missing or damaged: one call with each key tells."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, dict[str, Rest]])
        except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
            return {}

    def save(self, rests: Mapping[str, Mapping[str, Rest]]) -> None:
        """Replace the file; raises `HomeError`."""
        replace_file(self._path, msgspec.json.encode(rests) + b"\n", mode=0o600)

    def forget(self, provider: str, *names: str) -> None:
        """These rest no more; for when no fleet runs."""
        rests = self.load()
        left = {name: rest for name, rest in rests.get(provider, {}).items() if name not in names}
        if left != rests.get(provider, {}):
            self.save({**rests, provider: left})
