"""systemd, if it started us: READY=1, WATCHDOG=1 and STOPPING=1 to the socket named in `NOTIFY_SOCKET`.

The watchdog is fed by the root's loop, at half of the time it asks for: a loop that stands still is not fed. Without
systemd nothing happens, and what cannot be told is not worth a failure.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import MutableMapping
from typing import Final

from ..storage.logs import log_event

log = logging.getLogger(__name__)

VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """The way to systemd. Owned by the root's loop thread."""

    def __init__(self, address: str | None, *, watchdog_s: float | None) -> None:
        self._address = address
        self._watchdog_s = watchdog_s
        self._feeding: asyncio.TimerHandle | None = None

    @classmethod
    def take(cls, environ: MutableMapping[str, str], pid: int) -> Notifier:
        """What the environment says of us; taken out of it, because nothing of this is meant for our children."""
        address, usec, meant = (environ.pop(name, "") for name in VARIABLES)
        # WATCHDOG_PID keeps a child that inherited the environment from speaking for its parent.
        is_ours = not meant or meant == str(pid)
        watchdog_s = int(usec) / 1e6 if usec.isdigit() and int(usec) > 0 and is_ours else None
        return cls(address or None, watchdog_s=watchdog_s)

    def ready(self, status: str) -> None:
        """We serve. From now on the watchdog is fed."""
        self._tell(f"READY=1\nSTATUS={status}\nMAINPID={os.getpid()}")
        if self._address is not None and self._watchdog_s is not None:
            self._feed()

    def stopping(self, reason: str) -> None:
        """We are going down; that takes as long as it takes, so the watchdog goes on being fed."""
        self._tell(f"STOPPING=1\nSTATUS=stops: {reason}")

    def close(self) -> None:
        """Say nothing more."""
        if self._feeding is not None:
            self._feeding.cancel()
            self._feeding = None

    def _feed(self) -> None:
        assert self._watchdog_s is not None, "fed only where systemd watches"
        self._tell("WATCHDOG=1")
        self._feeding = asyncio.get_running_loop().call_later(self._watchdog_s / 2, self._feed)

    def _tell(self, text: str) -> None:
        if self._address is None:
            return
        # An `@` stands for the NUL of a name that is in no file system.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.setblocking(False)
                sock.sendto(text.replace("\0", "").encode("utf-8", "replace"), address)
        except OSError as error:
            log_event(log, "systemd_not_told", level=logging.WARNING, error=error)
