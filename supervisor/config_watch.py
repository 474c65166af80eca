"""A running fleet follows its config.yaml: what may change does, what may not is said, and a bad file changes nothing.

The file is looked at on a timer of the loop and read when it has stood still for one look: an editor that empties a
file before it writes it anew would otherwise lift every limit for a moment. So would a file that is gone; it is no
change either.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from ..protocol.errors import ConfigError
from ..protocol.settings import Settings
from .config import Accepted, Refused, examine
from .config_text import read_text
from .pump import next_beat

LOOK_S: Final = 1.0
STILL_S: Final = 0.25
"""How long a changed file has to stand still before it is read."""
_KNOWN_NS: Final = 3_000_000_000
"""What changed longer ago than this was in the settings that this process was started with."""

FIXED: Final = ("workers", "max_agents", "listen")
"""Fields of `fleet` that hold for the life of the fleet."""

_Signature = tuple[int, int, int]


def following(running: Settings, wanted: Settings) -> Settings:
    """Return `wanted`, with what `running` has fixed."""
    fixed = {field: getattr(running.fleet, field) for field in FIXED}
    return msgspec.structs.replace(wanted, fleet=msgspec.structs.replace(wanted.fleet, **fixed))


def needs_restart(running: Settings, wanted: Settings) -> tuple[str, ...]:
    """Name the keys and sections that differ and hold only from the next start on."""
    return tuple(f"fleet.{field}" for field in FIXED if getattr(running.fleet, field) != getattr(wanted.fleet, field))


class ConfigWatch:
    """Tells of changes in `file`, on the loop that made it; `settings` are the last good ones.

    `on_change` gets settings that differ from the ones before. `on_refused` gets what is wrong, once for each content
    that is refused.
    """

    def __init__(
        self,
        file: Path,
        settings: Settings,
        *,
        on_change: Callable[[Accepted], None],
        on_refused: Callable[[tuple[ConfigError, ...]], None] = lambda errors: None,
        look_s: float = LOOK_S,
    ) -> None:
        self._file = file
        self.settings = settings
        self.refused: tuple[ConfigError, ...] = ()
        """What is wrong with the file as it stands; empty while it is as `settings` say."""
        self._on_change = on_change
        self._on_refused = on_refused
        self._look_s = look_s
        self._seen: _Signature | None = None
        known = _signature(file)
        is_old = known is not None and time.time_ns() - known[2] > _KNOWN_NS
        # Nobody parses a file at the start that somebody has parsed already: it costs memory in every process.
        self._read = known if is_old else None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_at(next_beat(self._loop.time(), look_s), self._look)

    def close(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look(self) -> None:
        seen = _signature(self._file)
        is_news = seen is not None and seen != self._read
        if is_news and seen == self._seen:
            self._read, is_news = seen, False
            self._take()
        self._seen = seen
        at = self._loop.time() + STILL_S if is_news else next_beat(self._loop.time(), self._look_s)
        self._timer = self._loop.call_at(at, self._look)

    def _take(self) -> None:
        match self._examine():
            case Refused(errors=errors):
                if [str(error) for error in errors] != [str(error) for error in self.refused]:
                    self.refused = errors
                    self._on_refused(errors)
            case Accepted(settings=settings) as accepted:
                self.refused = ()
                if settings != self.settings:
                    self.settings = settings
                    self._on_change(accepted)

    def _examine(self) -> Accepted | Refused:
        try:
            return examine(read_text(self._file), str(self._file))
        except ConfigError as error:
            return Refused((error,))


def _signature(file: Path) -> _Signature | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
