"""Keys for other hosts: the fleet's own pair, and the public keys of the clients that may come in.

In `<home>/keys` (0700): `server.public` and `server.secret` (0600), and `clients/<name>.public` for each client that is
allowed. A file holds one key in Z85 on one line, a secret behind `covey-secret:`, so that it is never taken for a
public one. A secret is never printed, logged or sent, and one that others can read is refused.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import zmq

from ..protocol.errors import CoveyError
from .home import Home, make_private, replace_file

KEY_LENGTH: Final = 40
SERVER: Final = "server"
PUBLIC: Final = ".public"
SECRET: Final = ".secret"
MARK: Final = b"covey-secret:"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_Z85: Final = re.compile(r"[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")


class KeyProblem(CoveyError):
    """A key, or the file of one, cannot be used as it is; nothing was changed. Never holds a secret."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what} {problem}")
        self.what, self.problem = what, problem


@dataclass(frozen=True, slots=True)
class Pair:
    """A key pair, in Z85. The secret does not show in its text."""

    public: str
    secret: bytes

    def __repr__(self) -> str:
        return f"Pair(public={self.public!r})"


class ClientKey(msgspec.Struct, frozen=True, kw_only=True):
    """A client that is allowed."""

    name: str
    public: str
    allowed_unix: float


def new_pair() -> Pair:
    """Make a pair whose public key begins with a letter or a digit: it can be typed after an option."""
    while True:
        public, secret = zmq.curve_keypair()
        if public[:1].isalnum():
            return Pair(public.decode(), secret)


def read_pair(file: Path) -> Pair:
    """Read a pair from the file of its secret; raises `KeyProblem`, also where others could read it."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise KeyProblem(str(file), f"cannot be read: {error.strerror}") from None
    with open(descriptor, "rb") as opened:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise KeyProblem(str(file), "is not a file")
        if found.st_uid not in (os.geteuid(), 0):
            raise KeyProblem(str(file), f"belongs to user {found.st_uid}, not to you ({os.geteuid()})")
        if found.st_mode & 0o077:
            raise KeyProblem(str(file), f"can be read by others (mode {stat.S_IMODE(found.st_mode):04o}); make it 0600")
        content = opened.read(len(MARK) + KEY_LENGTH + 2).rstrip(b"\r\n")
    secret = content.removeprefix(MARK)
    if secret == content or not _Z85.fullmatch(secret.decode("ascii", "replace")):
        raise KeyProblem(str(file), f"holds no secret key: {MARK.decode()} and 40 characters of Z85 on one line")
    return Pair(zmq.curve_public(secret).decode(), secret)


def write_secret(file: Path, pair: Pair) -> None:
    """Write the secret to a file (0600) that must not be there yet; raises `KeyProblem`."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise KeyProblem(str(file), "is there already; remove it, or choose another name") from None
    except OSError as error:
        raise KeyProblem(str(file), f"cannot be written: {error.strerror}") from None
    with open(descriptor, "wb") as opened:
        os.fchmod(descriptor, 0o600)
        opened.write(MARK + pair.secret + b"\n")
        opened.flush()
        os.fsync(descriptor)


def public_key(said: str) -> str:
    """The public key that is meant: a key itself, or a file with one; raises `KeyProblem`."""
    if _Z85.fullmatch(said):
        return said
    try:
        with open(said, "rb") as file:
            text = file.read(KEY_LENGTH + 2).decode("ascii", "replace").rstrip("\r\n")
            if text.startswith(MARK.decode()):
                raise KeyProblem(said, f"holds a secret; it stays where it is, its {PUBLIC} file is meant")
    except OSError as error:
        problem = f"is neither a key (40 characters of Z85) nor a file that can be read: {error.strerror}"
        raise KeyProblem(repr(said[:100]), problem) from None
    if not _Z85.fullmatch(text):
        raise KeyProblem(said, "holds no key: 40 characters of Z85 on one line")
    return text


