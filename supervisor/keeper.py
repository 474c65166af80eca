"""The keeper: carries out what `strategy` decides about the fleet's processes. Owned by the root's loop thread."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from typing import assert_never

import msgspec

from ..protocol.ids import Incarnation
from ..protocol.messages.fleet import ProcessView
from ..protocol.peer import Peer
from ..storage.logs import log_event
from .exits import Lost, from_status
from .home import Home
from .lifecycle import (
    Action,
    AllReady,
    AllStopped,
    ArmTimer,
    BackingOff,
    ChildEnded,
    ChildGivenUp,
    ChildReady,
    ChildRestarts,
    Ended,
    Escalate,
    Event,
    Fact,
    Kill,
    Ready,
    Report,
    Running,
    Spawned,
    Start,
    StartAll,
    StartFailed,
    Starting,
    Stop,
    Stopping,
    StopRequested,
    Tick,
)
from .listeners import Listener
from .service import ServiceArguments
from .spec import ChildSpec, Plan
from .strategy import decide
from .tree import new_tree
from .vitals import vitals
from .zygote_client import ZygoteClient, ZygoteEvent, ZygoteLost, exec_zygote
from .zygote_wire import ChildExited, ChildSpawned, SpawnFailed, StrangersKilled, ZygoteReady

log = logging.getLogger(__name__)

BURY_S = 4.0

ListenersFor = Callable[[ChildSpec], dict[str, Listener]]
ArgumentsFor = Callable[[ChildSpec, Incarnation], ServiceArguments]


class Keeper:
    """Starts, watches, restarts and stops the children of a plan."""

    def __init__(
        self,
        *,
        plan: Plan,
        home: Home,
        zygote: ZygoteClient,
        boot: str,
        seed: int,
        arguments_for: ArgumentsFor,
        listeners_for: ListenersFor,
        on_ended: Callable[[ChildSpec, Incarnation], None],
    ) -> None:
        self._plan = plan
        self._home = home
        self._zygote = zygote
        self._tree = new_tree(plan, boot=boot, seed=seed)
        self._arguments_for = arguments_for
        self._listeners_for = listeners_for
        self._on_ended = on_ended
        self._loop = asyncio.get_running_loop()
        self._started_at = time.monotonic()
        self._zygote_restarts = 0
        self._reading = -1
        self.all_ready = asyncio.Event()
        self.all_stopped = asyncio.Event()
        self.escalated: Escalate | None = None
        self._read()

    def start(self) -> None:
        """Bring everything up; `all_ready` is set when it is."""
        self._feed(StartAll())

    def stop(self, reason: str) -> None:
        """Take everything down, in reverse; `all_stopped` is set when it is. Repeatable."""
        log_event(log, "fleet_stops", reason=reason)
        self._feed(StopRequested())

    def hurry(self) -> None:
        """Kill whoever is still there."""
        for spec in self._plan.spec.children:
            phase = self._tree.child(spec.name).phase
            if isinstance(phase, Starting | Running | Stopping):
                self._zygote.signal(phase.incarnation, signal.SIGKILL)

    def service_ready(self, peer: Peer) -> None:
        """A process says that it serves; a word from an older life is ignored."""
        if peer.name in self._plan.place:
            self._feed(Ready(child=peer.name, incarnation=peer.incarnation))

    def processes(self) -> tuple[ProcessView, ...]:
        """Every process of the tree that exists or is due, the zygote included."""
        now = time.monotonic()
        views = [
            _view(
                "zygote",
                "zygote",
                pid=self._zygote.pid,
                uptime_s=now - self._started_at,
                restarts=self._zygote_restarts,
                state="running",
            )
        ]
        for spec in self._plan.spec.children:
            child = self._tree.child(spec.name)
            phase = child.phase
            since = phase.since if isinstance(phase, Running) else now
            pid = phase.pid if isinstance(phase, Starting | Running | Stopping) else None
            views.append(
                _view(
                    spec.role,
                    spec.name,
                    pid=pid or 0,
                    uptime_s=now - since,
                    restarts=child.restarts,
                    state=_word(phase),
                )
            )
        return tuple(view for view in views if view.pid or view.state != "absent")

    def close(self) -> None:
        """End the zygote, and with it whatever is left below it."""
        self._loop.remove_reader(self._reading)
        swept = self._zygote.close(timeout_s=BURY_S)
        if swept.left:
            log_event(log, "processes_left", level=logging.ERROR, pids=sorted(swept.left))

    # --- the zygote's word ---------------------------------------------------------------------------------------

    def _read(self) -> None:
        self._reading = self._zygote.fileno()
        self._loop.add_reader(self._reading, self._reports_came)

    def _reports_came(self) -> None:
        for report in self._zygote.receive():
            self._heard(report)

    def _heard(self, report: ZygoteEvent) -> None:
        match report:
            case ChildSpawned(name=name, incarnation=life, pid=pid):
                self._feed(Spawned(child=name, incarnation=life, pid=pid))
            case SpawnFailed(name=name, incarnation=life, error=error):
                self._feed(StartFailed(child=name, incarnation=life, error=error))
            case ChildExited(name=name, incarnation=life, status=status):
                self._feed(Ended(child=name, incarnation=life, reason=from_status(status)))
            case StrangersKilled(pids=pids):
                log_event(log, "strangers_killed", pids=list(pids))
            case ZygoteReady(missing=missing):
                log_event(log, "zygote_ready", missing=list(missing) or None)
            case ZygoteLost():
                self._zygote_lost()
            case _:
                assert_never(report)

    def _zygote_lost(self) -> None:
        """Its children die with it (the kernel sees to that): bury them, then start again from a fresh zygote."""
        log_event(log, "zygote_lost", level=logging.ERROR, pid=self._zygote.pid)
        self._loop.remove_reader(self._reading)
        outstanding = self._zygote.outstanding()
        self._zygote.bury(timeout_s=BURY_S)
        self._zygote = exec_zygote()
        self._zygote_restarts += 1
        self._read()
        for life, name in outstanding.items():
            self._feed(Ended(child=name, incarnation=life, reason=Lost()))

    # --- decide, then do -----------------------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        self._tree, actions = decide(self._tree, event, time.monotonic())
        for action in actions:
            self._do(action)

    def _do(self, action: Action) -> None:
        match action:
            case Start(child=name, incarnation=life):
                self._spawn(self._spec(name), life)
            case Stop(incarnation=life):
                self._zygote.signal(life, signal.SIGTERM)
                # A stopped process takes no signal but SIGKILL until it is continued.
                self._zygote.signal(life, signal.SIGCONT)
            case Kill(incarnation=life):
                self._zygote.signal(life, signal.SIGKILL)
            case ArmTimer(child=name, at=at):
                self._loop.call_later(max(0.0, at - time.monotonic()), self._feed, Tick(child=name))
            case Report(fact=fact):
                self._report(fact)
            case Escalate():
                self.escalated = action
                log_event(log, "fleet_gives_up", level=logging.ERROR, child=action.child, reason=str(action.reason))
            case AllReady():
                self.all_ready.set()
            case AllStopped():
                self.all_stopped.set()
            case _:
                assert_never(action)

    def _spawn(self, spec: ChildSpec, life: Incarnation) -> None:
        self._zygote.spawn(
            name=spec.name,
            role=spec.role,
            incarnation=life,
            log_path=str(self._home.logs / f"{spec.name}.log"),
            payload=msgspec.msgpack.encode(self._arguments_for(spec, life)),
            fds={name: listener.fileno() for name, listener in self._listeners_for(spec).items()},
        )

    def _report(self, fact: Fact) -> None:
        match fact:
            case ChildReady(child=name, incarnation=life):
                log_event(log, "child_ready", child=name, incarnation=life)
            case ChildEnded(child=name, incarnation=life, reason=reason, was_asked=was_asked):
                level = logging.INFO if was_asked else logging.WARNING
                log_event(log, "child_ended", level=level, child=name, incarnation=life, reason=str(reason))
                self._on_ended(self._spec(name), life)
            case ChildRestarts(child=name, attempt=attempt, delay_s=delay_s):
                log_event(log, "child_restarts", child=name, attempt=attempt, delay_s=round(delay_s, 3))
            case ChildGivenUp(child=name, reason=reason):
                log_event(log, "child_given_up", level=logging.ERROR, child=name, reason=str(reason))
            case _:
                assert_never(fact)

    def _spec(self, name: str) -> ChildSpec:
        return self._plan.spec.children[self._plan.place[name]]


def _view(role: str, name: str, *, pid: int, uptime_s: float, restarts: int, state: str) -> ProcessView:
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


def _word(phase: object) -> str:
    match phase:
        case Running():
            return "running"
        case Starting():
            return "starting"
        case Stopping():
            return "stopping"
        case BackingOff():
            return "backing off"
        case _:
            return "absent"
