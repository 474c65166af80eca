"""Log files as people read them: the newest lines of several processes in the order of time, and what comes after.

A line begins with its time stamp (`logs`); one without (a traceback, what a program printed) belongs to the line
before it in its file.
"""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

SUFFIX: Final = ".log"
BLOCK_BYTES: Final = 64 * 1024

_STAMP: Final = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of one file. `stamp` is its own, or that of the line it belongs to."""

    stamp: bytes
    name: str
    text: str


class LogFile:
    """One process's log, read from its newest lines on. Owned by one reader."""

    def __init__(self, path: Path) -> None:
        self.name = path.name.removesuffix(SUFFIX)
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""
        self._stamp = b""

    def newest(self, count: int) -> list[Line]:
        """The last `count` lines there are now; `more` goes on from there."""
        self._open()
        if self._file is None:
            return []
        at = self._file.seek(0, os.SEEK_END)
        content = b""
        # One line end more than lines: the first line has to be whole.
        while at > 0 and content.count(b"\n") <= count:
            at = max(0, at - BLOCK_BYTES)
            self._file.seek(at)
            content = self._file.read()
        if at > 0:
            content = content.partition(b"\n")[2]
        lines = self._take(content)
        return lines[max(0, len(lines) - count) :]

    def more(self) -> list[Line]:
        """What was written since; a file that was replaced or cut is read from its beginning."""
        lines: list[Line] = []
        if self._file is not None and not self._is_in_place():
            lines = self._take(self._file.read())
            self._file.close()
            self._file, self._rest = None, b""
        if self._file is None:
            self._open()
        if self._file is None:
            return lines
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0)
            self._rest = b""
        return lines + self._take(self._file.read())

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> None:
        try:
            self._file = open(self._path, "rb")  # noqa: SIM115 - open as long as it is followed
        except FileNotFoundError:
            return

    def _is_in_place(self) -> bool:
        assert self._file is not None, "asked of an open file"
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False

    def _take(self, content: bytes) -> list[Line]:
        *whole, self._rest = (self._rest + content).split(b"\n")
        return [self._line(line) for line in whole]

    def _line(self, line: bytes) -> Line:
        if found := _STAMP.match(line):
            self._stamp = found.group()
        return Line(self._stamp, self.name, line.decode(errors="replace"))


def find(folder: Path, wanted: str | None) -> list[Path]:
    """The logs of everybody, or of one process by its name, or of all processes of a role."""
    paths = sorted(path for path in folder.glob(f"*{SUFFIX}") if path.is_file())
    if wanted is None:
        return paths
    role = re.compile(rf"{re.escape(wanted)}(-\d+)?")
    return [path for path in paths if role.fullmatch(path.name.removesuffix(SUFFIX))]


def merged(files: Iterable[list[Line]]) -> Iterator[Line]:
    """All lines in the order of time; those of one file stay in theirs."""
    return heapq.merge(*files, key=lambda line: line.stamp)
