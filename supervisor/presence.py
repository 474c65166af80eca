"""What a running fleet has on disk so that it can be found: its lock, `root.json`, and the sockets.

Cleaners of /tmp, an ended login session or a person may remove it while the fleet runs. It is looked at twice a second
and put back. Only where another root has taken the home meanwhile, there is nothing to put back: then it is theirs.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ..protocol.errors import CoveyError
from ..storage.locks import FileLock, take
from ..storage.logs import log_event
from .home import Home, RootInfo, make_private
from .listeners import Listener
from .pump import next_beat

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0


class Displaced(CoveyError):
    """Another root owns this home: our lock was removed, and it came before we noticed. Nothing of it was touched."""

    def __init__(self, home: str) -> None:
        super().__init__(f"another fleet was started in {home} after the files of this one had been removed")
        self.home = home


class Presence:
    """Owns the home's lock and the listening sockets, from the root's start to its end. Owned by the loop thread."""

    def __init__(self, home: Home, info: RootInfo, listeners: Mapping[str, Listener], lock: FileLock) -> None:
        self._home = home
        self._info = info
        self._listeners = listeners
        self._lock = lock
        self._timer: asyncio.TimerHandle | None = None
        self._problem: str | None = None

    def announce(self) -> None:
        """Write `root.json`: from now on clients find us."""
        self._info.write(self._home.root_info)

    def watch(self, on_displaced: Callable[[Displaced], None]) -> None:
        """Look after everything from now on; `on_displaced` is called at most once, and is the end of looking."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(next_beat(loop.time(), LOOK_S), self._look, on_displaced)

    def restore(self) -> tuple[str, ...]:
        """Put back what is missing and return its names; raises `Displaced`, or `CoveyError`/`OSError` if it cannot."""
        missing = self._missing()
        if not missing:
            return ()
        if "lock" in missing:
            self._lock_again()
        if "root.json" in missing:
            self.announce()
        for name in missing & self._listeners.keys():
            make_private(self._listeners[name].path.parent)
            self._listeners[name].restore()
        return tuple(sorted(missing))

    def close(self) -> None:
        """Take away what is ours. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        if self._lock.is_in_place():
            self._home.root_info.unlink(missing_ok=True)
        for listener in self._listeners.values():
            listener.remove()
        self._lock.close()

    # --- inside --------------------------------------------------------------------------------------------------

    def _look(self, on_displaced: Callable[[Displaced], None]) -> None:
        try:
            restored = self.restore()
        except Displaced as error:
            log_event(log, "home_lost", level=logging.ERROR, error=str(error))
            on_displaced(error)
            return
        except (CoveyError, OSError) as error:
            self._complain(str(error))
        else:
            self._problem = None
            if restored:
                log_event(log, "presence_restored", level=logging.WARNING, names=list(restored))
        self.watch(on_displaced)

    def _complain(self, problem: str) -> None:
        """Once for each problem, not twice a second: the fleet goes on for those who are connected."""
        if problem != self._problem:
            self._problem = problem
            log_event(log, "presence_not_restored", level=logging.ERROR, error=problem)

    def _missing(self) -> set[str]:
        missing = {name for name, listener in self._listeners.items() if not listener.is_in_place()}
        if not self._lock.is_in_place():
            missing.add("lock")
        if not self._home.root_info.exists():
            missing.add("root.json")
        return missing

    def _lock_again(self) -> None:
        self._home.prepare()
        fresh = take(self._home.root_lock, create=True)
        if fresh is None:
            raise Displaced(str(self._home.path))
        sign(fresh)
        self._lock.close()
        self._lock = fresh


def sign(lock: FileLock) -> None:
    """Write into the lock who holds it, for whoever is refused."""
    os.ftruncate(lock.fd, 0)
    os.write(lock.fd, f"{os.getpid()}\n".encode())


def socket_path(sockets: Path, name: str) -> Path:
    """Where the service `name` listens."""
    return sockets / f"{name}.sock"
