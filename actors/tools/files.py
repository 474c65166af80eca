"""read_file, write_file and list_files: work on regular files below the agent's workspace."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from ...protocol.dialects.base import ToolSpec
from . import paths
from .base import ToolError, parse, spec
from .disk import on_disk

LINES: Final = 2000
LINE_CHARS: Final = 2000
READ_CHARS: Final = 64_000
SCAN_BYTES: Final = 64 << 20
PIECE_BYTES: Final = 1 << 20
"""A line longer than this counts as several."""
WRITE_BYTES: Final = 10 << 20
ENTRIES: Final = 1000
BINARY_PROBE: Final = 8192

TEXT: Final = {"type": "string"}
NUMBER: Final = {"type": "integer", "minimum": 1}


class _Read(msgspec.Struct, frozen=True):
    path: str
    offset: int = 1
    limit: int = LINES


class _Write(msgspec.Struct, frozen=True):
    path: str
    content: str


class _List(msgspec.Struct, frozen=True):
    path: str = "."


class ReadFile:
    """Lines of a text file."""

    is_repeatable = True
    spec: ToolSpec = spec(
        "read_file",
        "Read a text file of the workspace. `offset` is the first line (from 1), `limit` the number of lines.",
        {"path": TEXT, "offset": NUMBER, "limit": NUMBER},
        required=("path",),
    )

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    async def run(self, call_id: str, arguments: str) -> str:
        """The asked lines, and how to go on when there are more."""
        asked = parse(_Read, arguments)
        if asked.offset < 1 or asked.limit < 1:
            raise ToolError("offset and limit count from 1")
        return await on_disk(_read, self._workspace, asked)


class WriteFile:
    """A whole text file, replaced at once."""

    is_repeatable = False
    spec: ToolSpec = spec(
        "write_file",
        "Write a text file of the workspace: creates it with its directories, or replaces all of its content.",
        {"path": TEXT, "content": TEXT},
        required=("path", "content"),
    )

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    async def run(self, call_id: str, arguments: str) -> str:
        """A sentence that says what was written; a reader never sees half of it."""
        return await on_disk(_write, self._workspace, parse(_Write, arguments))


class ListFiles:
    """The entries of one directory."""

    is_repeatable = True
    spec: ToolSpec = spec(
        "list_files",
        "List a directory of the workspace (by default its top), one entry a line; directories end with /.",
        {"path": TEXT},
        required=(),
    )

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    async def run(self, call_id: str, arguments: str) -> str:
        """Names with sizes, sorted."""
        return await on_disk(_list, self._workspace, parse(_List, arguments))


def _read(workspace: Path, asked: _Read) -> str:
    with paths.told_to_model(asked.path):
        parts = paths.resolve(workspace, asked.path)
        if not parts:
            raise ToolError(f"{asked.path} is a directory; use list_files")
        with paths.directory(workspace, parts[:-1]) as parent:
            handle = paths.open_regular(parts[-1], parent=parent)
        with open(handle, "rb") as file:
            if b"\0" in file.read(BINARY_PROBE):
                raise ToolError(f"{asked.path} is a binary file of {os.fstat(file.fileno()).st_size} bytes")
            file.seek(0)
            return _lines(file.readline, asked)


def _lines(readline: Callable[[int], bytes], asked: _Read) -> str:
    """Lines from `offset` on, until `limit`, the size cap or the end."""
    taken: list[str] = []
    number, scanned, size = 0, 0, 0
    while scanned < SCAN_BYTES:
        raw = readline(PIECE_BYTES)
        if not raw:
            return _whole(taken, asked, lines=number)
        number, scanned = number + 1, scanned + len(raw)
        if number < asked.offset:
            continue
        if len(taken) >= asked.limit or size >= READ_CHARS:
            return "".join(taken) + f"\n[more follows; go on with offset={number}]"
        line = _short(raw.decode(errors="replace"))
        taken.append(line)
        size += len(line)
    return "".join(taken) + f"\n[stopped after {SCAN_BYTES >> 20} MiB of the file]"


def _whole(taken: list[str], asked: _Read, *, lines: int) -> str:
    if taken:
        return "".join(taken)
    if lines == 0:
        return "[the file is empty]"
    raise ToolError(f"{asked.path} has {lines} lines; offset {asked.offset} is behind its end")


def _short(line: str) -> str:
    if len(line) <= LINE_CHARS:
        return line
    return f"{line[:LINE_CHARS]} [{len(line) - LINE_CHARS} more characters in this line]\n"


def _write(workspace: Path, asked: _Write) -> str:
    content = asked.content.encode(errors="replace")
    if len(content) > WRITE_BYTES:
        raise ToolError(f"{len(content)} bytes are more than write_file takes ({WRITE_BYTES})")
    with paths.told_to_model(asked.path):
        parts = paths.resolve(workspace, asked.path)
        if not parts:
            raise ToolError(f"{asked.path} is a directory")
        with paths.directory(workspace, parts[:-1], create=True) as parent:
            _replace(parts[-1], content, parent=parent)
    return f"wrote {len(content)} bytes to {asked.path}"


def _replace(name: str, content: bytes, *, parent: int) -> None:
    """Put `content` in place of `name` at once, with the mode of the file that was there."""
    mode = _mode_of(name, parent=parent)
    draft = f".{name[:64]}.{secrets.token_hex(6)}.tmp"
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=parent)
    try:
        with open(handle, "wb") as file:
            file.write(content)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
        os.rename(draft, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        os.unlink(draft, dir_fd=parent)
        raise


def _mode_of(name: str, *, parent: int) -> int | None:
    """The permissions of the regular file `name`, None if there is none yet."""
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    paths.refuse_irregular(name, mode)
    return stat.S_IMODE(mode)


def _list(workspace: Path, asked: _List) -> str:
    with paths.told_to_model(asked.path):
        parts = paths.resolve(workspace, asked.path)
        with paths.directory(workspace, parts) as handle, os.scandir(handle) as entries:
            lines = sorted(_entry(entry) for entry in entries)
    if not lines:
        return "[the directory is empty]"
    more = [f"[{len(lines) - ENTRIES} more entries]"] if len(lines) > ENTRIES else []
    return "\n".join(lines[:ENTRIES] + more)


def _entry(entry: os.DirEntry[str]) -> str:
    if entry.is_dir(follow_symlinks=False):
        return f"{entry.name}/"
    if entry.is_symlink():
        return f"{entry.name} (link)"
    try:
        return f"{entry.name} ({entry.stat(follow_symlinks=False).st_size} bytes)"
    except FileNotFoundError:  # it went away while we looked
        return f"{entry.name} (gone)"
