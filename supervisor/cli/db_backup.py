"""`covey db backup`: a copy of state.db that was read back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from ...protocol.errors import UsageError
from ...storage.backup import back_up, rotate
from .db_words import progress, rows_words, size_words
from .output import print_json, print_line

if TYPE_CHECKING:
    from ..home import Home

PREFIX = "state-"


def backup_db(home: Home, dest: Path | None, *, overwrite: bool, keep: int | None, as_json: bool) -> int:
    """Back up; prints where to, how large and how many rows."""
    folder = _folder(home, dest)
    if keep is not None and folder is None:
        raise UsageError("--keep goes with a folder, where the backups have names of ours")
    target = dest if folder is None else folder / _name(time.time())
    assert target is not None, "without a folder there is a destination"
    if folder is not None and dest is None:
        folder.mkdir(mode=0o700, exist_ok=True)
    began = time.monotonic()
    with progress() as shown:
        done = back_up(
            home.state_db,
            target.absolute(),
            overwrite=overwrite,
            deadline_s=None,
            on_step=lambda: shown.say(f"copying and reading back … {time.monotonic() - began:.0f} s"),
        )
    removed = rotate(folder, prefix=PREFIX, keep=keep) if folder is not None and keep is not None else ()
    if as_json:
        print_json(
            {"path": done.path, "bytes": done.bytes, "rows": done.rows, "removed": removed, "took_s": done.took_s}
        )
        return 0
    print_line(f"{done.path}: {size_words(done.bytes)}, {rows_words(done.rows)}; read back, in {done.took_s:.2f} s")
    for name in removed:
        print_line(f"removed {name}")
    return 0


def _name(now: float) -> str:
    """A name that sorts by age: in UTC, whose hours do not come twice."""
    at = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
    return f"{PREFIX}{at}.{int(now * 1000) % 1000:03}Z.db"


def _folder(home: Home, dest: Path | None) -> Path | None:
    """The folder in which we choose the name; None if DEST is the name."""
    if dest is None:
        return home.path / "backups"
    return dest if dest.is_dir() else None
