"""The keeper: carries out what `strategy` decides about the fleet's processes. Owned by the root's loop thread."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Mapping
from typing import assert_never

import msgspec

from ..protocol.ids import Incarnation
from ..protocol.messages.fleet import ProcessView
from ..protocol.peer import Peer
from ..storage.logs import log_event
from .cgroup import Group
from .debts import Debts
from .exits import ExitReason, Lost, OverLimit, from_status, words
from .home import Home
from .leftovers import GROUP_S, Register
from .lifecycle import (
    Action,
    AllReady,
    AllStopped,
    ArmTimer,
    ChildEnded,
    ChildGivenUp,
    ChildReady,
    ChildRestarts,
    Complete,
    Ended,
    Escalate,
    Event,
    Fact,
    Hung,
    Kill,
    Overgrown,
    Ready,
    Report,
    RestartRequested,
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
from .network import NetworkListener
from .process import start_ticks
from .process_views import child_view, process_view
from .restarts import Spent
from .service import ServiceArguments
from .spec import ChildSpec, Plan
from .strategy import decide
from .tree import new_tree
from .zygote_client import ZygoteClient, ZygoteEvent, ZygoteLost, exec_zygote
from .zygote_wire import ChildExited, ChildSpawned, SpawnFailed, StrangersKilled, ZygoteReady

log = logging.getLogger(__name__)

BURY_S = 4.0

HURRY_S = 1.0
"""What everybody gets to end in once somebody is in a hurry."""

DUMP_S = 0.2
"""What a hung process gets to write its stacks; one that is stopped cannot, and is replaced all the same."""

ListenersFor = Callable[[ChildSpec], Mapping[str, Listener | NetworkListener]]
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
        on_charged: Callable[[str, Incarnation, ExitReason], None],
        past: Mapping[str, Spent],
    ) -> None:
        """`past` is when an earlier root restarted which child, in our time. `on_charged` hears of every restart that
        a limit paid for: the child, the life that ended, and how.
        """
        self._plan = plan
        self._home = home
        self._zygote = zygote
        self._tree = new_tree(plan, boot=boot, seed=seed, past=past)
        self._group = Group.make(Incarnation(boot))
        self._register = Register(home.processes, Incarnation(boot), group=self._group)
        self._arguments_for = arguments_for
        self._listeners_for = listeners_for
        self._on_ended = on_ended
        self._on_charged = on_charged
        self._loop = asyncio.get_running_loop()
        self._started_at = time.monotonic()
        self._zygote_restarts = 0
        self._reading = -1
        self._debts = Debts()
        self._debt_timer: asyncio.TimerHandle | None = None
        self.all_ready = asyncio.Event()
        self.all_stopped = asyncio.Event()
        self.escalated: Escalate | None = None
        self._take_zygote_in()
        self._read()

    def start(self) -> None:
        """Bring everything up; `all_ready` is set when it is."""
        self._feed(StartAll())

    def stop(self, reason: str) -> None:
        """Take everything down, in reverse; `all_stopped` is set when it is. Repeatable."""
        log_event(log, "fleet_stops", reason=reason)
        self._feed(StopRequested())

    def hurry(self) -> None:
        """Do not go rank by rank: everybody is asked to end now, and is killed after `HURRY_S`."""
        for signo in (signal.SIGTERM, signal.SIGCONT):
            self._signal_all(signo)
        self._loop.call_later(HURRY_S, self.kill)

    def kill(self) -> None:
        """Kill whoever is still there. What they had not handed over to the ledger stays in their spools."""
        self._signal_all(signal.SIGKILL)
        # If it is stuck itself, nobody would ever tell that they are gone; its own death takes them along.
        self._loop.call_later(HURRY_S, self._kill_silent_zygote)

    def _kill_silent_zygote(self) -> None:
        if self._zygote.outstanding():
            self._zygote.kill()

    def _signal_all(self, signo: int) -> None:
        for spec in self._plan.spec.children:
            phase = self._tree.child(spec.name).phase
            if isinstance(phase, Starting | Running | Stopping):
                self._zygote.signal(phase.incarnation, signo)

    def restart(self, target: str) -> tuple[str, ...]:
        """Replace the child called `target`, or all children of that role; who they are, nobody for a stranger."""
        named = [spec.name for spec in self._plan.spec.children if target in (spec.name, spec.role)]
        log_event(log, "restart_asked_for", target=target, children=named)
        for name in named:
            self._feed(RestartRequested(child=name))
        return tuple(named)

    def service_ready(self, peer: Peer) -> None:
        """A process says that it serves; a word from an older life is ignored."""
        if peer.name in self._plan.place:
            self._feed(Ready(child=peer.name, incarnation=peer.incarnation))

    def hung(self, peer: Peer, silent_s: float) -> None:
        """A process's loop stands still: its stacks go to its log, then it is replaced."""
        if peer.name not in self._plan.place:
            return
        log_event(
            log, "child_hung", level=logging.ERROR, child=peer.name, incarnation=peer.incarnation, silent_s=silent_s
        )
        self._zygote.signal(peer.incarnation, signal.SIGUSR1)
        event = Hung(child=peer.name, incarnation=peer.incarnation, silent_s=silent_s)
        self._loop.call_later(DUMP_S, self._feed, event)

    def overgrown(self, name: str, life: Incarnation, reason: OverLimit) -> None:
        """This life of a child uses more than it may: it gets its time to end, and is replaced."""
        log_event(
            log,
            "child_over_limit",
            level=logging.WARNING,
            child=name,
            incarnation=life,
            what=reason.what,
            value=round(reason.value, 1),
            limit=reason.limit,
        )
        self._feed(Overgrown(child=name, incarnation=life, reason=reason))

    def running(self, name: str) -> tuple[int, Incarnation] | None:
        """The pid and the life of a child that serves."""
        phase = self._tree.child(name).phase
        if not isinstance(phase, Running) or phase.pid is None:
            return None
        return phase.pid, phase.incarnation

    def processes(self) -> tuple[ProcessView, ...]:
        """Every process of the tree that exists or is due, the zygote included."""
        now = time.monotonic()
        zygote = process_view(
            "zygote",
            "zygote",
            pid=self._zygote.pid,
            uptime_s=now - self._started_at,
            restarts=self._zygote_restarts,
        )
        children = [child_view(spec, self._tree.child(spec.name), now=now) for spec in self._plan.spec.children]
        return (zygote, *(view for view in children if view.pid or view.state != "absent"))

    def close(self) -> None:
        """End the zygote, and with it whatever is left below it."""
        self._loop.remove_reader(self._reading)
        swept = self._zygote.close(timeout_s=BURY_S)
        if self._group is not None and not self._group.clear(timeout_s=GROUP_S):
            log_event(log, "cgroup_not_empty", level=logging.ERROR, path=self._group.path)
        if swept.left:
            log_event(log, "processes_left", level=logging.ERROR, pids=sorted(swept.left))
        else:
            self._register.remove()

    # --- the zygote's word ---------------------------------------------------------------------------------------

    def _read(self) -> None:
        self._reading = self._zygote.fileno()
        self._loop.add_reader(self._reading, self._reports_came)

    def _reports_came(self) -> None:
        for report in self._zygote.receive():
            self._heard(report)

    def _heard(self, report: ZygoteEvent) -> None:
        match report:
            case ChildSpawned(name=name, incarnation=life, pid=pid, start_ticks=ticks):
                self._debts.pay(life)
                self._register.add(name, pid=pid, start_ticks=ticks)
                self._feed(Spawned(child=name, incarnation=life, pid=pid))
            case SpawnFailed(name=name, incarnation=life, error=error):
                self._debts.pay(life)
                self._feed(StartFailed(child=name, incarnation=life, error=error))
            case ChildExited(name=name, incarnation=life, status=status):
                self._debts.pay(life)
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
        if self._group is not None:
            self._group.kill()
        self._zygote.bury(timeout_s=BURY_S)
        self._zygote = exec_zygote()
        self._zygote_restarts += 1
        self._debts.clear()
        self._take_zygote_in()
        self._read()
        for life, name in outstanding.items():
            self._feed(Ended(child=name, incarnation=life, reason=Lost()))

    def _take_zygote_in(self) -> None:
        """Before it is asked for a child: whoever it forks is in the group as well."""
        if self._group is not None and not self._group.take_in(self._zygote.pid):
            log_event(log, "cgroup_refused", level=logging.WARNING, path=self._group.path)
        self._register.add("zygote", pid=self._zygote.pid, start_ticks=start_ticks(self._zygote.pid))

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
                self._owed(life)
            case ArmTimer(child=name, at=at):
                self._loop.call_later(max(0.0, at - time.monotonic()), self._feed, Tick(child=name))
            case Report(fact=fact):
                self._report(fact)
            case Escalate():
                self.escalated = action
                log_event(log, "fleet_gives_up", level=logging.ERROR, child=action.child, reason=words(action.reason))
            case Complete(child=name, reason=reason):
                log_event(log, "fleet_complete", child=name, reason=words(reason))
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
        self._owed(life)

    def _owed(self, life: Incarnation) -> None:
        self._debts.owe(life, time.monotonic())
        if self._debt_timer is None:
            self._look_at_debts()

    def _look_at_debts(self) -> None:
        """A zygote that keeps silent about what it owes is given up: it is replaced, and its children with it."""
        now, self._debt_timer = time.monotonic(), None
        if self._debts.is_overdue(now):
            log_event(log, "zygote_hung", level=logging.ERROR, pid=self._zygote.pid)
            self._zygote.kill()
        elif (at := self._debts.next_at()) is not None:
            self._debt_timer = self._loop.call_later(at - now, self._look_at_debts)

    def _report(self, fact: Fact) -> None:
        match fact:
            case ChildReady(child=name, incarnation=life):
                log_event(log, "child_ready", child=name, incarnation=life)
            case ChildEnded(child=name, incarnation=life, reason=reason, was_asked=was_asked):
                level = logging.INFO if was_asked else logging.WARNING
                log_event(log, "child_ended", level=level, child=name, incarnation=life, reason=words(reason))
                self._on_ended(self._spec(name), life)
            case ChildRestarts(child=name, ended=life, reason=reason, attempt=attempt, delay_s=delay_s):
                log_event(log, "child_restarts", child=name, attempt=attempt, delay_s=round(delay_s, 3))
                if not fact.is_free:
                    self._on_charged(name, life, reason)
            case ChildGivenUp(child=name, reason=reason):
                log_event(log, "child_given_up", level=logging.ERROR, child=name, reason=words(reason))
            case _:
                assert_never(fact)

    def _spec(self, name: str) -> ChildSpec:
        return self._plan.spec.children[self._plan.place[name]]
