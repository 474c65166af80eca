"""Why an actor ended, and why a ref leads nowhere: two closed unions, in text only.

A reason outlives its actor by far (refs, monitors and logs keep it), so it holds no exception: an exception holds
its frames, and a frame holds the actor.
"""

from __future__ import annotations

import traceback
from enum import StrEnum
from typing import Final, assert_never

import msgspec

TEXT_LIMIT: Final = 2_000
TRACE_LIMIT: Final = 20_000


class Normal(msgspec.Struct, frozen=True, tag="normal"):
    """It stopped itself."""


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """Somebody else asked it to stop."""


class Killed(msgspec.Struct, frozen=True, tag="killed"):
    """Its turn was cancelled: by `kill`, by the death of its starter or with its loop."""


class Crashed(msgspec.Struct, frozen=True, tag="crashed"):
    """A handler or a task of it raised. `during` is the message's type or the task's name."""

    kind: str
    message: str
    during: str
    trace: str


class StartPhase(StrEnum):
    """How far a start came."""

    NAME = "name"
    """Another living actor has the name; nothing was made."""
    INIT = "init"
    """The constructor raised."""
    ON_START = "on_start"
    """`on_start` raised, was killed or took too long; `on_stop` has run."""


class StartFailed(msgspec.Struct, frozen=True, tag="start_failed"):
    """It never served a message."""

    phase: StartPhase
    kind: str
    message: str
    trace: str = ""


class Lost(msgspec.Struct, frozen=True, tag="lost"):
    """Its event loop was closed under it: `on_stop` did not run."""


ExitReason = Normal | Shutdown | Killed | Crashed | StartFailed | Lost
"""Why an actor ended."""


class Stale(msgspec.Struct, frozen=True, tag="stale"):
    """The ref is of an earlier life: a later one has the name now. `ended` is why the earlier one ended."""

    successor: int
    """The incarnation that has the name."""
    ended: ExitReason


DownReason = ExitReason | Stale
"""Why a ref leads nowhere."""


def crashed(error: BaseException, during: str) -> Crashed:
    """The reason for an actor that `error` ended."""
    kind, message, trace = _in_text(error)
    return Crashed(kind=kind, message=message, during=during, trace=trace)


def start_failed(phase: StartPhase, error: BaseException) -> StartFailed:
    """The reason for an actor whose start ended in `error`."""
    kind, message, trace = _in_text(error)
    return StartFailed(phase=phase, kind=kind, message=message, trace=trace)


def describe(reason: DownReason) -> str:
    """One line for people."""
    match reason:
        case Normal():
            return "it stopped itself"
        case Shutdown():
            return "it was stopped"
        case Killed():
            return "it was killed"
        case Crashed(kind=kind, message=message, during=during):
            return f"it crashed on {during}: {kind}: {message}" if message else f"it crashed on {during}: {kind}"
        case StartFailed(phase=phase, kind=kind, message=message):
            return f"its start failed ({phase}): {kind}: {message}"
        case Lost():
            return "its event loop was closed"
        case Stale(successor=successor, ended=ended):
            return f"its name belongs to incarnation {successor} now; {describe(ended)}"
        case _:
            assert_never(reason)


def _in_text(error: BaseException) -> tuple[str, str, str]:
    try:
        message = str(error)
    except Exception as broken:  # noqa: BLE001 - a `__str__` that raises must not become a second crash
        message = f"<unprintable: {type(broken).__name__}>"
    trace = "".join(traceback.format_exception(error))
    return type(error).__name__, message[:TEXT_LIMIT], trace[-TRACE_LIMIT:]
