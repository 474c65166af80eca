"""Why a child process is no more: a closed union, so that a restart is judged on facts and not on a bare number.

Pure types.
"""

from __future__ import annotations

import os
from signal import Signals
from typing import assert_never

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


class Requested(msgspec.Struct, frozen=True, tag="requested"):
    """Somebody asked for a fresh one. No budget pays for it."""


class OverLimit(msgspec.Struct, frozen=True, tag="over_limit", kw_only=True):
    """We ended it, because it used more than it may: `what` is `rss_mb`, `fds` or `threads`."""

    what: str
    value: float
    limit: float


ExitReason = Exited | Signalled | Unresponsive | StartTimeout | NeverStarted | Lost | Requested | OverLimit


def from_status(status: int) -> Exited | Signalled:
    """What a status of `waitpid` says."""
    if os.WIFSIGNALED(status):
        return Signalled(os.WTERMSIG(status))
    return Exited(os.waitstatus_to_exitcode(status))


def words(reason: ExitReason) -> str:
    """The reason for people, on one line."""
    match reason:
        case Exited(code=code):
            return f"exit code {code}"
        case Signalled():
            return reason.name
        case Unresponsive(silent_s=silent_s):
            return f"its loop stood still for {silent_s:.1f} s"
        case StartTimeout(deadline_s=deadline_s):
            return f"not ready within {deadline_s:g} s"
        case NeverStarted(error=error):
            return f"could not be started: {error}"
        case Lost():
            return "lost with the zygote"
        case Requested():
            return "restart was asked for"
        case OverLimit(what=what, value=value, limit=limit):
            return f"over its limit: {what} {value:g} > {limit:g}"
        case _:
            assert_never(reason)


def is_free(reason: ExitReason) -> bool:
    """Whether no budget pays for the restart: it was not the child's doing."""
    return isinstance(reason, Lost | Requested)


def is_normal(reason: ExitReason) -> bool:
    """Whether the child was done: it ended itself and said 0."""
    return reason == Exited(0)
