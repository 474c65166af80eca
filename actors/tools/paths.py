"""Paths below a workspace, opened so that no symbolic link leads out of it.

A path is resolved first and must lie below the workspace; then the resolved path, which has no links left, is walked
component by component without following any. A link that appears in between is refused instead of followed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .base import ToolError

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def resolve(workspace: Path, asked: str) -> tuple[str, ...]:
    """The components of `asked` below the workspace, links resolved; empty for the workspace itself."""
    if "\0" in asked:
        raise ToolError("a path cannot contain a NUL character")
    root = os.path.realpath(workspace)
    found = os.path.realpath(os.path.join(root, asked))
    if os.path.commonpath([root, found]) != root:
        raise ToolError(f"{asked} is outside the workspace {root}; use a path below it")
    relative = os.path.relpath(found, root)
    return () if relative == os.curdir else tuple(relative.split(os.sep))


@contextmanager
def directory(workspace: Path, parts: tuple[str, ...], *, create: bool = False) -> Iterator[int]:
    """A descriptor of the directory `parts` below the workspace; `create` makes the missing ones."""
    handle = os.open(os.path.realpath(workspace), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            if create:
                with _exists_is_fine():
                    os.mkdir(part, dir_fd=handle)
            below = os.open(part, DIRECTORY, dir_fd=handle)
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def open_regular(name: str, *, parent: int) -> int:
    """A descriptor to read the regular file `name` in the directory `parent`.

    Anything else (directory, fifo, device, link) raises `ToolError` and is not opened: opening a fifo would wait for
    its other end, and opening a device can do things.
    """
    kind = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    refuse_irregular(name, kind)
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    try:
        refuse_irregular(name, os.fstat(handle).st_mode)  # it may have been replaced since
    except ToolError:
        os.close(handle)
        raise
    return handle


def refuse_irregular(name: str, mode: int) -> None:
    """Raise `ToolError` unless `mode` is a regular file's."""
    if stat.S_ISDIR(mode):
        raise ToolError(f"{name} is a directory; use list_files")
    if not stat.S_ISREG(mode):
        raise ToolError(f"{name} is not a regular file")


@contextmanager
def told_to_model(asked: str) -> Iterator[None]:
    """Turn what the operating system refuses into a `ToolError` about the path as it was asked for."""
    try:
        yield
    except OSError as refused:
        if refused.errno in (errno.EMFILE, errno.ENFILE):
            raise ToolError("this machine has no file descriptors left; try again later") from refused
        raise ToolError(f"{asked}: {refused.strerror or refused}") from refused


@contextmanager
def _exists_is_fine() -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        return
