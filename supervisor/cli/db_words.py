"""What the commands around state.db have in common: words for sizes, progress where somebody watches, deadlines."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

INTERVAL_S: Final = 0.1


class Progress:
    """One line on stderr that is written over again, on a terminal; elsewhere nothing is said."""

    def __init__(self) -> None:
        self._is_on = sys.stderr.isatty()
        self._next = 0.0
        self._wide = 0

    def say(self, text: str, *, at_once: bool = False) -> None:
        """Show this, unless something was shown this instant."""
        now = time.monotonic()
        if not self._is_on or (now < self._next and not at_once):
            return
        self._next = now + INTERVAL_S
        sys.stderr.write(f"\r{text:<{self._wide}}")
        sys.stderr.flush()
        self._wide = len(text)

    def clear(self) -> None:
        """Take the line away."""
        if self._is_on and self._wide:
            sys.stderr.write(f"\r{'':<{self._wide}}\r")
            sys.stderr.flush()
            self._wide = 0


@contextmanager
def progress() -> Iterator[Progress]:
    """A line of progress that is gone afterwards."""
    shown = Progress()
    try:
        yield shown
    finally:
        shown.clear()


def size_words(count: int) -> str:
    """Bytes for people: `812 bytes`, `4.0 KiB`, `1.2 GiB`."""
    if count < 1024:
        return f"{count} bytes"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"


def rows_words(rows: dict[str, int]) -> str:
    """How many rows of what: only of the tables that have some."""
    said = [f"{count:,} {table}" for table, count in rows.items() if count]
    return ", ".join(said) if said else "no rows"


def many(count: int, what: str) -> str:
    """`1 session`, `2 sessions`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
