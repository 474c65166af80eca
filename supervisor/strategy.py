"""Strategy: what a supervisor does next, as a pure function of its state, an event and the time.

The tree as a whole is on a *course*: down, rising level by level, up, or falling level by level. Rising and falling
count whom they wait for, so an exit costs O(log n) however many children there are. A fall either is final or ends in
a rise (`rise_from`): that is how one_for_all and rest_for_one restart several children in order.

An event that is not meant any more (an older incarnation, a timer that was overtaken, an unknown child) is refused:
it changes nothing and causes nothing.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from ..protocol.ids import Incarnation
from .exits import ExitReason, NeverStarted, Requested, StartTimeout, Unresponsive, is_free, is_normal
from .lifecycle import (
    Absent,
    Action,
    Alive,
    AllReady,
    AllStopped,
    ArmTimer,
    BackingOff,
    ChildEnded,
    ChildGivenUp,
    ChildReady,
    ChildRestarts,
    Complete,
    Ended,
    Escalate,
    Event,
    GivenUp,
    Hung,
    Kill,
    Overgrown,
    Phase,
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
from .restarts import delay_s, roll, spend, was_stable
from .roster import Roster
from .spec import AutoShutdown, ChildSpec, RestartType, Strategy
from .tree import Child, Down, Falling, Rising, Tree, Up

KILL_AGAIN_S = 1.0
"""A killed process that is still there (in the middle of a disk write, say) is killed again this often."""


def decide(tree: Tree, event: Event, now: float) -> tuple[Tree, tuple[Action, ...]]:
    """The state after `event` and what is to be done, in this order. A refused event returns the very same tree."""
    turn = _Turn(tree, now)
    turn.take(event)
    turn.advance()
    return turn.outcome(), tuple(turn.actions)


def is_restarted(restart: RestartType, reason: ExitReason) -> bool:
    """Whether a child that ended without being told to go comes back."""
    if isinstance(reason, Requested):
        return True
    match restart:
        case RestartType.PERMANENT:
            return True
        case RestartType.TRANSIENT:
            return not is_normal(reason)
        case RestartType.TEMPORARY:
            return False
        case _:
            assert_never(restart)


def is_alive(phase: Phase) -> bool:
    """Whether there is a process, or one on its way."""
    return isinstance(phase, Starting | Running | Stopping)


def _holds(phase: Phase) -> bool:
    """Whether the next level has to wait for a child in this phase."""
    return isinstance(phase, Starting | Stopping | BackingOff)


class _Turn:
    """One call of `decide`: the state being changed and the actions so far. Lives and dies inside the call."""

    def __init__(self, tree: Tree, now: float) -> None:
        self.now = now
        self.actions: list[Action] = []
        self._before = tree
        self._plan = tree.plan
        self._children = tree.children
        self._course = tree.course
        self._starts = tree.starts
        self._spent = tree.spent

    def outcome(self) -> Tree:
        before = self._before
        if self._children is before.children and self._course is before.course:
            return before
        return Tree(
            plan=before.plan,
            boot=before.boot,
            seed=before.seed,
            children=self._children,
            course=self._course,
            starts=self._starts,
            spent=self._spent,
        )

    # --- events ---

    def take(self, event: Event) -> None:
        match event:
            case StartAll():
                self._start_all()
            case StopRequested():
                self._stop_all()
            case Tick(child=name):
                self._tick(name)
            case Spawned(child=name, incarnation=life, pid=pid):
                self._spawned(self._place(name, life), pid)
            case Ready(child=name, incarnation=life):
                self._ready(self._place(name, life))
            case Hung(child=name, incarnation=life, silent_s=silent_s):
                self._hung(self._place(name, life), silent_s)
            case Overgrown(child=name, incarnation=life, reason=reason):
                self._overgrown(self._place(name, life), reason)
            case RestartRequested(child=name):
                self._restart_requested(self._plan.place.get(name))
            case Ended(child=name, incarnation=life, reason=reason):
                self._ended(self._place(name, life), reason)
            case StartFailed(child=name, incarnation=life, error=error):
                self._start_failed(self._place(name, life), error)
            case _:
                assert_never(event)

    def _start_all(self) -> None:
        if not isinstance(self._course, Down):
            return
        # A new beginning is no amnesty: what was spent stays spent.
        fresh = [Child(attempt=child.attempt, spent=child.spent) for child in self._children]
        self._children = Roster(fresh)
        self._course = Rising(level=-1, waiting=0)

    def _stop_all(self) -> None:
        match self._course:
            case Down():
                self.actions.append(AllStopped())
            case Falling(rise_from=None):
                return
            case _:
                self._fall_for_good(why=None)

    def _tick(self, name: str) -> None:
        at = self._plan.place.get(name)
        if at is None:
            return
        match self._children[at].phase:
            case Starting(deadline=deadline) as phase if self.now >= deadline:
                self._kill(at, phase, cause=StartTimeout(self._spec(at).start_deadline_s))
            case Stopping(deadline=deadline) as phase if self.now >= deadline:
                self._kill(at, phase, cause=phase.cause)
            case BackingOff(until=until) if self.now >= until and self._is_reached(at):
                self._start(at)
            case _:
                return

    def _spawned(self, at: int | None, pid: int) -> None:
        if at is None:
            return
        phase = self._children[at].phase
        if not isinstance(phase, Starting | Running | Stopping) or phase.pid is not None:
            return
        self._set_phase(at, msgspec.structs.replace(phase, pid=pid))
        # The wish to stop came before there was anybody to tell.
        if isinstance(phase, Stopping):
            self._tell_to_end(at, phase)

    def _ready(self, at: int | None) -> None:
        if at is None or not isinstance(phase := self._children[at].phase, Starting):
            return
        self._set_phase(at, Running(phase.incarnation, self.now, phase.pid))
        self._report(ChildReady(child=self._spec(at).name, incarnation=phase.incarnation))

    def _hung(self, at: int | None, silent_s: float) -> None:
        if at is None or not isinstance(phase := self._children[at].phase, Running):
            return
        self._forgive(at, phase)
        self._kill(at, phase, cause=Unresponsive(silent_s))

    def _overgrown(self, at: int | None, reason: ExitReason) -> None:
        if at is None or not isinstance(phase := self._children[at].phase, Running):
            return
        self._forgive(at, phase)
        self._end(at, phase, cause=reason)

    def _restart_requested(self, at: int | None) -> None:
        if at is None or isinstance(self._course, Down) or self._is_falling(at):
            return
        match self._children[at].phase:
            case Starting() | Running() as phase:
                self._end(at, phase, cause=Requested())
            case Absent() | BackingOff() | GivenUp() if self._is_reached(at):
                self._set_child(at, msgspec.structs.replace(self._children[at], attempt=0))
                self._start(at)
            case _:
                return

    def _start_failed(self, at: int | None, error: str) -> None:
        if at is None:
            return
        phase = self._children[at].phase
        if isinstance(phase, Starting | Stopping) and phase.pid is None:
            self._ended(at, NeverStarted(error))

    def _ended(self, at: int | None, reason: ExitReason) -> None:
        if at is None:
            return
        spec, phase = self._spec(at), self._children[at].phase
        assert isinstance(phase, Starting | Running | Stopping), "only a living child has an incarnation"
        was_asked = isinstance(phase, Stopping) and (phase.cause is None or isinstance(phase.cause, Requested))
        if isinstance(phase, Stopping) and phase.cause is not None:
            reason = phase.cause
        if isinstance(phase, Running):
            self._forgive(at, phase)
        self._report(ChildEnded(child=spec.name, incarnation=phase.incarnation, reason=reason, was_asked=was_asked))
        self._set_child(at, msgspec.structs.replace(self._children[at], last_end=reason))
        if self._is_falling(at):
            # Asked for while its group is replaced anyway: it comes with the group, also if its type forbids that.
            is_due = isinstance(reason, Requested) and self._is_rising_again()
            self._set_phase(at, BackingOff(self.now, 0) if is_due else Absent())
        elif is_restarted(spec.restart, reason):
            self._failed(at, phase.incarnation, reason)
        else:
            self._set_phase(at, Absent())
            self._done(at, reason)

    # --- failures ---

    def _failed(self, at: int, life: Incarnation, reason: ExitReason) -> None:
        """Charge a restart to the child, then to the tree, and do it if both can pay."""
        if is_free(reason):
            self._restart(at, life, reason, attempt=0, wait_s=0.0)
            return
        spec, child = self._spec(at), self._children[at]
        spent = spend(child.spent, spec.limit, self.now)
        if spent is None:
            self._give_up(at, reason)
            return
        tree_spent = spend(self._spent, self._plan.spec.limit, self.now)
        if tree_spent is None:
            self._set_phase(at, Absent())
            self._escalate(at, reason, is_tree_limit=True)
            return
        self._spent = tree_spent
        self._set_child(at, msgspec.structs.replace(child, spent=spent, attempt=child.attempt + 1))
        wait_s = delay_s(spec.back_off, child.attempt, roll(self._before.seed, spec.name, self._starts))
        self._restart(at, life, reason, attempt=child.attempt, wait_s=wait_s)

    def _give_up(self, at: int, reason: ExitReason) -> None:
        spec = self._spec(at)
        self._report(ChildGivenUp(child=spec.name, reason=reason, limit=spec.limit))
        self._set_phase(at, GivenUp(reason))
        if spec.is_vital:
            self._escalate(at, reason, is_tree_limit=False)
        else:
            self._done(at, reason)

    def _escalate(self, at: int, reason: ExitReason, *, is_tree_limit: bool) -> None:
        spec = self._spec(at)
        limit = self._plan.spec.limit if is_tree_limit else spec.limit
        why = Escalate(child=spec.name, reason=reason, limit=limit, is_tree_limit=is_tree_limit)
        self.actions.append(why)
        self._fall_for_good(why=why)

    def _done(self, at: int, reason: ExitReason) -> None:
        """The child ended by itself and does not come back: that may be all the tree was for."""
        spec = self._spec(at)
        if not spec.is_significant:
            return
        is_all = self._plan.spec.auto_shutdown is AutoShutdown.ALL_SIGNIFICANT
        if is_all and any(self._has_future(other) for other in self._plan.significant):
            return
        why = Complete(child=spec.name, reason=reason)
        self.actions.append(why)
        self._fall_for_good(why=why)

    def _restart(self, at: int, life: Incarnation, reason: ExitReason, *, attempt: int, wait_s: float) -> None:
        name, until = self._spec(at).name, self.now + wait_s
        free = is_free(reason)
        self._report(
            ChildRestarts(child=name, ended=life, reason=reason, attempt=attempt, delay_s=wait_s, is_free=free)
        )
        is_alone = self._plan.spec.strategy is Strategy.ONE_FOR_ONE
        if is_alone and wait_s == 0:
            self._start(at)
            return
        self._set_phase(at, BackingOff(until, attempt))
        self.actions.append(ArmTimer(child=name, at=until))
        if not is_alone:
            self._regroup(self._plan.level_of[at])

    def _regroup(self, level: int) -> None:
        """Stop whoever has to go down with a child of `level`, then rise again."""
        is_all = self._plan.spec.strategy is Strategy.ONE_FOR_ALL
        floor, rise_from = (0, 0) if is_all else (level + 1, level)
        match self._course:
            case Falling(rise_from=int(begun)) as falling:
                floor, rise_from = min(floor, falling.floor), min(rise_from, begun)
                self._course = msgspec.structs.replace(falling, floor=floor, rise_from=rise_from)
            case _:
                self._course = Falling(level=len(self._plan.levels), waiting=0, floor=floor, rise_from=rise_from)

    def _forgive(self, at: int, phase: Running) -> None:
        """Start the back-off over if the child ran long enough before it failed."""
        if was_stable(self._spec(at).back_off, phase.since, self.now):
            self._set_child(at, msgspec.structs.replace(self._children[at], attempt=0))

    # --- the course ---

    def advance(self) -> None:
        """Go to the next level as long as nobody has to be waited for."""
        while True:
            match self._course:
                case Rising(waiting=0) as rising:
                    self._rise_to(rising)
                case Falling(waiting=0) as falling:
                    self._fall_to(falling)
                case _:
                    return

    def _rise_to(self, rising: Rising) -> None:
        level = rising.level + 1
        if level == len(self._plan.levels):
            self._course = Up()
            self.actions.append(AllReady())
            return
        held = sum(_holds(self._children[at].phase) for at in self._plan.levels[level])
        self._course = Rising(level=level, waiting=held, floor=rising.floor)
        self._start_level(level, with_absent=level >= rising.floor)

    def _fall_to(self, falling: Falling) -> None:
        level = falling.level - 1
        if level < falling.floor:
            self._land(falling)
            return
        members = [at for at in self._plan.levels[level] if is_alive(self._children[at].phase)]
        self._course = msgspec.structs.replace(falling, level=level, waiting=len(members))
        for at in members:
            self._stop(at)

    def _land(self, falling: Falling) -> None:
        level = falling.rise_from
        if level is None:
            self._course = Down(falling.why)
            self.actions.append(AllStopped())
            return
        # Whoever failed below meanwhile is waited for first.
        below = level - 1
        held = sum(_holds(child.phase) for at, child in enumerate(self._children) if self._plan.level_of[at] <= below)
        self._course = Rising(level=below, waiting=held, floor=falling.floor)

    def _start_level(self, level: int, *, with_absent: bool) -> None:
        for at in self._plan.levels[level]:
            child = self._children[at]
            match child.phase:
                case Absent() if with_absent and self._may_live(at):
                    self._start(at)
                case BackingOff(until=until) if self.now >= until:
                    self._start(at)
                case _:
                    continue

    def _fall_for_good(self, *, why: Escalate | Complete | None) -> None:
        self._course = Falling(level=len(self._plan.levels), waiting=0, why=why)
        for at, child in enumerate(self._children):
            if isinstance(child.phase, BackingOff | GivenUp):
                self._set_phase(at, Absent())

    def _is_falling(self, at: int) -> bool:
        """Whether the child belongs to those that are being stopped."""
        return isinstance(self._course, Falling) and self._plan.level_of[at] >= self._course.floor

    def _may_live(self, at: int) -> bool:
        """Whether it starts with its level. A temporary child has one life, whoever ended it."""
        return self._children[at].lives == 0 or self._spec(at).restart is not RestartType.TEMPORARY

    def _has_future(self, at: int) -> bool:
        """Whether the child is there, or comes (back) by the course the tree is on."""
        phase = self._children[at].phase
        match self._course:
            case Rising(level=level, floor=floor) if isinstance(phase, Absent):
                return self._plan.level_of[at] > max(level, floor - 1) and self._may_live(at)
            case Falling(floor=floor) if isinstance(phase, Absent):
                return self._plan.level_of[at] >= floor and self._may_live(at)
            case _:
                return not isinstance(phase, Absent | GivenUp)

    def _is_rising_again(self) -> bool:
        return isinstance(self._course, Falling) and self._course.rise_from is not None

    def _is_reached(self, at: int) -> bool:
        """Whether the child's level may start."""
        match self._course:
            case Up():
                return True
            case Rising(level=level):
                return self._plan.level_of[at] <= level
            case _:
                return False

    # --- one child ---

    def _start(self, at: int) -> None:
        spec, child = self._spec(at), self._children[at]
        self._starts += 1
        life = Incarnation(f"{self._before.boot}.{self._starts}")
        deadline = self.now + spec.start_deadline_s
        self._set_child(at, msgspec.structs.replace(child, lives=child.lives + 1))
        self._set_phase(at, Starting(life, deadline))
        self.actions.append(Start(child=spec.name, incarnation=life))
        self.actions.append(ArmTimer(child=spec.name, at=deadline))

    def _stop(self, at: int) -> None:
        phase = self._children[at].phase
        if isinstance(phase, Starting | Running):
            self._end(at, phase, cause=None)

    def _end(self, at: int, phase: Starting | Running, *, cause: ExitReason | None) -> None:
        """Ask the child to end, and give it its time."""
        spec = self._spec(at)
        if spec.shutdown_s == 0:
            self._kill(at, phase, cause=cause)
            return
        stopping = Stopping(phase.incarnation, self.now + spec.shutdown_s, phase.pid, cause=cause)
        self._set_phase(at, stopping)
        self._tell_to_end(at, stopping)
        if stopping.deadline != float("inf"):
            self.actions.append(ArmTimer(child=spec.name, at=stopping.deadline))

    def _kill(self, at: int, phase: Alive, *, cause: ExitReason | None) -> None:
        again = self.now + KILL_AGAIN_S
        killed = Stopping(phase.incarnation, again, phase.pid, True, cause)
        self._set_phase(at, killed)
        self._tell_to_end(at, killed)
        self.actions.append(ArmTimer(child=self._spec(at).name, at=again))

    def _tell_to_end(self, at: int, phase: Stopping) -> None:
        name, life = self._spec(at).name, phase.incarnation
        if phase.is_killed:
            self.actions.append(Kill(child=name, incarnation=life))
        else:
            self.actions.append(Stop(child=name, incarnation=life, deadline=phase.deadline))

    def _set_phase(self, at: int, phase: Phase) -> None:
        """Change the phase, and with it the number of children the course waits for."""
        was = self._children[at].phase
        self._set_child(at, msgspec.structs.replace(self._children[at], phase=phase))
        match self._course:
            case Rising(level=level, waiting=waiting) as rising if self._plan.level_of[at] <= level:
                waiting += _holds(phase) - _holds(was)
                self._course = msgspec.structs.replace(rising, waiting=waiting)
            case Falling(level=level, waiting=waiting) as falling if self._plan.level_of[at] >= level:
                waiting += is_alive(phase) - is_alive(was)
                self._course = msgspec.structs.replace(falling, waiting=waiting)
            case _:
                return

    def _set_child(self, at: int, child: Child) -> None:
        self._children = self._children.put(at, child)

    def _place(self, name: str, life: Incarnation) -> int | None:
        """Where the child stands, if this is the life it is living."""
        at = self._plan.place.get(name)
        if at is None:
            return None
        phase = self._children[at].phase
        is_current = isinstance(phase, Starting | Running | Stopping) and phase.incarnation == life
        return at if is_current else None

    def _spec(self, at: int) -> ChildSpec:
        return self._plan.spec.children[at]

    def _report(self, fact: ChildReady | ChildEnded | ChildRestarts | ChildGivenUp) -> None:
        self.actions.append(Report(fact))
