"""`covey sessions export`: what `covey db export` writes, of the sessions that are named as in `show`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..home import Home


def export(home: Home, names: Sequence[str], out: Path | None, *, overwrite: bool) -> int:
    """Write JSON lines to a file, or to stdout; raises `UsageError` before anything is written for a wrong name."""
    from ..books import open_books
    from ..session_lookup import find_session
    from .db_export import export_db

    with open_books(home) as books:
        sessions = [str(find_session(books, name).session) for name in names]
    dest = "-" if out is None else str(out)
    return export_db(home, dest, sessions=sessions or None, form="jsonl", overwrite=overwrite, as_json=False)
