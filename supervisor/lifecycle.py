"""What can be true of a child, what can happen to it, and what a supervisor can do about it.

Pure types: the words of `strategy.decide`. Times are the caller's monotonic seconds.
"""

from __future__ import annotations

import msgspec

from ..protocol.ids import Incarnation
from .exits import ExitReason, OverLimit
from .restarts import RestartLimit

# --- phases of a child -----------------------------------------------------------------------------------------------


class Absent(msgspec.Struct, frozen=True, tag="absent"):
    """There is no process, and none is due."""


class Starting(msgspec.Struct, frozen=True, tag="starting"):
    """Asked for, not ready. `pid` is None until the fork is known to have happened."""

    incarnation: Incarnation
    deadline: float
    pid: int | None = None


class Running(msgspec.Struct, frozen=True, tag="running"):
    """It said that it is ready, at `since`. `pid` is None if that word came before the fork's."""

    incarnation: Incarnation
    since: float
    pid: int | None = None


class Stopping(msgspec.Struct, frozen=True, tag="stopping"):
    """Asked to end, or killed; at `deadline` it is killed (again).

    `cause` is set if it is ended to be replaced: for its own fault, or because that was asked for.
    """

    incarnation: Incarnation
    deadline: float
    pid: int | None = None
    is_killed: bool = False
    cause: ExitReason | None = None


class BackingOff(msgspec.Struct, frozen=True, tag="backing_off"):
    """It failed and comes back at `until`, or later if lower ranks are not ready."""

    until: float
    attempt: int


class GivenUp(msgspec.Struct, frozen=True, tag="given_up"):
    """Its restart limit is used up; the tree goes on without it."""

    reason: ExitReason


Alive = Starting | Running | Stopping
Phase = Absent | Starting | Running | Stopping | BackingOff | GivenUp


# --- events ----------------------------------------------------------------------------------------------------------


class StartAll(msgspec.Struct, frozen=True):
    """Bring the tree up."""


class Spawned(msgspec.Struct, frozen=True, kw_only=True):
    """The process exists."""

    child: str
    incarnation: Incarnation
    pid: int


class StartFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The process could not be made; there is none."""

    child: str
    incarnation: Incarnation
    error: str


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The child says that it serves."""

    child: str
    incarnation: Incarnation


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The process is gone, for sure."""

    child: str
    incarnation: Incarnation
    reason: ExitReason


class Hung(msgspec.Struct, frozen=True, kw_only=True):
    """The watchdog found the child's loop standing still; its stacks have been dumped."""

    child: str
    incarnation: Incarnation
    silent_s: float


class Overgrown(msgspec.Struct, frozen=True, kw_only=True):
    """The child uses more of something than it may; it gets its time to end in order."""

    child: str
    incarnation: Incarnation
    reason: OverLimit


class RestartRequested(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody wants a fresh one: the child is ended in order and comes back at no cost, whatever its restart type.

    One that waits for its back-off, has ended or was given up starts at once. Refused while the tree goes down or is
    down, and for one that is being ended already.
    """

    child: str


class StopRequested(msgspec.Struct, frozen=True):
    """Take the tree down. Once it is down (or was already), `AllStopped` follows."""


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """A time that was armed for the child has come. One that is no longer meant changes nothing."""

    child: str


Event = StartAll | Spawned | StartFailed | Ready | Ended | Hung | Overgrown | RestartRequested | StopRequested | Tick


# --- actions ---------------------------------------------------------------------------------------------------------


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Make a process for the child."""

    child: str
    incarnation: Incarnation


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the process to end: SIGTERM, then SIGCONT, because a stopped process takes no signal but SIGKILL."""

    child: str
    incarnation: Incarnation
    deadline: float


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """SIGKILL. May be repeated; `Ended` is still to come."""

    child: str
    incarnation: Incarnation


class ArmTimer(msgspec.Struct, frozen=True, kw_only=True):
    """Send `Tick(child)` at `at`. Timers need not be cancelled."""

    child: str
    at: float


class Escalate(msgspec.Struct, frozen=True, kw_only=True):
    """Restarting does not help. The tree stops itself; whoever owns it has to know why once `AllStopped` comes."""

    child: str
    reason: ExitReason
    limit: RestartLimit
    is_tree_limit: bool
    """Whether the limit over all children is used up, or this child's own."""


class Complete(msgspec.Struct, frozen=True, kw_only=True):
    """What the tree was for is done: its significant children ended. It takes itself down; that is no failure."""

    child: str
    reason: ExitReason


class AllReady(msgspec.Struct, frozen=True):
    """Every rank is up, for the first time or after a restart of several children."""


class AllStopped(msgspec.Struct, frozen=True):
    """No process is left."""


class ChildReady(msgspec.Struct, frozen=True, kw_only=True, tag="child_ready"):
    """For the log: it serves."""

    child: str
    incarnation: Incarnation


class ChildEnded(msgspec.Struct, frozen=True, kw_only=True, tag="child_ended"):
    """For the log: how it ended, and whether we had asked for that."""

    child: str
    incarnation: Incarnation
    reason: ExitReason
    was_asked: bool


class ChildRestarts(msgspec.Struct, frozen=True, kw_only=True, tag="child_restarts"):
    """It will come back. `ended` is the life that is over; unless the restart is free, it was charged."""

    child: str
    ended: Incarnation
    reason: ExitReason
    attempt: int
    delay_s: float
    is_free: bool


class ChildGivenUp(msgspec.Struct, frozen=True, kw_only=True, tag="child_given_up"):
    """For the log: it will not come back."""

    child: str
    reason: ExitReason
    limit: RestartLimit


Fact = ChildReady | ChildEnded | ChildRestarts | ChildGivenUp


class Report(msgspec.Struct, frozen=True):
    """Something people may want to know; nothing depends on it."""

    fact: Fact


Action = Start | Stop | Kill | ArmTimer | Report | Escalate | Complete | AllReady | AllStopped
