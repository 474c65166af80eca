"""Sockets that were opened for us before we started: systemd's socket activation (sd_listen_fds(3)).

Descriptors from 3 on are ours if LISTEN_PID says so; variables that were meant for somebody else are not looked at. A
socket serves whichever of our paths it is bound to. One that none of our services could use is refused, because
whoever set it up believes that it is served.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Final

from ..protocol.errors import CoveyError
from .listeners import Listener

FIRST_FD: Final = 3
MOST_FDS: Final = 64
VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")


class ActivationRefused(CoveyError):
    """A socket that was handed to us cannot be used; the socket unit has to be changed. The fleet did not start."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what}, handed over by LISTEN_FDS, {problem}")
        self.what, self.problem = what, problem


def inherited(paths: Mapping[str, Path], environ: MutableMapping[str, str] = os.environ) -> dict[str, Listener]:
    """Take over the sockets that were opened for us, by the names in `paths`; raises `ActivationRefused`.

    The variables are taken out of `environ`, so that no child believes that they are meant for it.
    """
    said = {name: environ.pop(name, "") for name in VARIABLES}
    if said["LISTEN_PID"] != str(os.getpid()):
        return {}
    count = _count(said["LISTEN_FDS"])
    names = said["LISTEN_FDNAMES"].split(":") if said["LISTEN_FDNAMES"] else [""] * count
    if len(names) != count:
        raise ActivationRefused("LISTEN_FDNAMES", f"has {len(names)} names for {count} descriptors")
    # All of them are looked at before anything is opened: a new descriptor could get a number that was promised.
    sockets = [_socket(fd, name) for fd, name in enumerate(names, FIRST_FD)]
    found: dict[str, Listener] = {}
    for sock, name in zip(sockets, names, strict=True):
        service, listener = _serve(sock, name, paths)
        if service in found:
            raise ActivationRefused(_what(sock.fileno(), name), f"is a second socket for {paths[service]}")
        found[service] = listener
    return found


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > MOST_FDS:
        raise ActivationRefused("LISTEN_FDS", f"is {text[:20]!r}; valid: a number from 0 to {MOST_FDS}")
    return int(text)


def _serve(sock: socket.socket, name: str, paths: Mapping[str, Path]) -> tuple[str, Listener]:
    what = _what(sock.fileno(), name)
    service = _service(sock.getsockname(), what, paths)
    # Any other name is the unit's, which is what systemd says when it was told nothing.
    if name in paths and name != service:
        raise ActivationRefused(what, f"is bound to {paths[service]}; {name} listens at {paths[name]}")
    return service, Listener(paths[service], sock, anchor=_anchor(paths[service], what), is_ours=False)


def _what(fd: int, name: str) -> str:
    return f"descriptor {fd} ({name})" if name else f"descriptor {fd}"


def _socket(fd: int, name: str) -> socket.socket:
    what = _what(fd, name)
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        raise ActivationRefused(what, "is not open") from None
    if not stat.S_ISSOCK(mode):
        raise ActivationRefused(what, "is not a socket")
    os.set_inheritable(fd, False)
    sock = socket.socket(fileno=fd)
    if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM:
        raise ActivationRefused(what, "is not a Unix stream socket; use ListenStream= with a path")
    if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise ActivationRefused(what, "does not listen; use Accept=no")
    # ZeroMQ accepts until there is nobody left.
    sock.setblocking(False)
    return sock


def _service(name: str | bytes, what: str, paths: Mapping[str, Path]) -> str:
    bound = os.fsdecode(name)
    for service, path in paths.items():
        if bound and os.path.realpath(bound) == os.path.realpath(path):
            return service
    valid = ", ".join(str(path) for path in paths.values())
    raise ActivationRefused(what, f"is bound to {bound or 'nothing'!r}; the sockets of this home are {valid}")


def _anchor(path: Path, what: str) -> int:
    try:
        anchor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ActivationRefused(what, f"is bound to {path}, which is gone ({error.strerror}); restart it") from None
    there = os.fstat(anchor)
    problem = None
    if not stat.S_ISSOCK(there.st_mode):
        problem = f"is bound to {path}, which is something else by now; restart it"
    elif there.st_uid != os.geteuid():
        problem = f"belongs to user {there.st_uid}, not to you ({os.geteuid()}); set SocketUser="
    elif stat.S_IMODE(there.st_mode) & 0o077:
        problem = f"is open to others (mode {stat.S_IMODE(there.st_mode):04o}); set SocketMode=0600"
    if problem is not None:
        os.close(anchor)
        raise ActivationRefused(what, problem)
    return anchor
