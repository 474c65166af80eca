"""Listening Unix sockets that we bind ourselves, hold in the root and hand down.

libzmq's own bind takes a path away from whoever lives there and leaves permissions to the umask. Ours are 0600 in a
0700 folder from the first moment on, and outlive the service that serves them: whoever connects while it is being
replaced waits in the backlog and is answered by its successor.

A service gives a *copy* of the descriptor to its socket, because libzmq closes what it is given:
`socket.setsockopt(zmq.USE_FD, os.dup(fd)); socket.bind(f"ipc://{path}")`.

A path may vanish under us (cleaners of /tmp, a folder that is removed with everything in it). A bound socket cannot be
given a second name, and a new one would mean to replace every service. But we keep the socket's inode open, and a
symbolic link to that descriptor in /proc leads there even when no name is left: so a lost path becomes such a link.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from ..protocol.errors import CoveyError
from .home import SOCKET_PATH_BYTES, make_private

BACKLOG = 1024


class SocketPathTooLong(CoveyError):
    """A socket cannot have this path; nothing was made. A home nearer to the root of the file system helps."""

    def __init__(self, path: str, length: int) -> None:
        super().__init__(f"socket path of {length} bytes, at most {SOCKET_PATH_BYTES} are possible: {path}")
        self.path, self.length = path, length


class Listener:
    """A listening socket at `path`. Owned by the root; close-on-exec, as its copies in other processes are."""

    def __init__(self, path: Path, sock: socket.socket, *, anchor: int, is_ours: bool = True) -> None:
        """`anchor` is an O_PATH descriptor of the socket's inode; it becomes this object's, as `sock` does.

        A socket that is not ours to remove was bound by whoever started us, and stays when we are done.
        """
        self.path = path
        self._sock = sock
        self._anchor = anchor
        self._is_ours = is_ours

    def fileno(self) -> int:
        """The descriptor, to be handed down; it stays ours."""
        return self._sock.fileno()

    def is_in_place(self) -> bool:
        """Whether whoever connects to `path` reaches us: cleaners remove sockets, and others may take their place."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._anchor))
        except OSError:
            return False

    def restore(self) -> None:
        """Put the way to us back at `path`, whatever is there now; its folder exists."""
        beside = _beside(self.path)
        beside.unlink(missing_ok=True)
        beside.symlink_to(f"/proc/{os.getpid()}/fd/{self._anchor}")
        beside.rename(self.path)

    def remove(self) -> None:
        """Stop listening here and take the path away, if it still is ours. Copies elsewhere go on listening.

        A second time does nothing.
        """
        if self._sock.fileno() < 0:
            return
        if self._is_ours and self.is_in_place():
            self.path.unlink(missing_ok=True)
        self._sock.close()
        os.close(self._anchor)


def listen(path: Path) -> Listener:
    """Listen at `path`, in a folder that is made private if need be; raises `SocketPathTooLong`, `HomeError`.

    The caller owns the home (it holds its lock), so whatever stands at `path` is a leftover and is replaced. Whoever
    connects meanwhile finds the old socket or ours, never nothing.
    """
    # Made beside its place and moved there. The name is short, and the place itself must fit as well.
    beside = _beside(path)
    for name in (path, beside):
        check_length(name)
    make_private(path.parent)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # On Linux a socket's path gets the mode the socket has when it is bound: no moment with a wider one.
        os.fchmod(sock.fileno(), 0o600)
        beside.unlink(missing_ok=True)
        sock.bind(os.fsencode(beside))
        sock.listen(BACKLOG)
        # While a service is being replaced two processes accept here: the slower one must not block in accept.
        sock.setblocking(False)
        anchor = os.open(beside, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        beside.rename(path)
    except BaseException:
        sock.close()
        beside.unlink(missing_ok=True)
        raise
    return Listener(path, sock, anchor=anchor)


def check_length(path: Path) -> None:
    """Raise `SocketPathTooLong` for a path that no socket can have, measured in bytes."""
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_BYTES:
        raise SocketPathTooLong(str(path), length)


def _beside(path: Path) -> Path:
    return path.with_name(f".{os.getpid():x}")
