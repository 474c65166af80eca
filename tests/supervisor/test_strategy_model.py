"""Random lives of random trees on a virtual clock: whatever happens, the promises of a supervisor hold."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Final, get_args

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from covey.protocol.ids import Incarnation
from covey.supervisor.exits import Exited, ExitReason, Lost, OverLimit, Requested, Signalled
from covey.supervisor.lifecycle import (
    Absent,
    AllReady,
    AllStopped,
    ArmTimer,
    BackingOff,
    ChildEnded,
    ChildRestarts,
    Complete,
    Ended,
    Escalate,
    Event,
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
from covey.supervisor.restarts import BackOff, RestartLimit
from covey.supervisor.spec import AutoShutdown, ChildSpec, RestartType, Strategy, TreeSpec, plan
from covey.supervisor.strategy import decide, is_restarted
from covey.supervisor.tree import Down, Falling, Up, new_tree

WINDOW_S = 20.0

STEPS: Final = 70
"""Of one run; with all examples more than 10,000 in every run of the suite (`test_the_model_went_far_enough`)."""
EXAMPLES: Final = 300

taken = Counter[str]()
"""What the model did in this process, over all examples."""

children: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    rank=st.integers(0, 2),
    restart=st.sampled_from(RestartType),
    shutdown_s=st.sampled_from([0.0, 2.0, math.inf]),
    limit=st.builds(RestartLimit, restarts=st.integers(0, 4), within_s=st.just(WINDOW_S)),
    is_vital=st.booleans(),
    is_significant=st.booleans(),
)
reasons = st.sampled_from([Exited(0), Exited(1), Signalled(9), Signalled(15), Lost()])


class Lives(RuleBasedStateMachine):
    """The world around a tree: processes that exist, timers that are armed, and what was promised so far."""

    @initialize(
        specs=st.lists(children, min_size=1, max_size=5),
        strategy=st.sampled_from(Strategy),
        auto_shutdown=st.sampled_from(AutoShutdown),
        past=st.dictionaries(st.sampled_from(["c0", "c1", "stranger"]), st.lists(st.integers(-30, 0)).map(tuple)),
        seed=st.integers(0, 99),
    )
    def begin(self, specs: Any, strategy: Strategy, auto_shutdown: AutoShutdown, past: Any, seed: int) -> None:
        made = tuple(
            ChildSpec(
                name=f"c{number}",
                role="r",
                start_deadline_s=3.0,
                back_off=BackOff(base_s=0.5, cap_s=4.0, jitter=0.5, stable_s=5.0),
                **_meaningful(spec, auto_shutdown),
            )
            for number, spec in enumerate(specs)
        )
        self.spec = TreeSpec(
            children=made,
            strategy=strategy,
            limit=RestartLimit(restarts=6, within_s=WINDOW_S),
            auto_shutdown=auto_shutdown,
        )
        self.by_name = {child.name: child for child in made}
        self.tree = new_tree(plan(self.spec), boot="boot", seed=seed, past=past)
        self.now = 0.0
        self.timers: list[tuple[float, str]] = []
        self.asked: dict[Incarnation, str] = {}  # incarnation -> child: forks that were asked for
        self.processes: dict[Incarnation, str] = {}  # incarnation -> child: processes that exist
        self.gone: list[tuple[Incarnation, str]] = []
        self.used: set[Incarnation] = set()
        # What was spent before counts as paid: a new supervisor is no amnesty.
        self.paid = [(float(at), child) for child, spent in past.items() if child in self.by_name for at in spent]
        self.granted: list[tuple[float, str]] = []
        self.wished: set[str] = set()  # who lives because somebody asked for a restart when there was nobody
        self.asked_again: set[str] = set()  # whose restart somebody asked for, and who has not started since
        self.is_meant_to_run = False
        self.has_stopped = True
        self.starts_seen = 0

    # --- what the world does ---

    @precondition(lambda self: isinstance(self.tree.course, Down) or self.starts_seen < 3)
    @rule()
    def start_all(self) -> None:
        if isinstance(self.tree.course, Down):
            self.is_meant_to_run, self.has_stopped = True, False
        self.starts_seen += 1
        self.feed(StartAll())

    @rule(sure=st.integers(0, 4))
    def stop(self, sure: int) -> None:
        """Seldom: a tree that is down has little to show."""
        if sure == 0:
            self.stop_now()

    def stop_now(self) -> None:
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

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def grow(self, data: Any) -> None:
        life = data.draw(st.sampled_from(sorted(self.processes)))
        reason = OverLimit(what="rss_mb", value=2.0, limit=1.0)
        self.feed(Overgrown(child=self.processes[life], incarnation=life, reason=reason))

    @rule(data=st.data())
    def ask_for_a_fresh_one(self, data: Any) -> None:
        name = data.draw(st.sampled_from(sorted(self.by_name)))
        before, phase = self.tree, self.tree.child(name).phase
        asked_before = name in self.asked_again
        self.asked_again.add(name)
        self.feed(RestartRequested(child=name))
        if self.tree is before:
            if not asked_before:
                self.asked_again.discard(name)
            is_going = isinstance(phase, Stopping) or not self.is_meant_to_run
            is_waiting = not isinstance(self.tree.course, Up) and not isinstance(phase, Starting | Running)
            assert is_going or is_waiting or self.is_regrouping(name), "only who goes or waits anyway is not restarted"

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
        taken[type(event).__name__] += 1
        self.tree, actions = decide(self.tree, event, self.now)
        for action in actions:
            match action:
                case Start():
                    self.check_start(action, is_wish=isinstance(event, RestartRequested))
                case Stop() | Kill():
                    assert action.incarnation in self.asked or action.incarnation in self.processes
                case ArmTimer():
                    assert action.at >= self.now
                    self.timers.append((action.at, action.child))
                case Report(ChildEnded(child=child, reason=reason)):
                    self.last_end = child, reason
                case Report(ChildRestarts(child=child, ended=ended, reason=reason, is_free=is_free)):
                    assert self.is_meant_to_run
                    assert ended in self.used
                    assert (child, reason) == self.last_end
                    assert is_free == (reason in (Lost(), Requested()))
                    assert is_restarted(self.by_name[child].restart, reason)
                    if not is_free:
                        self.paid.append((self.now, child))
                        self.granted.append((self.now, child))
                case Escalate(child=child, is_tree_limit=is_tree_limit):
                    assert self.is_meant_to_run
                    self.check_escalation(child, is_tree_limit)
                    self.is_meant_to_run = False
                case Complete(child=child, reason=reason):
                    assert self.is_meant_to_run
                    self.check_completion(child, reason)
                    self.is_meant_to_run = False
                case AllStopped():
                    assert not self.processes
                    assert not self.asked
                    self.has_stopped = True
                case AllReady():
                    assert self.is_meant_to_run

    def check_start(self, action: Any, *, is_wish: bool) -> None:
        name, life = action.child, action.incarnation
        assert self.is_meant_to_run, "nobody starts in a tree that stops"
        assert life not in self.used, "a life is lived once"
        assert name not in self.asked.values(), "one fork at a time"
        assert name not in self.processes.values(), "one life at a time"
        self.used.add(life)
        self.asked[life] = name
        is_first = self.tree.child(name).lives == 1
        # One that was absent is started when somebody wants it, and nobody waits for it who did not before.
        (self.wished.add if is_wish else self.wished.discard)(name)
        if not is_wish and (is_first or self.spec.strategy is not Strategy.ONE_FOR_ONE):
            rank = self.by_name[name].rank
            below = [child for child in self.spec.children if child.rank < rank]
            unready = {child.name for child in below if not self.is_settled(child.name)} - self.wished
            assert not unready, f"{name} starts before {unready}"
        if self.by_name[name].restart is RestartType.TEMPORARY and name not in self.asked_again:
            assert is_first, "a temporary child has one life"
        self.asked_again.discard(name)

    def check_escalation(self, name: str, is_tree_limit: bool) -> None:
        limit = self.spec.limit if is_tree_limit else self.by_name[name].limit
        spent = [child for at, child in self.paid if self.now - at < WINDOW_S and (is_tree_limit or child == name)]
        assert len(spent) >= limit.restarts, "only a limit that is used up is a reason to give up"
        assert is_tree_limit or self.by_name[name].is_vital

    def check_completion(self, name: str, reason: ExitReason) -> None:
        spec = self.by_name[name]
        assert spec.is_significant
        assert (name, reason) == self.last_end
        assert not is_restarted(spec.restart, reason) or not spec.is_vital, "it could have come back"
        if self.spec.auto_shutdown is AutoShutdown.ALL_SIGNIFICANT:
            others = [child.name for child in self.spec.children if child.is_significant and child.name != name]
            living = [*self.asked.values(), *self.processes.values()]
            assert not set(others) & set(living), "one of them is there"
        else:
            assert self.spec.auto_shutdown is AutoShutdown.ANY_SIGNIFICANT

    def is_regrouping(self, name: str) -> bool:
        return isinstance(self.tree.course, Falling) and self.tree.course.rise_from is not None

    def is_settled(self, name: str) -> Any:
        phase = self.tree.child(name).phase
        return not isinstance(phase, Starting | Stopping | BackingOff)

    # --- what always holds ---

    @invariant()
    def steps_are_counted(self) -> None:
        taken["steps"] += 1

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
        granted = [(at, child) for at, child in self.granted if self.now - at < WINDOW_S]
        assert not granted or len(recent) <= self.spec.limit.restarts
        for name, spec in self.by_name.items():
            mine = sum(child == name for _, child in recent)
            assert mine <= spec.limit.restarts or all(child != name for _, child in granted)

    @invariant()
    def nobody_is_forgotten(self) -> None:
        """In a tree that is up, whoever is not there has a reason not to be."""
        if not hasattr(self, "tree") or not isinstance(self.tree.course, Up):
            return
        for name, spec in self.by_name.items():
            if isinstance(self.tree.child(name).phase, Absent):
                assert spec.restart is not RestartType.PERMANENT
                assert self.tree.child(name).last_end is not None

    @invariant()
    def down_means_down(self) -> None:
        if not hasattr(self, "tree") or not isinstance(self.tree.course, Down):
            return
        assert self.has_stopped
        assert all(self.tree.child(name).phase == Absent() for name in self.by_name)

    def teardown(self) -> None:
        if not hasattr(self, "tree"):
            return
        self.stop_now()
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


def _meaningful(spec: dict[str, Any], auto_shutdown: AutoShutdown) -> dict[str, Any]:
    """What `plan` accepts: a permanent child is never significant, and nobody is if that cannot mean anything."""
    is_possible = spec["restart"] is not RestartType.PERMANENT and auto_shutdown is not AutoShutdown.NEVER
    return {**spec, "is_significant": spec["is_significant"] and is_possible}


TestLives = Lives.TestCase
TestLives.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    print_blob=True,
    # A failure is made small, not explained: that would take minutes.
    phases=[phase for phase in Phase if phase is not Phase.explain],
)


def test_the_model_went_far_enough() -> None:
    """Runs behind the model, in the same process: all kinds of events came, and 10,000 in all."""
    if not taken:
        pytest.skip("the model did not run before this test")

    assert taken["steps"] >= 10_000
    assert taken.keys() - {"steps"} == {event.__name__ for event in get_args(Event)}