class KeyRing:
    """The keys of one home. Holds nothing in memory: every question is answered by the files as they are now."""

    def __init__(self, home: Home) -> None:
        self.folder = home.path / "keys"
        self.clients = self.folder / "clients"

    def new_server(self) -> Pair:
        """Make the fleet's own pair; raises `KeyProblem` if it has one, because its clients know that one."""
        self.prepare()
        pair = new_pair()
        write_secret(self.folder / f"{SERVER}{SECRET}", pair)
        replace_file(self.folder / f"{SERVER}{PUBLIC}", f"{pair.public}\n".encode(), mode=0o644)
        return pair

    def server(self) -> Pair:
        """The fleet's own pair; raises `KeyProblem` if there is none that can be used."""
        if not (self.folder / f"{SERVER}{SECRET}").exists():
            raise KeyProblem(
                str(self.folder / f"{SERVER}{SECRET}"), "is not there; make it with `covey keys new server`"
            )
        self._check_private()
        return read_pair(self.folder / f"{SERVER}{SECRET}")

    def has_server(self) -> bool:
        """Whether the fleet has a pair of its own."""
        return (self.folder / f"{SERVER}{SECRET}").exists()

    def allow(self, name: str, public: str) -> None:
        """Let the client with this key in, as `name`; the same key again changes nothing.

        Raises `KeyProblem` for a name that is taken by another key, or a key that has another name.
        """
        check_name(name)
        self.prepare()
        for known in self.known():
            if known.name == name and known.public != public:
                raise KeyProblem(name, f"is another key already; `covey keys revoke {name}` first")
            if known.public == public and known.name != name:
                raise KeyProblem("this key", f"is allowed already, as {known.name}")
        replace_file(self.clients / f"{name}{PUBLIC}", f"{public}\n".encode(), mode=0o644)

    def revoke(self, name: str) -> None:
        """Let this client in no more; raises `KeyProblem` if no client has this name."""
        check_name(name)
        try:
            (self.clients / f"{name}{PUBLIC}").unlink()
        except FileNotFoundError:
            names = ", ".join(client.name for client in self.known()) or "nobody"
            raise KeyProblem(name, f"is not allowed anyway; allowed: {names}") from None

    def known(self) -> tuple[ClientKey, ...]:
        """Everybody who is allowed, by name; raises `KeyProblem` where others could have put a key."""
        if self.clients.exists():
            self._check_private()
        return tuple(self._clients())

    def allowed(self) -> dict[bytes, str]:
        """The name of each key that may come in."""
        return {client.public.encode(): client.name for client in self.known()}

    def version(self) -> object:
        """Something that differs whenever the list of clients may have changed."""
        try:
            with os.scandir(self.clients) as entries:
                return sorted((entry.name, entry.stat().st_mtime_ns, entry.inode()) for entry in entries)
        except OSError as error:
            return error.errno

    # --- inside --------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self.folder, self.clients):
            make_private(folder)

    def _check_private(self) -> None:
        for folder in (self.folder, self.clients):
            with suppress(FileNotFoundError):
                found = folder.lstat()
                if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
                    raise KeyProblem(str(folder), "has to be a folder of yours that is closed to others (0700)")

    def _clients(self) -> Iterator[ClientKey]:
        for file in sorted(self.clients.glob(f"*{PUBLIC}")):
            name = file.name.removesuffix(PUBLIC)
            if not _NAME.fullmatch(name):
                continue
            with suppress(FileNotFoundError, KeyProblem):
                public = public_key(str(file))
                yield ClientKey(name=name, public=public, allowed_unix=file.stat().st_mtime)


def check_name(name: str) -> None:
    """Raise `KeyProblem` for what cannot be a client's name."""
    if not _NAME.fullmatch(name) or name == SERVER:
        raise KeyProblem(repr(name[:100]), "is no name for a client: 1 to 64 letters, digits, _ and -, not `server`")


def fingerprint_of(public: str) -> str:
    """A short word for a public key, for names of folders."""
    return hashlib.sha256(public.encode()).hexdigest()[:16]
