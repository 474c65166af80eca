"""Who is at the other end: a process, named so that the kernel can be asked about it."""

from __future__ import annotations

from typing import Final

import msgspec

from .ids import Incarnation

REMOTE: Final = "remote:"
"""Begins the `boot_id` of everybody who came over the network, whatever they say of themselves."""


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """One life of one process. A pid alone is reused; with start time and boot it is unique on this host."""

    pid: int
    start_ticks: int
    """Field 22 of /proc/<pid>/stat: clock ticks after boot."""
    boot_id: str
    """/proc/sys/kernel/random/boot_id; for a process of another host `REMOTE`, its key's name and its own boot."""

    @property
    def is_remote(self) -> bool:
        """Whether this host's kernel cannot be asked about it."""
        return self.boot_id.startswith(REMOTE)


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A process that speaks to us over a link."""

    role: str
    """`root`, `ledger`, `broker`, `worker`, or `client` for programs outside the tree."""
    name: str
    incarnation: Incarnation
    owner: Owner
