"""What the runtime refuses and how it reports ends. No error holds an actor or its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykka import ActorDeadError

from ...protocol.errors import CoveyError, LimitError
from .exits import DownReason, ExitReason, StartFailed, StartPhase, describe

if TYPE_CHECKING:
    from .monitor import Down


class ActorDown(CoveyError, ActorDeadError):
    """The actor had ended, or ended before it answered; a message on the way may or may not have been handled.

    `Stale` as the reason: a later life has the name, and did not get the message.
    """

    def __init__(self, ref: str, reason: DownReason) -> None:
        super().__init__(f"{ref} is down: {describe(reason)}")
        self.ref, self.reason = ref, reason

    @classmethod
    def of(cls, down: Down) -> ActorDown:
        """The error for a Down that was received."""
        return cls(str(down.ref), down.reason)


class StartFailedError(CoveyError):
    """The actor did not become ready; nothing of it is left. `__cause__` is what it raised, if it did."""

    def __init__(self, name: str, reason: ExitReason) -> None:
        super().__init__(f"{name} was not started: {describe(reason)}")
        self.name, self.reason = name, reason

    @property
    def phase(self) -> StartPhase:
        """How far the start came."""
        return self.reason.phase if isinstance(self.reason, StartFailed) else StartPhase.ON_START


class WouldDeadlock(CoveyError):
    """A blocking wait on a thread that runs an event loop, or an ask that closes a circle of asks; nothing was sent."""

    def __init__(self, what: str, instead: str) -> None:
        super().__init__(f"{what} would never end; {instead}")
        self.what = what


class WorkCancelled(CoveyError):
    """`actor` has ended, or its asker has: nobody needs this work any more, and what it asked for is not waited for."""

    def __init__(self, actor: str) -> None:
        super().__init__(f"nobody waits for what {actor} does here any more")
        self.actor = actor


class PoolFull(LimitError):
    """Too many blocking calls wait for a thread; this one was not accepted."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} blocking calls wait for a thread of the pool")
        self.waiting = waiting
