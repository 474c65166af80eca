"""Who owns state.db: the holder of a kernel lock on `state.db.lock`, for as long as its process lives.

The lock comes first; pid, start ticks and boot id are then written into the file for people. The lock file is never
removed: a second one beside a locked one would be a second owner.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ..protocol.errors import AlreadyRunning
from ..protocol.peer import Owner
from .locks import FileLock, take
from .owners import is_alive, me

_LONGEST = 4096


def own(database: Path) -> FileLock:
    """Become the owner of `database`; raises `AlreadyRunning` with the owner's pid, and nothing is touched."""
    path = database.with_name(database.name + ".lock")
    lock = take(path, create=True)
    if lock is None:
        owner = read_owner(database)
        raise AlreadyRunning(f"state.db {database}", owner.pid if owner else None)
    os.ftruncate(lock.fd, 0)
    os.write(lock.fd, msgspec.json.encode(me()) + b"\n")
    return lock


def read_owner(database: Path) -> Owner | None:
    """Return the life that last owned `database` if it goes on; None if nobody does, or it is not known yet."""
    try:
        fd = os.open(database.with_name(database.name + ".lock"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        owner = msgspec.json.decode(os.read(fd, _LONGEST), type=Owner)
    except msgspec.DecodeError:
        return None
    finally:
        os.close(fd)
    return owner if is_alive(owner) else None
