"""The file of credentials, `<home>/credentials.json`: 0600, apart from the configuration, replaced in one step.

It is trusted only if nobody else can write to it: a real file of this user in a folder that is closed to others. One
that others can read is closed to them, which is said. A damaged one is left as it is, and never taken for an empty one:
calls would go out with another key, at somebody else's expense.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from ..protocol.errors import CoveyError
from ..storage.credentials import VERSION, Kept
from ..storage.locks import FileLock, take
from ..storage.logs import log_event
from .home import Home, replace_file

log = logging.getLogger(__name__)

NAME: Final = "credentials.json"
LOCK_NAME: Final = "credentials.lock"
MOST_BYTES: Final = 4 * 2**20

LOCK_S: Final = 30.0
"""Longer than one renewal of a token, for which the file is locked."""

_LOOK_AGAIN_S: Final = 0.02

Signature = tuple[int, int, int, int] | None

T = TypeVar("T")


class CredentialProblem(CoveyError):
    """The file of credentials cannot be used as it is; it was left alone. Never holds a secret."""

    def __init__(self, file: Path, problem: str, remedy: str) -> None:
        super().__init__(f"{file} {problem}; {remedy}")
        self.file, self.problem, self.remedy = str(file), problem, remedy


class _Version(msgspec.Struct):
    version: int


class _Names(msgspec.Struct):
    """The part of the file that is no secret."""

    providers: dict[str, msgspec.Raw] = {}


class CredentialFile:
    """The file of one home. Holds nothing in memory: every question is answered by the file as it is now."""

    def __init__(self, home: Home, *, on_mended: Callable[[str], None] | None = None) -> None:
        """`on_mended` is told when the mode had to be changed; without it that is logged."""
        self._home = home
        self.path = home.path / NAME
        self._lock = home.path / LOCK_NAME
        self._on_mended = on_mended or _log_mended

    def signature(self) -> Signature:
        """Something that differs whenever the content may have changed; None where there is no file."""
        try:
            found = os.lstat(self.path)
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def read(self) -> Kept:
        """All credentials; none where there is no file. Raises `CredentialProblem`."""
        content = self._content()
        if content is None:
            return Kept()
        return self._decoded(content, Kept)

    def names(self) -> frozenset[str]:
        """The providers that have credentials; raises `CredentialProblem`. No secret is kept for it."""
        content = self._content()
        if content is None:
            return frozenset()
        return frozenset(self._decoded(content, _Names).providers)

    def write(self, kept: Kept) -> None:
        """Replace the file, on the disk when this returns; for whoever has the lock. Raises `HomeError`."""
        content = msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n"
        replace_file(self.path, content, mode=0o600)
        self._sweep()

    @contextmanager
    def lock(self, *, timeout_s: float = LOCK_S) -> Iterator[None]:
        """Keep every other writer out, of any process; raises `CredentialProblem` after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while (held := self._take()) is None:
            if time.monotonic() >= deadline:
                raise self._busy(timeout_s)
            time.sleep(_LOOK_AGAIN_S)
        try:
            yield
        finally:
            held.close()

    @asynccontextmanager
    async def locked(self, *, timeout_s: float = LOCK_S) -> AsyncIterator[None]:
        """As `lock`, for a loop."""
        deadline = time.monotonic() + timeout_s
        while (held := self._take()) is None:
            if time.monotonic() >= deadline:
                raise self._busy(timeout_s)
            await asyncio.sleep(_LOOK_AGAIN_S)
        try:
            yield
        finally:
            held.close()

    def change(self, change: Callable[[Kept], Kept]) -> Kept:
        """Read, change and write under the lock; what was written. Raises, with the file as it was."""
        self._home.create()
        with self.lock():
            kept = change(self.read())
            self.write(kept)
        return kept

    # --- inside ------------------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        """Take away what writers left that were killed: drafts hold secrets, too. No other writer is at it now."""
        for draft in self._home.path.glob(f".{NAME}.*"):
            with suppress(OSError):
                draft.unlink()

    def _take(self) -> FileLock | None:
        try:
            return take(self._lock, create=True)
        except OSError as error:
            remedy = "it has to be a file of yours, or not be there"
            raise CredentialProblem(self._lock, f"cannot be locked: {error.strerror}", remedy) from None

    def _busy(self, timeout_s: float) -> CredentialProblem:
        return CredentialProblem(
            self.path, f"was being changed by another process for {timeout_s:g} s", "try again in a moment"
        )

    def _content(self) -> bytes | None:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            is_link = self.path.is_symlink()
            problem = "is a symbolic link" if is_link else f"cannot be read: {error.strerror}"
            raise self._refused(problem, "put the file itself there" if is_link else "make it readable") from None
        try:
            self._check(descriptor)
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise self._refused(f"cannot be read and kept closed: {error.strerror}", "look at its folder") from None
        finally:
            os.close(descriptor)
        if len(content) > MOST_BYTES:
            raise self._damaged(f"is larger than {MOST_BYTES >> 20} MiB")
        return content

    def _check(self, descriptor: int) -> None:
        found, folder = os.fstat(descriptor), os.stat(self._home.path)
        if not stat.S_ISREG(found.st_mode):
            raise self._refused("is not a file", "put the file itself there")
        if found.st_uid != os.geteuid():
            raise self._refused(
                f"belongs to user {found.st_uid}, not to you ({os.geteuid()})", "move it away and add your own"
            )
        if folder.st_uid not in (os.geteuid(), 0):
            problem = f"belongs to user {folder.st_uid}, who can replace what is in it"
            raise CredentialProblem(self._home.path, problem, "use a folder of your own as the home")
        writers = stat.S_IWGRP | stat.S_IWOTH
        for place, mode in ((self.path, found.st_mode), (self._home.path, folder.st_mode)):
            if mode & writers:
                problem = f"can be written by others (mode {stat.S_IMODE(mode):04o})"
                # A folder with the sticky bit lets nobody replace what is not his.
                if place == self.path or not mode & stat.S_ISVTX:
                    remedy = f"look whether it is as you left it, then chmod go-rwx {place}"
                    raise CredentialProblem(place, problem, remedy)
        if found.st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
            self._on_mended(f"{self.path} could be read by others (mode {stat.S_IMODE(found.st_mode):04o}); now 0600")

    def _decoded(self, content: bytes, kind: type[T]) -> T:
        try:
            version = msgspec.json.decode(content, type=_Version).version
            if version > VERSION:
                problem = f"was written by a newer covey (version {version})"
                raise CredentialProblem(self.path, problem, "install that one, or move the file away")
            return msgspec.json.decode(content, type=kind)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise self._damaged(f"is damaged ({_place(error)})") from None

    def _refused(self, problem: str, remedy: str) -> CredentialProblem:
        return CredentialProblem(self.path, problem, remedy)

    def _damaged(self, problem: str) -> CredentialProblem:
        remedy = "mend it, or move it away and add the keys again with `covey auth add`"
        return CredentialProblem(self.path, problem, remedy)


def _place(error: Exception) -> str:
    """Where it is wrong. The rest of what msgspec says may quote the file."""
    if isinstance(error, msgspec.ValidationError):
        _, at, place = str(error).rpartition(" - at ")
        return f"not what it should be at {place}" if at else "not what it should be"
    return str(error) if isinstance(error, msgspec.DecodeError) else "no JSON"


def _log_mended(text: str) -> None:
    log_event(log, "credentials_mended", level=logging.WARNING, what=text)
