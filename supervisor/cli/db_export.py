"""`covey db export`: sessions with their messages and calls, as JSON."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import msgspec

from ...protocol.errors import UsageError
from ...storage.exporting import Export, Exported
from .db_words import many, progress
from .output import print_json, print_line

if TYPE_CHECKING:
    from ..home import Home
    from .db_words import Progress


@dataclass
class Written:
    """How many of each there were."""

    sessions: int = 0
    messages: int = 0
    calls: int = 0


def export_db(
    home: Home, dest: str, *, sessions: Sequence[str] | None, form: str, overwrite: bool, as_json: bool
) -> int:
    """Export; a file gets its name when all of it is written."""
    if dest == "-" and as_json:
        raise UsageError("--json goes with a DEST: stdout has the sessions")
    written = Written()
    export = Export(home.state_db)
    try:
        with progress() as shown, _output(dest, overwrite=overwrite) as out:
            if form == "jsonl":
                _write_lines(export, sessions, out, written, shown)
            else:
                _write_document(export, sessions, out, written, shown)
    finally:
        export.close()
    if as_json:
        print_json({"path": str(Path(dest).absolute()), **vars(written)})
    elif dest != "-":
        parts = (many(written.sessions, "session"), many(written.messages, "message"), many(written.calls, "call"))
        print_line(f"{dest}: {', '.join(parts)}")
    return 0


def _write_lines(export: Export, wanted: Sequence[str] | None, out: TextIO, written: Written, shown: Progress) -> None:
    for session in export.sessions(wanted):
        written.sessions += 1
        _write_line(out, session)
        name = str(session.columns["session"])
        for message in export.messages(name):
            written.messages += 1
            _write_line(out, message)
        for call in export.calls(name):
            written.calls += 1
            _write_line(out, call)
        shown.say(f"{many(written.sessions, 'session')}, {many(written.messages, 'message')}")
    for call in export.calls(None) if wanted is None else ():
        written.calls += 1
        _write_line(out, call)


def _write_line(out: TextIO, row: Exported) -> None:
    out.write(_json({"part": row.part, **row.columns}) + "\n")


def _write_document(
    export: Export, wanted: Sequence[str] | None, out: TextIO, written: Written, shown: Progress
) -> None:
    """One session in memory at a time."""
    out.write('{"sessions":[')
    for session in export.sessions(wanted):
        name = str(session.columns["session"])
        messages = [message.columns for message in export.messages(name)]
        calls = [call.columns for call in export.calls(name)]
        out.write(",\n" if written.sessions else "\n")
        out.write(_json({**session.columns, "messages": messages, "calls": calls}))
        written.sessions += 1
        written.messages += len(messages)
        written.calls += len(calls)
        shown.say(f"{many(written.sessions, 'session')}, {many(written.messages, 'message')}")
    out.write('\n],"calls":[')
    for number, call in enumerate(export.calls(None) if wanted is None else ()):
        out.write(",\n" if number else "\n")
        out.write(_json(call.columns))
        written.calls += 1
    out.write("\n]}\n")


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


@contextmanager
def _output(dest: str, *, overwrite: bool) -> Iterator[TextIO]:
    """Stdout, or a file (0600) that is there when it is whole."""
    if dest == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    path = Path(dest).absolute()
    if path.is_dir() or (path.exists() and not overwrite):
        raise UsageError(f"{path} exists already; choose another name, or say --force")
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not a folder; make it, or choose another destination")
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "w", encoding="utf-8") as out:
            yield out
            out.flush()
            os.fsync(fd)
        os.rename(partial, path)
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()
