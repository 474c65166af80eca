"""The home folder as a place to live in: whose it is, what it lies on, how long its names are, how much room it has."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..storage.mounts import MOUNTS, REMOTE, file_system
from .doctor_findings import Finding, fail, ok, warn
from .home import SOCKET_NAMES, SOCKET_PATH_BYTES, Home

LEAST_BYTES: Final = 100 * 2**20
FEW_BYTES: Final = 2**30

_FLEETING: Final = frozenset({"tmpfs", "ramfs"})


def check_home(home: Home, *, mounts: Path = MOUNTS) -> Iterator[Finding]:
    """Look at the folder, or where it would be made; changes nothing."""
    yield from check_folder(home.path)
    yield check_sockets(home)
    there = nearest(home.path)
    yield from check_room(there)
    kind = file_system(there, mounts)
    if kind in REMOTE:
        to_do = "choose a home on a local disk: `--home DIR` or $COVEY_HOME"
        yield fail(
            "file system", f"{home.path} is on {kind}; locks and shared memory of state.db do not work there", to_do
        )
    elif kind in _FLEETING:
        to_do = "choose a home on a disk, unless this one may be forgotten"
        yield warn("file system", f"{home.path} is on {kind}: transcripts and accounts are gone after a reboot", to_do)
    else:
        yield ok("file system", f"{home.path} is on {kind or 'a local file system'}")


def check_folder(path: Path) -> Iterator[Finding]:
    """Whose it is, and who else gets in."""
    try:
        found = path.stat()
    except FileNotFoundError:
        yield _check_parent(path)
        return
    except OSError as error:
        yield fail("home", f"{path}: {error.strerror}", "choose a home you can enter: `--home DIR` or $COVEY_HOME")
        return
    if not stat.S_ISDIR(found.st_mode):
        yield fail("home", f"{path} is not a folder", "move it away, or choose another home")
    elif found.st_uid != os.geteuid():
        yield fail(
            "home", f"{path} belongs to user {found.st_uid}, not to you ({os.geteuid()})", "choose a home of yours"
        )
    elif not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        yield fail("home", f"{path} cannot be written to", f"chmod 0700 {path}")
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = f"{stat.S_IMODE(found.st_mode):04o}"
        yield fail("home", f"{path} can be written to by other users (mode {mode})", f"chmod 0700 {path}")
    elif found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = f"{stat.S_IMODE(found.st_mode):04o}"
        yield warn("home", f"{path} can be read by other users (mode {mode})", f"chmod 0700 {path}")
    else:
        yield ok("home", f"{path} is yours alone")


def check_sockets(home: Home) -> Finding:
    """Whether the names of the sockets fit into the kernel's 107 bytes, here or in a shorter folder."""
    folder = home.sockets()
    longest = max(len(os.fsencode(folder / f"{name}.sock")) for name in SOCKET_NAMES)
    if longest > SOCKET_PATH_BYTES:
        says = f"a socket in {folder} has a path of {longest} bytes, {SOCKET_PATH_BYTES} are possible"
        return fail("sockets", says, "choose a home nearer to the root of the file system")
    elsewhere = "" if folder == home.run else f" in {folder}, because the home lies too deep"
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return ok("sockets", f"the longest path has {longest} of {SOCKET_PATH_BYTES} bytes{elsewhere}")
    except OSError as error:
        return fail("sockets", f"{folder}: {error.strerror}", f"make {folder} a folder of yours (0700)")
    if stat.S_ISLNK(found.st_mode) or not stat.S_ISDIR(found.st_mode):
        return fail("sockets", f"{folder} is not a folder", "move it away")
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return fail("sockets", f"others can put files into {folder}", f"chmod 0700 {folder}, or remove it")
    return ok("sockets", f"the longest path has {longest} of {SOCKET_PATH_BYTES} bytes{elsewhere}")


def check_room(folder: Path) -> Iterator[Finding]:
    """Room and files left on the disk."""
    try:
        disk = os.statvfs(folder)
    except OSError as error:
        yield fail("disk", f"{folder}: {error.strerror}", "choose another home")
        return
    free = disk.f_bavail * disk.f_frsize
    if disk.f_flag & os.ST_RDONLY:
        yield fail("disk", f"the disk of {folder} can only be read", "mount it writable, or choose another home")
    elif free < LEAST_BYTES:
        yield fail(
            "disk", f"{_mb(free)} left on the disk of {folder}", "make room: nothing is committed on a full disk"
        )
    elif disk.f_files and not disk.f_favail:
        yield fail(
            "disk", f"no file can be made any more on the disk of {folder}", "remove files: its inodes are used up"
        )
    elif free < FEW_BYTES:
        yield warn("disk", f"{_mb(free)} left on the disk of {folder}", "make room before it is full")
    else:
        yield ok("disk", f"{free / 2**30:.1f} GiB left on the disk of {folder}")


def nearest(path: Path) -> Path:
    """`path`, or the first folder above it that exists."""
    return next((folder for folder in (path, *path.parents) if folder.is_dir()), Path("/"))


def _check_parent(path: Path) -> Finding:
    above = nearest(path)
    if os.access(above, os.W_OK | os.X_OK):
        return ok("home", f"{path} does not exist yet; `covey up` makes it")
    return fail("home", f"{path} cannot be made: {above} cannot be written to", "choose another home")


def _mb(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
