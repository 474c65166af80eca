"""What a folder lies on: the kernel's list of mounts, and which kinds of file system state.db cannot be kept on."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from ..protocol.errors import RemoteFileSystem

MOUNTS: Final = Path("/proc/self/mountinfo")

REMOTE: Final = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "afs",
        "ceph",
        "lustre",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.rclone",
    }
)
"""Their locks reach one host or none, and memory that two hosts map is not the same."""

_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def refuse_remote(database: Path, *, mounts: Path = MOUNTS) -> None:
    """Raise `RemoteFileSystem` if the folder of `database` lies on one."""
    kind = file_system(database.parent, mounts)
    if kind in REMOTE:
        assert kind is not None, "None is no member"
        raise RemoteFileSystem(str(database), kind)


def file_system(folder: Path, mounts: Path = MOUNTS) -> str | None:
    """Return the kind of file system `folder` lies on; None where the kernel does not say."""
    try:
        lines = os.fsdecode(mounts.read_bytes()).splitlines()
    except OSError:
        return None
    real = os.path.realpath(folder)
    kind, longest = None, 0
    for line in lines:
        before, _, after = line.partition(" - ")
        point = _unescaped(before.split(" ")[4])
        # Of two mounts at one place the later one is on top.
        if _is_below(real, point) and len(point) >= longest:
            kind, longest = after.split(" ")[0], len(point)
    return kind


def _unescaped(point: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), point)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
