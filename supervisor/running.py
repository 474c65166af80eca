"""Is a fleet running in this home, and who owns it: asked of the kernel, without talking to it."""

from __future__ import annotations

from ..protocol.errors import AlreadyRunning
from ..storage.owners import is_alive
from .home import Home, RootInfo


def running_root(home: Home) -> RootInfo | None:
    """The root that owns this home now, or None."""
    info = RootInfo.read(home.root_info)
    return info if info is not None and is_alive(info.owner) else None


def refuse_if_running(home: Home) -> None:
    """Raise `AlreadyRunning` with the owner's pid."""
    info = running_root(home)
    if info is not None:
        raise AlreadyRunning(str(home.path), info.pid)
