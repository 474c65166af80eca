"""Watching the processes that hold something of ours: the kernel tells when one ends.

One pidfd per process, on the loop. The start time is compared after the pidfd was opened, so a pid that was given
to somebody else in between is never mistaken for its former owner.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from ..protocol.peer import Owner
from ..storage.owners import open_pidfd


class Holders:
    """Calls `on_gone(owner)` on the loop thread, exactly once per watch, when the process has ended.

    Owned by the loop thread. Holds one descriptor per watched process.
    """

    def __init__(self, on_gone: Callable[[Owner], None]) -> None:
        self._on_gone = on_gone
        self._pidfds: dict[Owner, int | None] = {}

    def __len__(self) -> int:
        return len(self._pidfds)

    def watch(self, owner: Owner) -> None:
        """Begin to watch; a second watch of the same process changes nothing.

        For one that is dead already, or of another boot, `on_gone` follows at once (never from inside this call).
        """
        if owner in self._pidfds:
            return
        fd = open_pidfd(owner)
        self._pidfds[owner] = fd
        if fd is None:
            asyncio.get_running_loop().call_soon(self._gone, owner)
        else:
            asyncio.get_running_loop().add_reader(fd, self._gone, owner)

    def unwatch(self, owner: Owner) -> None:
        """Stop watching: nothing will be told about this process."""
        fd = self._pidfds.pop(owner, None)
        if fd is not None:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)

    def close(self) -> None:
        """Stop watching everybody."""
        for owner in tuple(self._pidfds):
            self.unwatch(owner)

    def _gone(self, owner: Owner) -> None:
        if owner not in self._pidfds:
            return
        self.unwatch(owner)
        self._on_gone(owner)
