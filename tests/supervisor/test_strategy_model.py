"""Random lives of random trees on a virtual clock: whatever happens, the promises of a supervisor hold."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from covey.protocol.ids import Incarnation
from covey.supervisor.exits import Exited, ExitReason, Lost, Signalled
from covey.supervisor.lifecycle import (
    Absent,
    AllReady,
    AllStopped,
    ArmTimer,
    BackingOff,
    ChildRestarts,
    Ended,
    Escalate,
    Event,
    Hung,
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
from covey.supervisor.restarts import BackOff, RestartLimit
from covey.supervisor.spec import ChildSpec, RestartType, Strategy, TreeSpec, plan
from covey.supervisor.strategy import decide
from covey.supervisor.tree import Down, Up, new_tree

WINDOW_S = 20.0

children: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    rank=st.integers(0, 2),
    restart=st.sampled_from(RestartType),
    shutdown_s=st.sampled_from([0.0, 2.0, math.inf]),
    limit=st.builds(RestartLimit, restarts=st.integers(0, 4), within_s=st.just(WINDOW_S)),
    is_vital=st.booleans(),
)
reasons = st.sampled_from([Exited(0), Exited(1), Signalled(9), Signalled(15), Lost()])


class Lives(RuleBasedStateMachine):
    """The world around a tree: processes that exist, timers that are armed, and what was promised so far."""

    @initialize(
        specs=st.lists(children, min_size=1, max_size=5), strategy=st.sampled_from(Strategy), seed=st.integers(0, 99)
    )
    def begin(self, specs: Any, strategy: Strategy, seed: int) -> None:
        made = tuple(
            ChildSpec(
                name=f"c{number}",
                role="r",
                start_deadline_s=3.0,
                back_off=BackOff(base_s=0.5, cap_s=4.0, jitter=0.5, stable_s=5.0),
                **spec,
            )
            for number, spec in enumerate(specs)
        )
        self.spec = TreeSpec(children=made, strategy=strategy, limit=RestartLimit(restarts=6, within_s=WINDOW_S))
        self.by_name = {child.name: child for child in made}
        self.tree = new_tree(plan(self.spec), boot="boot", seed=seed)
        self.now = 0.0
        self.timers: list[tuple[float, str]] = []
        self.asked: dict[Incarnation, str] = {}  # incarnation -> child: forks that were asked for
        self.processes: dict[Incarnation, str] = {}  # incarnation -> child: processes that exist
        self.gone: list[tuple[Incarnation, str]] = []
        self.used: set[Incarnation] = set()
        self.paid: list[tuple[float, str]] = []
        self.is_meant_to_run = False
        self.has_stopped = True

    # --- what the world does ---

    @rule()
    def start_all(self) -> None:
        if isinstance(self.tree.course, Down):
            self.is_meant_to_run, self.has_stopped = True, False
        self.feed(StartAll())

    @rule()
    def stop(self) -> None:
        was_down = isinstance(self.tree.course, Down)
        self.is_meant_to_run = False
        self.has_stopped = self.has_stopped and not was_down
        self.feed(StopRequested())

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), fails=st.integers(0, 4))
    def fork(self, data: Any, fails: int) -> None:
        life = data.draw(st.sampled_from(sorted(self.asked)))
        child = self.asked.pop(life)
        if fails == 0:
            self.feed(StartFailed(child=child, incarnation=life, error="EAGAIN"))
        else:
            self.processes[life] = child
            self.feed(Spawned(child=child, incarnation=life, pid=len(self.used)))

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def become_ready(self, data: Any) -> None:
        life = data.draw(st.sampled_from(sorted(self.processes)))
        self.feed(Ready(child=self.processes[life], incarnation=life))

    @precondition(lambda self: self.asked or self.processes)
    @rule()
    def everybody_becomes_ready(self) -> None:
        for life, child in list(self.asked.items()):
            self.processes[life] = self.asked.pop(life)
            self.feed(Spawned(child=child, incarnation=life, pid=len(self.used)))
        for life, child in list(self.processes.items()):
            self.feed(Ready(child=child, incarnation=life))

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), reason=reasons)
    def end(self, data: Any, reason: ExitReason) -> None:
        life = data.draw(st.sampled_from(sorted(self.processes)))
        self.bury(life, reason)

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def hang(self, data: Any) -> None:
        life = data.draw(st.sampled_from(sorted(self.processes)))
        self.feed(Hung(child=self.processes[life], incarnation=life, silent_s=30.0))

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 30.0]))
    def let_time_pass(self, seconds: float) -> None:
        until = self.now + seconds
        while self.timers and min(self.timers)[0] <= until:
            at, child = min(self.timers)
            self.timers.remove((at, child))
            self.now = max(self.now, at)
            self.feed(Tick(child=child))
        self.now = until

    @precondition(lambda self: self.gone)
    @rule(data=st.data(), kind=st.sampled_from(["spawned", "ready", "ended", "hung", "failed"]))
    def hear_stale_news(self, data: Any, kind: Any) -> None:
        life, child = data.draw(st.sampled_from(self.gone))
        news: dict[str, Event] = {
            "spawned": Spawned(child=child, incarnation=life, pid=1),
            "ready": Ready(child=child, incarnation=life),
            "ended": Ended(child=child, incarnation=life, reason=Exited(1)),
            "hung": Hung(child=child, incarnation=life, silent_s=9.0),
            "failed": StartFailed(child=child, incarnation=life, error="late"),
        }
        before = self.tree

        assert decide(before, news[kind], self.now) == (before, ())
        assert decide(before, news[kind], self.now)[0] is before

    def bury(self, life: Incarnation, reason: ExitReason) -> None:
        child = self.processes.pop(life)
        self.feed(Ended(child=child, incarnation=life, reason=reason))
        self.gone = [*self.gone[-9:], (life, child)]

    # --- what the tree does ---

    def feed(self, event: Event) -> None:
        is_free = isinstance(event, Ended) and event.reason == Lost()
        self.tree, actions = decide(self.tree, event, self.now)
        for number, action in enumerate(actions):
            match action:
                case Start():
                    self.check_start(action, later=actions[number:])
                case Stop() | Kill():
                    assert action.incarnation in self.asked or action.incarnation in self.processes
                case ArmTimer():
                    assert action.at >= self.now
                    self.timers.append((action.at, action.child))
                case Report(ChildRestarts(child=child)):
                    assert self.is_meant_to_run
                    if not is_free:
                        self.paid.append((self.now, child))
                case Escalate():
                    self.is_meant_to_run = False
                case AllStopped():
                    assert not self.processes
                    assert not self.asked
                    self.has_stopped = True
                case AllReady():
                    assert self.is_meant_to_run

    def check_start(self, action: Any, later: Any) -> None:
        name, life = action.child, action.incarnation
        assert self.is_meant_to_run, "nobody starts in a tree that stops"
        assert life not in self.used, "a life is lived once"
        assert name not in self.asked.values(), "one fork at a time"
        assert name not in self.processes.values(), "one life at a time"
        self.used.add(life)
        self.asked[life] = name
        is_first = self.tree.child(name).lives == 1
        if is_first or self.spec.strategy is not Strategy.ONE_FOR_ONE:
            rank = self.by_name[name].rank
            below = [child for child in self.spec.children if child.rank < rank]
            unready = [child.name for child in below if not self.is_settled(child.name)]
            assert not unready, f"{name} starts before {unready}"
        if self.by_name[name].restart is RestartType.TEMPORARY:
            assert is_first, "a temporary child has one life"

    def is_settled(self, name: str) -> Any:
        phase = self.tree.child(name).phase
        return not isinstance(phase, Starting | Stopping | BackingOff)

    # --- what always holds ---

    @invariant()
    def processes_are_known(self) -> None:
        if not hasattr(self, "tree"):
            return
        phases = {name: self.tree.child(name).phase for name in self.by_name}
        alive = {name: phase for name, phase in phases.items() if isinstance(phase, Starting | Running | Stopping)}
        known = {phase.incarnation: name for name, phase in alive.items()}
        assert known == {**self.asked, **self.processes}

    @invariant()
    def every_wait_has_a_timer(self) -> None:
        if not hasattr(self, "tree"):
            return
        for name in self.by_name:
            match self.tree.child(name).phase:
                case Starting(deadline=at) | Stopping(deadline=at) if at != math.inf:
                    assert (at, name) in self.timers
                case BackingOff(until=at) if isinstance(self.tree.course, Up):
                    assert (at, name) in self.timers
                case _:
                    continue

    @invariant()
    def ranks_stop_in_reverse(self) -> None:
        if not hasattr(self, "tree") or self.is_meant_to_run:
            return
        phases = {name: self.tree.child(name).phase for name in self.by_name}
        asked_to_stop = [
            self.by_name[name].rank
            for name, phase in phases.items()
            if isinstance(phase, Stopping) and phase.cause is None
        ]
        serving = [self.by_name[name].rank for name, phase in phases.items() if isinstance(phase, Starting | Running)]
        assert not serving or not asked_to_stop or max(serving) < min(asked_to_stop)

    @invariant()
    def limits_hold(self) -> None:
        if not hasattr(self, "tree"):
            return
        recent = [(at, child) for at, child in self.paid if self.now - at < WINDOW_S]
        assert len(recent) <= self.spec.limit.restarts
        for name, spec in self.by_name.items():
            assert sum(child == name for _, child in recent) <= spec.limit.restarts

    @invariant()
    def down_means_down(self) -> None:
        if not hasattr(self, "tree") or not isinstance(self.tree.course, Down):
            return
        assert self.has_stopped
        assert all(self.tree.child(name).phase == Absent() for name in self.by_name)

    def teardown(self) -> None:
        if not hasattr(self, "tree"):
            return
        self.stop()
        for _ in range(20):
            for life in list(self.asked):
                self.processes[life] = self.asked.pop(life)
                self.feed(Spawned(child=self.processes[life], incarnation=life, pid=1))
            for name in self.by_name:
                phase = self.tree.child(name).phase
                if isinstance(phase, Stopping):
                    self.bury(phase.incarnation, Signalled(15))
        assert isinstance(self.tree.course, Down)
        assert self.has_stopped
        self.down_means_down()
        assert not self.processes


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
