"""Processes as status shows them: what the tree knows of a child, beside what the process uses right now."""

from __future__ import annotations

import msgspec

from ..protocol.messages.fleet import ProcessView
from .exits import words
from .lifecycle import BackingOff, GivenUp, Phase, Running, Starting, Stopping
from .restarts import left
from .spec import ChildSpec
from .tree import Child
from .vitals import vitals


def process_view(
    role: str, name: str, *, pid: int, uptime_s: float, restarts: int, state: str = "running"
) -> ProcessView:
    """A process with its vitals."""
    seen = vitals(pid)
    return ProcessView(
        role=role,
        name=name,
        pid=pid,
        uptime_s=round(max(0.0, uptime_s), 3),
        restarts=restarts,
        rss_mb=seen.rss_mb,
        threads=seen.threads,
        state=state,
    )


def child_view(spec: ChildSpec, child: Child, *, now: float) -> ProcessView:
    """A child of the tree, whether or not it has a process just now."""
    phase = child.phase
    since = phase.since if isinstance(phase, Running) else now
    pid, life = _life(phase)
    view = process_view(
        spec.role, spec.name, pid=pid, uptime_s=now - since, restarts=child.restarts, state=_word(phase)
    )
    return msgspec.structs.replace(
        view,
        incarnation=life,
        rank=spec.rank,
        restart=spec.restart.value,
        last_exit=words(child.last_end) if child.last_end is not None else None,
        restarts_left=left(child.spent, spec.limit, now),
    )


def _life(phase: Phase) -> tuple[int, str]:
    """The pid and incarnation of a child that has them."""
    if isinstance(phase, Starting | Running | Stopping):
        return phase.pid or 0, phase.incarnation
    return 0, ""


def _word(phase: Phase) -> str:
    match phase:
        case Running():
            return "running"
        case Starting():
            return "starting"
        case Stopping():
            return "stopping"
        case BackingOff():
            return "backing off"
        case GivenUp():
            return "given up"
        case _:
            return "absent"
