"""The home directory: one fleet's configuration, state and sockets, in one folder.

Whoever may write to the run directory, or to the folder of the sockets, may give the fleet orders. So both are real
folders of this user that nobody else can write to, or the fleet does not start. A Unix socket's path has at most 107
bytes; where the run directory is too deep for that, the sockets live in a short folder elsewhere, which belongs to
exactly one home and is named in `run/root.json`.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from ..protocol.errors import HomeError
from ..protocol.ids import Incarnation
from ..protocol.peer import Owner

SOCKET_NAMES: Final = ("root", "ledger", "broker")
"""Services that listen on a socket of their own, `<name>.sock`."""

SOCKET_PATH_BYTES: Final = 107
"""sun_path holds 108 bytes, the last is NUL; some programs cut a longer path silently (field report E)."""


@dataclass(frozen=True, slots=True)
class Home:
    """The paths of one home; nothing is created or opened before it is asked for."""

    path: Path

    @classmethod
    def locate(cls, explicit: str | Path | None = None, environ: Mapping[str, str] = os.environ) -> Home:
        """Choose `explicit`, else $COVEY_HOME, else ~/.covey; absolute, whether it exists or not."""
        chosen = explicit or environ.get("COVEY_HOME") or "~/.covey"
        try:
            path = Path(chosen).expanduser().absolute()
        except (OSError, RuntimeError) as error:
            raise HomeError(str(chosen), f"cannot be located: {error}") from error
        # It travels in messages and in root.json.
        if "\0" in str(path) or not _is_unicode(str(path)):
            raise HomeError(ascii(str(path)), "is not a path in UTF-8")
        return cls(path)

    @property
    def config(self) -> Path:
        """What the user configured."""
        return self.path / "config.yaml"

    @property
    def config_lock(self) -> Path:
        """Held by whoever is changing `config`."""
        return self.path / "config.lock"

    @property
    def state_db(self) -> Path:
        """The ledger's database; nobody else opens it for writing."""
        return self.path / "state.db"

    @property
    def logs(self) -> Path:
        """One file for each process."""
        return self.path / "logs"

    @property
    def run(self) -> Path:
        """What only a running fleet needs."""
        return self.path / "run"

    @property
    def outbox(self) -> Path:
        """Records on their way to the ledger."""
        return self.run / "outbox"

    @property
    def root_lock(self) -> Path:
        """Held by the root for as long as it lives."""
        return self.run / "root.lock"

    @property
    def root_info(self) -> Path:
        """Who the root is and where it listens: a `RootInfo`."""
        return self.run / "root.json"

    @property
    def processes(self) -> Path:
        """The register of the fleet's processes, for the next root (`leftovers`)."""
        return self.run / "processes.jsonl"

    def create(self) -> None:
        """Make the home folder itself (0700 if it is new)."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise HomeError(str(self.path), f"cannot be created: {error.strerror}") from error

    def prepare(self) -> None:
        """Make all folders but the sockets'; raises `HomeError` where another user could get in."""
        self.create()
        for folder in (self.run, self.logs, self.outbox):
            make_private(folder)

    def sockets(self, environ: Mapping[str, str] = os.environ) -> Path:
        """Choose the folder of the sockets, every name short enough in bytes; creates nothing.

        For the root. Clients take the folder from `root_info`: their environment may differ.
        """
        if _fits(self.run):
            return self.run
        name = hashlib.sha256(os.fsencode(os.path.realpath(self.path))).hexdigest()[:16]
        runtime = Path(environ.get("XDG_RUNTIME_DIR", ""))
        if runtime.is_absolute() and _is_ours(runtime) and _fits(runtime / f"covey-{name}"):
            return runtime / f"covey-{name}"
        # Not $TMPDIR: it may be as deep as the home that brought us here.
        return Path(f"/tmp/covey-{os.geteuid()}-{name}")

    def prepare_sockets(self, environ: Mapping[str, str] = os.environ) -> Path:
        """Make the folder of the sockets and claim it for this home; raises `HomeError` if it is not ours alone."""
        folder = self.sockets(environ)
        make_private(folder)
        if folder != self.run:
            _claim(folder, os.fsencode(os.path.realpath(self.path)))
        return folder


class RootInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The root as it announced itself. The process may be gone: ask the kernel about `owner`."""

    pid: int
    start_ticks: int
    boot_id: str
    sockets: str
    """Folder of the sockets."""
    incarnation: Incarnation
    version: str
    started_unix: float

    @property
    def owner(self) -> Owner:
        """The root's process."""
        return Owner(pid=self.pid, start_ticks=self.start_ticks, boot_id=self.boot_id)

    @classmethod
    def read(cls, path: Path) -> RootInfo | None:
        """Read what a root wrote; None if there is no such file, `HomeError` if it is damaged."""
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise HomeError(str(path), f"cannot be read: {error.strerror}") from error
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise HomeError(str(path), f"is damaged ({error}); `covey up` writes it anew") from error

    def write(self, path: Path) -> None:
        """Replace `path`; a reader sees the old content or the new one, never a part."""
        replace_file(path, msgspec.json.encode(self), mode=0o600)


def make_private(folder: Path) -> None:
    """Make `folder` (0700), or make sure that it is one: a real folder, ours, that no other user can write to."""
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
        if problem := _intruder(found):
            raise HomeError(str(folder), problem)
        if stat.S_IMODE(found.st_mode) != 0o700:
            folder.chmod(0o700)
    except OSError as error:
        raise HomeError(str(folder), f"cannot be made private: {error.strerror}") from error


def replace_file(path: Path, content: bytes, *, mode: int, owner: tuple[int, int] | None = None) -> None:
    """Replace `path` by `content` in one step and on the disk; on an error the old file is as it was.

    `owner` is (uid, gid) where it shall not be this user.
    """
    draft = path.with_name(f".{path.name[:64]}.{secrets.token_hex(6)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if owner is not None:
                os.fchown(descriptor, *owner)
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        draft.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise HomeError(str(path), f"cannot be written: {error.strerror}") from error


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _fits(folder: Path) -> bool:
    return max(len(os.fsencode(folder / f"{name}.sock")) for name in SOCKET_NAMES) <= SOCKET_PATH_BYTES


def _is_ours(folder: Path) -> bool:
    try:
        return _intruder(folder.lstat()) is None
    except OSError:
        return False


def _intruder(found: os.stat_result) -> str | None:
    """Who else could put files here, as a problem to report."""
    if stat.S_ISLNK(found.st_mode):
        return "is a symbolic link; it has to be a folder"
    if not stat.S_ISDIR(found.st_mode):
        return "is not a folder"
    if found.st_uid != os.geteuid():
        return f"belongs to user {found.st_uid}, not to you ({os.geteuid()})"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written by other users (mode {stat.S_IMODE(found.st_mode):04o}); make it 0700"
    return None


def _claim(folder: Path, home: bytes) -> None:
    """Write down whose folder this is. Two homes with the same hash meet here instead of on a socket."""
    claim = folder / "home"
    try:
        owner = claim.read_bytes()
    except FileNotFoundError:
        replace_file(claim, home, mode=0o600)
        return
    except OSError as error:
        raise HomeError(str(claim), f"cannot be read: {error.strerror}") from error
    if owner != home:
        raise HomeError(str(folder), f"holds the sockets of another home, {os.fsdecode(owner)!r}")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
