"""Why a child process is no more: a closed union, so that a restart is judged on facts and not on a bare number.

Pure types.
"""

from __future__ import annotations

import os
from signal import Signals

import msgspec


class Exited(msgspec.Struct, frozen=True, tag="exited"):
    """It ended itself with this code."""

    code: int


class Signalled(msgspec.Struct, frozen=True, tag="signalled"):
    """A signal ended it."""

    signo: int

    @property
    def name(self) -> str:
        """`SIGKILL` and the like, as people write it."""
        known = {number.value: number.name for number in Signals}
        return known.get(self.signo, f"signal {self.signo}")


class Unresponsive(msgspec.Struct, frozen=True, tag="unresponsive"):
    """We killed it, because its loop had not turned for `silent_s`."""

    silent_s: float


class StartTimeout(msgspec.Struct, frozen=True, tag="start_timeout"):
    """We killed it, because it was not ready within its start deadline."""

    deadline_s: float


class NeverStarted(msgspec.Struct, frozen=True, tag="never_started"):
    """There was no process at all: the fork failed."""

    error: str


class Lost(msgspec.Struct, frozen=True, tag="lost"):
    """Nobody can say how it ended, because its parent (the zygote) went first.

    Whoever reports it has made sure that the process is gone. It is not the child's doing, so no budget pays for it.
    """


ExitReason = Exited | Signalled | Unresponsive | StartTimeout | NeverStarted | Lost


def from_status(status: int) -> Exited | Signalled:
    """What a status of `waitpid` says."""
    if os.WIFSIGNALED(status):
        return Signalled(os.WTERMSIG(status))
    return Exited(os.waitstatus_to_exitcode(status))


def is_normal(reason: ExitReason) -> bool:
    """Whether the child was done: it ended itself and said 0."""
    return reason == Exited(0)
