"""A live table of agents for long work: on a terminal only; elsewhere it says nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

STATES = {
    "queued": "dim",
    "starting": "dim",
    "waiting": "yellow",
    "calling": "cyan",
    "tool": "magenta",
    "delegating": "blue",
    "done": "green",
    "failed": "red",
    "stopped": "red",
    "cap_reached": "yellow",
}
WORDS = {"waiting": "waiting for a slot", "tool": "in a tool", "delegating": "waiting for children"}


@dataclass(frozen=True, slots=True)
class Row:
    """One child as it is shown."""

    name: str
    where: str
    state: str
    turn: int
    tokens: int


class LiveView:
    """Draws rows in place while inside. `is_on` is false where nobody would see it."""

    def __init__(self, *, wanted: bool) -> None:
        from .output import console

        self._console = console(sys.stderr)
        self.is_on = wanted and self._console.is_terminal
        self._live: object = None

    def __enter__(self) -> Self:
        if self.is_on:
            from rich.live import Live

            live = Live(console=self._console, refresh_per_second=8, transient=True)
            live.start()
            self._live = live
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from rich.live import Live

        if isinstance(self._live, Live):
            self._live.stop()

    def show(self, rows: Sequence[Row], footer: str) -> None:
        """Draw this now."""
        from rich.console import Group
        from rich.live import Live
        from rich.text import Text

        from .output import table

        if not isinstance(self._live, Live):
            return
        grid = table("child", "where", "state", ">turn", ">tokens")
        room = max(4, self._console.size.height - 8)
        for row in rows[:room]:
            word = WORDS.get(row.state, row.state)
            grid.add_row(
                row.name, row.where, Text(word, style=STATES.get(row.state, "")), str(row.turn), str(row.tokens)
            )
        more = [Text(f"… and {len(rows) - room} more")] if len(rows) > room else []
        self._live.update(Group(grid, *more, Text(footer)))
