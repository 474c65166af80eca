from __future__ import annotations

import math
import sys
from typing import Any

import pytest

from covey.protocol.ids import Incarnation
from covey.supervisor.exits import (
    Exited,
    ExitReason,
    Lost,
    NeverStarted,
    OverLimit,
    Requested,
    Signalled,
    StartTimeout,
    Unresponsive,
)
from covey.supervisor.lifecycle import (
    Absent,
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
from covey.supervisor.roster import Roster
from covey.supervisor.spec import AutoShutdown, ChildSpec, RestartType, Strategy, TreeSpec, plan
from covey.supervisor.strategy import KILL_AGAIN_S, decide
from covey.supervisor.tree import Down, Falling, Rising, Up, new_tree

PERMANENT, TRANSIENT, TEMPORARY = RestartType.PERMANENT, RestartType.TRANSIENT, RestartType.TEMPORARY
ONE_FOR_ONE, ONE_FOR_ALL, REST_FOR_ONE = Strategy.ONE_FOR_ONE, Strategy.ONE_FOR_ALL, Strategy.REST_FOR_ONE
ANY, ALL = AutoShutdown.ANY_SIGNIFICANT, AutoShutdown.ALL_SIGNIFICANT

DONE, CRASH, KILLED = Exited(0), Exited(1), Signalled(9)
OVERGROWN = OverLimit(what="rss_mb", value=2.0, limit=1.0)
STEADY = BackOff(base_s=1.0, cap_s=8.0, jitter=0.0, stable_s=100.0)


class World:
    """A tree, a clock, and what was asked of the world since the last look."""

    def __init__(
        self,
        ranks: dict[str, int],
        strategy: Strategy = ONE_FOR_ONE,
        *,
        limit: Any = None,
        special: Any = None,
        auto_shutdown: Any = AutoShutdown.NEVER,
        past: Any = None,
        **common: Any,
    ) -> None:
        common = {"back_off": STEADY, **common}
        children = tuple(
            ChildSpec(**{"name": name, "role": "r", "rank": rank, **common, **(special or {}).get(name, {})})
            for name, rank in ranks.items()
        )
        spec = TreeSpec(
            children=children,
            strategy=strategy,
            limit=limit or RestartLimit(restarts=30, within_s=60.0),
            auto_shutdown=auto_shutdown,
        )
        self.tree = new_tree(plan(spec), boot="boot", seed=1, past=past or {})
        self.now = 1000.0

    def feed(self, event: Event) -> list[object]:
        self.tree, actions = decide(self.tree, event, self.now)
        return list(actions)

    def phase(self, child: str) -> Any:
        return self.tree.child(child).phase

    def life(self, child: str) -> Any:
        return self.phase(child).incarnation

    def ready(self, *children: str) -> list[object]:
        return [act for child in children for act in self.feed(Ready(child=child, incarnation=self.life(child)))]

    def spawned(self, *children: str) -> list[object]:
        return [
            act
            for pid, child in enumerate(children, 100)
            for act in self.feed(Spawned(child=child, incarnation=self.life(child), pid=pid))
        ]

    def end(self, child: str, reason: ExitReason = CRASH) -> list[object]:
        return self.feed(Ended(child=child, incarnation=self.life(child), reason=reason))

    def end_as(self, child: str, reason: ExitReason) -> list[object]:
        """The way it comes to that reason; returns what is asked of the world after the end."""
        life = self.life(child)
        match reason:
            case Unresponsive(silent_s=silent_s):
                self.feed(Hung(child=child, incarnation=life, silent_s=silent_s))
                return self.end(child, KILLED)
            case OverLimit():
                assert names(self.feed(Overgrown(child=child, incarnation=life, reason=reason)), Stop) == [child]
                return self.end(child, DONE)
            case Requested():
                assert names(self.feed(RestartRequested(child=child)), Stop) == [child]
                return self.end(child, DONE)
            case _:
                return self.end(child, reason)

    def without_auto_shutdown(self, child: str) -> None:
        """Let a significant child be done, while another one is left."""
        assert names(self.end(child, DONE), Complete) == []

    def tick(self, child: str, after_s: float) -> list[object]:
        self.now += after_s
        return self.feed(Tick(child=child))

    def up(self) -> World:
        """Everybody spawned and ready."""
        self.feed(StartAll())
        while isinstance(self.tree.course, Rising):
            for name in starting(self):
                self.spawned(name)
                self.ready(name)
        return self


def starting(world: World) -> list[str]:
    return [name for name in world.tree.plan.place if isinstance(world.phase(name), Starting)]


def follow(world: World, actions: list[object]) -> tuple[str, str]:
    """Let the world do what it is asked to until there is nothing left; who was stopped, and who was started."""
    stopped, started = "".join(names(actions, Stop)), "".join(names(actions, Start))
    while actions:
        actions = [
            act
            for name in world.tree.plan.place
            for act in (
                world.end(name, DONE)
                if isinstance(world.phase(name), Stopping)
                else world.spawned(name) + world.ready(name)
                if isinstance(world.phase(name), Starting)
                else []
            )
        ]
        stopped += "".join(names(actions, Stop))
        started += "".join(names(actions, Start))
    return stopped, started


def names(actions: Any, kind: Any) -> list[str]:
    return [action.child for action in actions if isinstance(action, kind)]


def facts(actions: Any, kind: Any) -> Any:
    return [action.fact for action in actions if isinstance(action, Report) and isinstance(action.fact, kind)]


# --- OTP's matrix ----------------------------------------------------------------------------------------------------

REASONS: dict[str, ExitReason] = {
    "done": DONE,
    "crash": CRASH,
    "killed": KILLED,
    "unresponsive": Unresponsive(30.0),
    "start timeout": StartTimeout(10.0),
    "never started": NeverStarted("EAGAIN"),
    "over its limit": OVERGROWN,
    "lost": Lost(),
    "asked for": Requested(),
}

WHO_COMES_BACK = {
    # restart type: the reasons after which a child comes back
    PERMANENT: set(REASONS),
    TRANSIENT: set(REASONS) - {"done"},
    TEMPORARY: {"asked for"},
}

WHO_GOES_ALONG = {
    # strategy: who is stopped (in order) and who starts (in order) when b of a, b, c comes back
    ONE_FOR_ONE: ("", "b"),
    ONE_FOR_ALL: ("ca", "abc"),
    REST_FOR_ONE: ("c", "bc"),
}

MATRIX = [
    pytest.param(strategy, restart, reason, id=f"{strategy}, {restart}, {reason}")
    for strategy in Strategy
    for restart in RestartType
    for reason in REASONS
]


@pytest.mark.parametrize(("strategy", "restart", "reason"), MATRIX)
def test_who_comes_back_is_as_in_otp(strategy: Strategy, restart: RestartType, reason: str) -> None:
    world = World({"a": 0, "b": 1, "c": 2}, strategy, special={"b": {"restart": restart}}).up()
    is_back = reason in WHO_COMES_BACK[restart]

    actions = world.end_as("b", REASONS[reason])
    stopped, started = follow(world, actions)

    assert (stopped, started) == (WHO_GOES_ALONG[strategy] if is_back else ("", ""))
    assert isinstance(world.tree.course, Up)
    assert isinstance(world.phase("b"), Running if is_back else Absent)
    assert world.tree.child("b").last_end == REASONS[reason]
    is_charged = is_back and reason not in ("lost", "asked for")
    assert len(world.tree.child("b").spent) == len(world.tree.spent) == int(is_charged)


AUTO_SHUTDOWN = [
    # auto_shutdown, restart type of b (significant), how it ends, whether c (significant) has ended before, goes down
    (ANY, TRANSIENT, "done", False, True),
    (ANY, TRANSIENT, "crash", False, False),
    (ANY, TRANSIENT, "over its limit", False, False),
    (ANY, TRANSIENT, "lost", False, False),
    (ANY, TRANSIENT, "asked for", False, False),
    (ANY, TEMPORARY, "done", False, True),
    (ANY, TEMPORARY, "crash", False, True),
    (ANY, TEMPORARY, "killed", False, True),
    (ANY, TEMPORARY, "asked for", False, False),
    (ALL, TRANSIENT, "done", False, False),
    (ALL, TRANSIENT, "crash", True, False),
    (ALL, TRANSIENT, "done", True, True),
    (ALL, TEMPORARY, "done", False, False),
    (ALL, TEMPORARY, "crash", False, False),
    (ALL, TEMPORARY, "crash", True, True),
    (ALL, TEMPORARY, "asked for", True, False),
]


@pytest.mark.parametrize(
    ("auto", "restart", "reason", "is_last", "goes_down"),
    [
        pytest.param(*row, id=f"{row[0]}, {row[1]}, {row[2]}{', the last one' if row[3] else ''}")
        for row in AUTO_SHUTDOWN
    ],
)
def test_the_end_of_significant_children_takes_the_tree_down_as_in_otp(
    auto: AutoShutdown, restart: RestartType, reason: str, is_last: bool, goes_down: bool
) -> None:
    special = {"b": {"restart": restart, "is_significant": True}, "c": {"restart": TRANSIENT, "is_significant": True}}
    world = World({"a": 0, "b": 1, "c": 2}, special=special, auto_shutdown=auto).up()
    if is_last:
        world.without_auto_shutdown("c")

    actions = world.end_as("b", REASONS[reason])

    assert [act for act in actions if isinstance(act, Complete)] == (
        [Complete(child="b", reason=REASONS[reason])] if goes_down else []
    )
    follow(world, actions)
    assert isinstance(world.tree.course, Down if goes_down else Up)
    if isinstance(world.tree.course, Down):
        assert world.tree.course.why == Complete(child="b", reason=REASONS[reason])


def test_a_temporary_child_stopped_for_anothers_sake_does_not_come_back() -> None:
    world = World({"a": 0, "t": 1}, ONE_FOR_ALL, special={"t": {"restart": TEMPORARY}}).up()

    world.end("a")
    world.end("t", DONE)

    assert isinstance(world.phase("a"), Starting)
    assert world.phase("t") == Absent()
    assert AllReady() in world.ready("a")


def test_a_finished_transient_child_comes_back_when_all_do() -> None:
    world = World({"a": 0, "t": 1}, ONE_FOR_ALL, special={"t": {"restart": TRANSIENT}}).up()
    world.end("t", DONE)

    world.end("a")
    world.ready("a")

    assert isinstance(world.phase("t"), Starting)


def test_siblings_of_the_same_rank_do_not_go_down_in_rest_for_one() -> None:
    world = World({"a": 0, "b": 0, "f": 0, "c": 1}, REST_FOR_ONE, special={"f": {"restart": TRANSIENT}}).up()
    world.end("f", DONE)

    assert names(world.end("a"), Stop) == ["c"]
    assert names(world.end("c", DONE), Start) == ["a"]

    assert isinstance(world.phase("b"), Running)
    assert world.phase("f") == Absent()
    assert names(world.ready("a"), Start) == ["c"]


def test_a_lower_rank_that_fails_during_a_regroup_widens_it() -> None:
    world = World({"a": 0, "b": 1, "c": 2}, REST_FOR_ONE).up()
    world.end("b")

    world.end("a")

    assert names(world.end("c", DONE), Start) == ["a"]
    assert names(world.ready("a"), Start) == ["b"]
    assert names(world.ready("b"), Start) == ["c"]
    assert AllReady() in world.ready("c")


def test_a_regroup_waits_for_a_lower_rank_that_is_being_killed() -> None:
    world = World({"a": 0, "b": 1}, REST_FOR_ONE).up()
    world.feed(Hung(child="a", incarnation=world.life("a"), silent_s=30.0))

    assert names(world.end("b"), Start) == []

    assert names(world.end("a", KILLED), Start) == ["a"]
    assert names(world.ready("a"), Start) == ["b"]


def test_a_regroup_waits_for_lower_ranks_and_not_for_its_own() -> None:
    world = World({"t": 0, "b": 1, "c": 1}, REST_FOR_ONE, special={"t": {"restart": TEMPORARY}}).up()
    world.feed(Hung(child="t", incarnation=world.life("t"), silent_s=30.0))
    world.end("b")
    world.feed(Hung(child="c", incarnation=world.life("c"), silent_s=30.0))

    assert names(world.end("t", KILLED), Start) == ["b"]


def test_a_group_that_failed_before_comes_back_after_the_back_off_and_in_order() -> None:
    world = World({"a": 0, "b": 1}, ONE_FOR_ALL).up()
    world.end("b")
    world.end("a", DONE)
    world.ready("a")
    world.ready("b")

    world.end("b")
    world.end("a", DONE)
    assert isinstance(world.phase("a"), Starting)
    assert names(world.tick("b", 1.0), Start) == []

    assert names(world.ready("a"), Start) == ["b"]


def test_a_back_off_longer_than_the_rise_is_waited_for() -> None:
    world = World({"a": 0, "b": 1, "c": 2}, ONE_FOR_ALL).up()
    for _ in range(2):
        world.end("b")
        world.end("c", DONE)
        world.end("a", DONE)
        world.ready("a")
        if isinstance(world.phase("b"), Starting):
            world.ready("b")
            world.ready("c")

    assert isinstance(world.phase("b"), BackingOff)
    assert world.phase("c") == Absent()
    assert names(world.tick("b", 1.0), Start) == ["b"]
    assert names(world.ready("b"), Start) == ["c"]


# --- up --------------------------------------------------------------------------------------------------------------


def test_ranks_start_in_order_and_a_rank_at_once() -> None:
    world = World({"worker-1": 2, "ledger": 1, "worker-2": 2, "broker": 1})

    assert names(world.feed(StartAll()), Start) == ["ledger", "broker"]
    assert names(world.ready("broker"), Start) == []
    assert names(world.ready("ledger"), Start) == ["worker-1", "worker-2"]
    assert AllReady() not in world.ready("worker-2")
    assert AllReady() in world.ready("worker-1")


def test_a_lower_rank_that_fails_again_holds_the_next_one_up() -> None:
    world = World({"a": 0, "b": 1, "c": 2})
    world.feed(StartAll())
    world.ready("a")
    world.end("a")

    assert names(world.ready("b"), Start) == []

    assert names(world.ready("a"), Start) == ["c"]


def test_a_child_that_is_done_or_given_up_holds_nobody_up() -> None:
    special = {"t": {"restart": TRANSIENT}, "g": {"is_vital": False, "limit": RestartLimit(restarts=0)}}
    world = World({"t": 0, "g": 0, "b": 1}, special=special)
    world.feed(StartAll())

    assert names(world.end("t", DONE), Start) == []
    assert names(world.end("g"), Start) == ["b"]


def test_a_tree_without_children_is_ready_and_stopped_at_once() -> None:
    world = World({})

    assert world.feed(StartAll()) == [AllReady()]
    assert world.feed(StopRequested()) == [AllStopped()]


def test_every_life_has_an_incarnation_of_its_own_even_after_a_stop() -> None:
    world, lives = World({"a": 0}).up(), set()
    for _ in range(3):
        lives.add(world.life("a"))
        world.end("a")
        world.tick("a", 10.0)
    world.feed(StopRequested())
    world.end("a")
    world.feed(StartAll())

    assert len(lives | {world.life("a")}) == 4
    assert all(life.startswith("boot.") for life in lives)


def test_ready_may_come_before_the_word_that_there_is_a_process() -> None:
    world = World({"a": 0})
    world.feed(StartAll())
    world.ready("a")

    world.spawned("a")

    assert world.phase("a") == Running(Incarnation("boot.1"), 1000.0, 100)


def test_the_start_is_under_a_deadline_and_a_late_child_is_killed_then_restarted() -> None:
    world = World({"a": 0}, start_deadline_s=10.0)
    actions = world.feed(StartAll())
    world.spawned("a")

    assert ArmTimer(child="a", at=1010.0) in actions
    assert world.tick("a", 9.9) == []
    assert names(world.tick("a", 0.1), Kill) == ["a"]
    actions = world.end("a", KILLED)
    assert facts(actions, ChildEnded)[0].reason == StartTimeout(10.0)
    assert not facts(actions, ChildEnded)[0].was_asked
    assert names(actions, Start) == ["a"]


def test_a_start_that_failed_counts_as_a_failure() -> None:
    world = World({"a": 0}, limit=RestartLimit(restarts=1), special={"a": {"limit": RestartLimit(restarts=1)}})
    world.feed(StartAll())

    world.feed(StartFailed(child="a", incarnation=Incarnation("boot.1"), error="EAGAIN"))
    actions = world.feed(StartFailed(child="a", incarnation=Incarnation("boot.2"), error="EAGAIN"))

    assert facts(actions, ChildGivenUp)[0].reason == NeverStarted("EAGAIN")


# --- restarts --------------------------------------------------------------------------------------------------------


def test_the_first_restart_is_immediate_then_the_wait_doubles_up_to_the_cap() -> None:
    world, waits_s = World({"a": 0}).up(), []
    for _ in range(6):
        waits_s.append(facts(world.end("a"), ChildRestarts)[0].delay_s)
        if isinstance(world.phase("a"), BackingOff):
            assert world.tick("a", waits_s[-1] - 0.01) == []
            assert names(world.tick("a", 0.02), Start) == ["a"]

    assert waits_s == [0.0, 1.0, 2.0, 4.0, 8.0, 8.0]


@pytest.mark.parametrize(
    ("ran_s", "delay_s"), [pytest.param(99.9, 1.0, id="short"), pytest.param(100.0, 0.0, id="long")]
)
@pytest.mark.parametrize("how", ["ended", "hung"])
def test_a_stable_time_resets_the_back_off(ran_s: float, delay_s: float, how: str) -> None:
    world = World({"a": 0}).up()
    world.end("a")
    world.ready("a")
    world.now += ran_s

    if how == "hung":
        world.feed(Hung(child="a", incarnation=world.life("a"), silent_s=30.0))

    assert facts(world.end("a"), ChildRestarts)[0].delay_s == delay_s


def test_a_child_that_backs_off_disturbs_nobody_in_one_for_one() -> None:
    world = World({"a": 0, "b": 1}).up()
    world.end("a")
    world.ready("a")

    actions = world.end("a")

    assert isinstance(world.phase("a"), BackingOff)
    assert names(actions, Stop) == []
    assert isinstance(world.phase("b"), Running)
    assert isinstance(world.tree.course, Up)


def test_waits_are_jittered_by_the_seed_and_differ_between_siblings() -> None:
    jittered = BackOff(base_s=1.0, cap_s=8.0, jitter=0.5, stable_s=100.0)
    world, waits_s = World({"a": 0, "b": 0}, back_off=jittered).up(), []
    for name in "ab":
        world.end(name)
        world.ready(name)
    for name in "ab":
        waits_s.append(facts(world.end(name), ChildRestarts)[0].delay_s)

    assert waits_s[0] != waits_s[1]
    assert all(0.5 <= wait_s <= 1.0 for wait_s in waits_s)


def test_a_child_that_used_its_limit_up_is_given_up_and_the_tree_stops_itself() -> None:
    world = World({"a": 0, "b": 1}, special={"a": {"limit": RestartLimit(restarts=1)}}).up()
    world.end("a")
    world.ready("a")

    actions = world.end("a", KILLED)

    why = Escalate(child="a", reason=KILLED, limit=RestartLimit(restarts=1), is_tree_limit=False)
    assert why in actions
    assert names(actions, Stop) == ["b"]
    assert world.end("b", DONE)[-1] == AllStopped()
    assert world.tree.course == Down(why)


def test_one_child_cannot_spend_its_siblings_restarts() -> None:
    special = {"bad": {"limit": RestartLimit(restarts=3), "is_vital": False}}
    world = World({"bad": 0, "good": 0}, limit=RestartLimit(restarts=10, within_s=60.0), special=special).up()
    while not isinstance(world.phase("bad"), GivenUp):
        if isinstance(world.phase("bad"), BackingOff):
            world.tick("bad", 8.0)
        world.end("bad")

    actions = world.end("good")

    assert names(actions, Start) == ["good"]
    assert isinstance(world.tree.course, Up)


def test_the_trees_limit_holds_over_all_children() -> None:
    limit = RestartLimit(restarts=2, within_s=60.0)
    own = {"limit": RestartLimit(restarts=2, within_s=61.0)}
    world = World({"a": 0, "b": 0, "c": 0}, limit=limit, special=dict.fromkeys("abc", own)).up()
    world.end("a")
    world.end("b")

    actions = world.end("c")

    assert Escalate(child="c", reason=CRASH, limit=limit, is_tree_limit=True) in actions
    assert isinstance(world.tree.course, Falling)
    assert world.phase("c") == Absent()


def test_restarts_are_forgotten_after_the_window() -> None:
    limit = RestartLimit(restarts=1, within_s=60.0)
    world = World({"a": 0}, limit=limit, special={"a": {"limit": limit, "back_off": BackOff(stable_s=0.0)}}).up()
    world.end("a")
    world.ready("a")
    world.now += 60.0

    assert names(world.end("a"), Start) == ["a"]


def test_stopping_and_starting_the_tree_is_no_amnesty() -> None:
    world = World({"a": 0}, special={"a": {"limit": RestartLimit(restarts=1)}}).up()
    world.end("a")
    world.feed(StopRequested())
    world.end("a")
    world.feed(StartAll())

    assert facts(world.end("a"), ChildGivenUp)


def test_a_lost_child_comes_back_at_once_and_no_budget_pays() -> None:
    limit = RestartLimit(restarts=0, within_s=60.0)
    world = World({"a": 0}, limit=limit, special={"a": {"limit": limit}}).up()

    for _ in range(5):
        assert names(world.end("a", Lost()), Start) == ["a"]

    assert world.tree.child("a").restarts == 5


def test_a_hung_child_is_killed_and_its_end_is_told_by_its_cause() -> None:
    world = World({"a": 0}).up()

    actions = world.feed(Hung(child="a", incarnation=world.life("a"), silent_s=31.0))

    assert names(actions, Kill) == ["a"]
    assert facts(world.end("a", KILLED), ChildEnded)[0].reason == Unresponsive(31.0)
    assert isinstance(world.phase("a"), Starting)


# --- down ------------------------------------------------------------------------------------------------------------


def test_ranks_stop_in_reverse_and_a_rank_at_once() -> None:
    world = World({"a": 0, "b": 1, "c": 1}).up()

    assert names(world.feed(StopRequested()), Stop) == ["b", "c"]
    assert world.end("b", DONE)[1:] == []
    assert names(world.end("c", DONE), Stop) == ["a"]
    assert world.end("a", DONE)[-1] == AllStopped()
    assert world.tree.course == Down()


def test_a_child_that_does_not_stop_is_killed_and_killed_again() -> None:
    world = World({"a": 0}, shutdown_s=5.0).up()
    actions = world.feed(StopRequested())

    assert Stop(child="a", incarnation=Incarnation("boot.1"), deadline=1005.0) in actions
    assert ArmTimer(child="a", at=1005.0) in actions
    assert world.tick("a", 4.9) == []
    assert names(world.tick("a", 0.1), Kill) == ["a"]
    assert world.tick("a", KILL_AGAIN_S - 0.1) == []
    assert names(world.tick("a", 0.1), Kill) == ["a"]
    ended = facts(world.end("a", KILLED), ChildEnded)[0]
    assert (ended.reason, ended.was_asked) == (KILLED, True)


def test_no_shutdown_time_kills_at_once_and_endless_time_never() -> None:
    world = World(
        {"brutal": 0, "patient": 0}, special={"brutal": {"shutdown_s": 0}, "patient": {"shutdown_s": math.inf}}
    ).up()

    actions = world.feed(StopRequested())

    assert names(actions, Kill) == ["brutal"]
    assert names(actions, Stop) == ["patient"]
    assert names(actions, ArmTimer) == ["brutal"]
    assert world.tick("patient", 1e9) == []


def test_a_stop_reaches_a_child_that_is_being_started_once_there_is_one() -> None:
    world = World({"a": 0})
    world.feed(StartAll())
    assert names(world.feed(StopRequested()), Stop) == ["a"]

    assert names(world.spawned("a"), Stop) == ["a"]
    assert world.ready("a") == []
    assert AllStopped() in world.end("a", Signalled(15))


def test_a_kill_reaches_a_child_whose_fork_was_slow() -> None:
    world = World({"a": 0}, shutdown_s=5.0)
    world.feed(StartAll())
    world.feed(StopRequested())
    world.tick("a", 5.0)

    assert names(world.spawned("a"), Kill) == ["a"]


def test_a_start_that_fails_while_stopping_is_the_end() -> None:
    world = World({"a": 0})
    world.feed(StartAll())
    world.feed(StopRequested())

    assert AllStopped() in world.feed(StartFailed(child="a", incarnation=Incarnation("boot.1"), error="EAGAIN"))
    assert world.phase("a") == Absent()


def test_a_stop_ends_waiting_children_and_given_up_ones() -> None:
    special = {"g": {"limit": RestartLimit(restarts=0), "is_vital": False}}
    world = World({"a": 0, "g": 0}, special=special).up()
    world.end("g")
    world.end("a")
    world.end("a")
    assert isinstance(world.phase("a"), BackingOff)

    assert world.feed(StopRequested()) == [AllStopped()]

    assert world.phase("a") == world.phase("g") == Absent()
    assert world.tick("a", 100.0) == []


def test_nobody_comes_back_while_the_tree_stops() -> None:
    world = World({"a": 0, "b": 1}).up()
    world.feed(StopRequested())

    assert names(world.end("a"), Start) == []

    assert world.phase("a") == Absent()
    assert world.end("b", DONE)[-1] == AllStopped()


def test_a_stop_takes_over_a_regroup() -> None:
    world = World({"a": 0, "b": 1, "c": 2}, ONE_FOR_ALL).up()
    world.end("a")

    assert world.feed(StopRequested()) == []

    assert names(world.end("c", DONE), Stop) == ["b"]
    assert world.end("b", DONE)[-1] == AllStopped()


def test_an_escalation_takes_over_a_regroup() -> None:
    special = {"a": {"limit": RestartLimit(restarts=0)}}
    world = World({"a": 0, "b": 1, "c": 2}, REST_FOR_ONE, special=special).up()
    world.end("b")

    assert names(world.end("a"), Escalate) == ["a"]

    assert world.end("c", DONE)[-1] == AllStopped()


# --- what is told, and what is remembered ----------------------------------------------------------------------------


def test_a_child_that_serves_is_reported_with_its_life() -> None:
    world = World({"a": 0})
    world.feed(StartAll())
    life = world.life("a")

    assert facts(world.ready("a"), ChildReady) == [ChildReady(child="a", incarnation=life)]


def test_a_back_off_has_a_timer_at_its_end() -> None:
    world = World({"a": 0}).up()
    world.end("a")
    world.ready("a")

    actions = world.end("a")

    assert [act for act in actions if isinstance(act, ArmTimer)] == [ArmTimer(child="a", at=world.now + 1.0)]


def test_a_tree_that_comes_up_again_begins_anew_and_only_remembers_what_was_spent() -> None:
    world = World({"a": 0, "t": 0}, special={"t": {"restart": TEMPORARY}}).up()
    world.end("a")
    world.ready("a")
    assert world.tree.child("a").restarts == 1
    follow(world, world.feed(StopRequested()))

    world.feed(StartAll())

    assert isinstance(world.phase("t"), Starting), "also a temporary child has a life in each"
    assert world.tree.child("a").restarts == 0
    assert len(world.tree.child("a").spent) == 1


# --- a fresh one, please ---------------------------------------------------------------------------------------------


def test_a_child_that_is_replaced_gets_its_time_and_is_then_killed() -> None:
    world = World({"a": 0}, shutdown_s=2.0).up()
    life = world.life("a")

    assert world.feed(RestartRequested(child="a"))[0] == Stop(child="a", incarnation=life, deadline=1002.0)
    assert names(world.tick("a", 1.9), Kill) == []
    assert names(world.tick("a", 0.1), Kill) == ["a"]

    [ended] = facts(actions := world.end("a", KILLED), ChildEnded)
    assert (ended.reason, ended.was_asked) == (Requested(), True)
    [restarts] = facts(actions, ChildRestarts)
    assert (restarts.ended, restarts.is_free, restarts.delay_s, restarts.attempt) == (life, True, 0.0, 0)
    assert names(actions, Start) == ["a"]


def test_a_restart_that_is_asked_for_while_it_starts_replaces_it_all_the_same() -> None:
    world = World({"a": 0, "b": 1})
    world.feed(StartAll())

    assert names(world.feed(RestartRequested(child="a")), Stop) == ["a"]
    assert names(world.end("a", KILLED), Start) == ["a"]

    assert names(world.ready("a"), Start) == ["b"]


def test_one_that_waits_for_its_back_off_starts_at_once_and_over_again() -> None:
    world = World({"a": 0}).up()
    world.end("a")
    world.end("a")
    assert isinstance(world.phase("a"), BackingOff)

    assert names(world.feed(RestartRequested(child="a")), Start) == ["a"]

    world.ready("a")
    assert names(world.end("a"), Start) == ["a"], "the first restart is immediate again"
    assert len(world.tree.child("a").spent) == 3, "what was spent stays spent"


@pytest.mark.parametrize(("restart", "reason"), [(TRANSIENT, DONE), (TEMPORARY, DONE), (TEMPORARY, CRASH)])
def test_one_that_has_ended_for_good_starts_again_when_that_is_asked_for(restart: Any, reason: Any) -> None:
    world = World({"a": 0, "t": 1}, special={"t": {"restart": restart}}).up()
    world.end("t", reason)
    assert world.phase("t") == Absent()

    assert names(world.feed(RestartRequested(child="t")), Start) == ["t"]


def test_one_that_was_given_up_starts_again_when_that_is_asked_for() -> None:
    world = World({"a": 0}, special={"a": {"is_vital": False, "limit": RestartLimit(restarts=0)}}).up()
    world.end("a")
    assert isinstance(world.phase("a"), GivenUp)

    assert names(world.feed(RestartRequested(child="a")), Start) == ["a"]
    world.ready("a")

    assert names(world.end("a"), Start) == []


def test_one_whose_turn_has_not_come_starts_when_it_comes() -> None:
    world = World({"a": 0, "b": 1})
    world.feed(StartAll())
    before = world.tree

    assert world.feed(RestartRequested(child="b")) == []

    assert world.tree is before


def test_a_restart_of_a_stranger_or_of_one_that_is_to_be_stopped_changes_nothing() -> None:
    world = World({"a": 0, "b": 1}).up()
    before = world.tree
    assert world.feed(RestartRequested(child="stranger")) == []
    assert world.tree is before
    world.feed(StopRequested())
    before = world.tree
    assert isinstance(world.phase("a"), Running), "its rank has not had its turn"

    assert world.feed(RestartRequested(child="a")) == []

    assert world.tree is before


def test_dependents_go_down_with_a_child_that_is_replaced() -> None:
    world = World({"a": 0, "b": 1, "c": 2}, REST_FOR_ONE).up()
    world.feed(RestartRequested(child="b"))

    assert names(world.end("b", DONE), Stop) == ["c"]
    assert names(world.end("c", DONE), Start) == ["b"]
    assert names(world.ready("b"), Start) == ["c"]


def test_a_temporary_child_that_is_replaced_while_its_group_goes_down_comes_back_with_it() -> None:
    world = World({"a": 0, "t": 1}, ONE_FOR_ALL, special={"t": {"restart": TEMPORARY}}).up()
    world.feed(RestartRequested(child="t"))
    world.end("a")

    assert names(world.end("t", DONE), Start) == ["a"]

    assert names(world.ready("a"), Start) == ["t"]


def test_a_child_that_is_replaced_while_the_tree_stops_does_not_come_back() -> None:
    world = World({"a": 0, "b": 0}).up()
    world.feed(RestartRequested(child="a"))
    world.feed(StopRequested())

    assert names(world.end("a", DONE) + world.end("b", DONE), Start) == []

    assert isinstance(world.tree.course, Down)
    assert world.phase("a") == Absent()


def test_a_replacement_that_could_not_be_forked_is_tried_again_at_its_own_cost() -> None:
    world = World({"a": 0})
    world.feed(StartAll())
    life = world.life("a")
    world.feed(RestartRequested(child="a"))

    assert names(world.feed(StartFailed(child="a", incarnation=life, error="EAGAIN")), Start) == ["a"]
    world.feed(StartFailed(child="a", incarnation=world.life("a"), error="EAGAIN"))

    assert len(world.tree.child("a").spent) == 1


# --- too large -------------------------------------------------------------------------------------------------------


def test_a_child_over_its_limit_ends_in_order_and_pays_for_coming_back() -> None:
    world = World({"a": 0}, shutdown_s=2.0).up()
    life = world.life("a")

    assert world.feed(Overgrown(child="a", incarnation=life, reason=OVERGROWN))[0] == Stop(
        child="a", incarnation=life, deadline=1002.0
    )
    [ended] = facts(actions := world.end("a", DONE), ChildEnded)

    assert (ended.reason, ended.was_asked) == (OVERGROWN, False)
    assert names(actions, Start) == ["a"]
    assert world.tree.child("a").spent == world.tree.spent == (1000.0,)


def test_a_child_that_grows_slowly_starts_over_with_its_back_off() -> None:
    world = World({"a": 0}).up()
    world.end("a")
    world.ready("a")
    world.now += 100.0

    world.feed(Overgrown(child="a", incarnation=world.life("a"), reason=OVERGROWN))

    assert names(world.end("a", DONE), Start) == ["a"]


# --- significant children --------------------------------------------------------------------------------------------

SIGNIFICANT = {"restart": TRANSIENT, "is_significant": True}


def test_the_end_of_a_child_that_is_not_significant_means_nothing() -> None:
    special = {"b": {"restart": TRANSIENT}, "c": SIGNIFICANT}
    world = World({"a": 0, "b": 0, "c": 0}, special=special, auto_shutdown=ANY).up()

    assert names(world.end("b", DONE), Complete) == []


def test_a_significant_child_that_is_given_up_counts_as_ended() -> None:
    special = {"b": {**SIGNIFICANT, "is_vital": False, "limit": RestartLimit(restarts=0)}}
    world = World({"a": 0, "b": 1}, special=special, auto_shutdown=ALL).up()

    actions = world.end("b", CRASH)

    assert names(actions, Complete) == ["b"]
    assert names(actions, Stop) == ["a"]


def test_a_significant_child_that_was_given_up_is_not_waited_for() -> None:
    special = {"b": {**SIGNIFICANT, "is_vital": False, "limit": RestartLimit(restarts=0)}, "c": SIGNIFICANT}
    world = World({"a": 0, "b": 1, "c": 1}, special=special, auto_shutdown=ALL).up()
    assert names(world.end("b", CRASH), Complete) == []

    assert names(world.end("c", DONE), Complete) == ["c"]


def test_a_significant_child_that_comes_back_is_waited_for() -> None:
    world = World({"b": 1, "c": 1}, special={"b": SIGNIFICANT, "c": SIGNIFICANT}, auto_shutdown=ALL).up()
    world.end("b")
    world.end("b")
    assert isinstance(world.phase("b"), BackingOff)

    assert names(world.end("c", DONE), Complete) == []

    world.tick("b", 1.0)
    assert names(world.end("b", DONE), Complete) == ["b"]


def test_one_that_has_not_had_its_turn_is_waited_for() -> None:
    world = World({"b": 0, "c": 1}, special={"b": SIGNIFICANT, "c": SIGNIFICANT}, auto_shutdown=ALL)
    world.feed(StartAll())

    assert names(world.end("b", DONE), Complete) == []

    world.ready("c")
    assert names(world.end("c", DONE), Complete) == ["c"]


def test_one_that_lives_is_waited_for_while_others_have_still_to_start() -> None:
    special = {"b": SIGNIFICANT, "c": SIGNIFICANT}
    world = World({"b": 0, "c": 0, "a": 1}, special=special, auto_shutdown=ALL)
    world.feed(StartAll())
    world.ready("b", "c")
    assert isinstance(world.phase("a"), Starting)

    assert names(world.end("b", DONE), Complete) == []
    assert names(world.end("c", DONE), Complete) == ["c"]


def test_one_that_lives_is_waited_for_while_those_behind_it_are_replaced() -> None:
    special = {"b": SIGNIFICANT, "c": SIGNIFICANT}
    world = World({"b": 0, "c": 0, "a": 1, "d": 2}, REST_FOR_ONE, special=special, auto_shutdown=ALL).up()
    world.end("a")
    assert isinstance(world.phase("d"), Stopping)

    assert names(world.end("b", DONE), Complete) == []
    assert names(world.end("c", DONE), Complete) == ["c"]


def test_one_that_is_replaced_with_its_group_is_waited_for() -> None:
    world = World(
        {"b": 0, "a": 1, "c": 2}, REST_FOR_ONE, special={"b": SIGNIFICANT, "c": SIGNIFICANT}, auto_shutdown=ALL
    ).up()
    world.end("a")
    world.end("c", DONE)
    assert world.phase("c") == Absent()

    assert names(world.end("b", DONE), Complete) == []

    world.ready("a")
    assert names(world.end("c", DONE), Complete) == ["c"]


def test_one_that_is_down_already_while_its_group_still_goes_down_is_waited_for() -> None:
    special = {"b": SIGNIFICANT, "d": SIGNIFICANT}
    world = World({"b": 0, "a": 1, "c": 2, "d": 3}, REST_FOR_ONE, special=special, auto_shutdown=ALL).up()
    world.end("a")
    world.end("d", DONE)
    assert isinstance(world.tree.course, Falling)

    assert names(world.end("b", DONE), Complete) == []


def test_one_that_does_not_come_back_with_its_group_is_not_waited_for() -> None:
    special = {"b": SIGNIFICANT, "c": {"restart": TEMPORARY, "is_significant": True}}
    world = World({"b": 0, "a": 1, "c": 2}, REST_FOR_ONE, special=special, auto_shutdown=ALL).up()
    world.end("a")
    world.end("c", DONE)

    assert names(world.end("b", DONE), Complete) == ["b"]


def test_what_is_stopped_for_anothers_sake_completes_nothing() -> None:
    special = {"b": {"restart": TEMPORARY, "is_significant": True}}
    world = World({"a": 0, "b": 1}, ONE_FOR_ALL, special=special, auto_shutdown=ANY).up()
    world.end("a")

    assert names(world.end("b", DONE), Complete) == []

    world.ready("a")
    assert isinstance(world.tree.course, Up)


# --- what an earlier supervisor spent --------------------------------------------------------------------------------


def test_what_was_spent_before_is_spent() -> None:
    limit = RestartLimit(restarts=3, within_s=60.0)
    world = World(
        {"a": 0, "b": 0},
        limit=RestartLimit(restarts=4, within_s=60.0),
        special={"a": {"limit": limit}, "b": {"limit": limit}},
        past={"a": (990.0, 980.0), "stranger": (999.0,)},
    ).up()
    assert world.tree.child("a").spent == world.tree.spent == (980.0, 990.0)

    assert names(world.end("a"), Start) == ["a"]
    world.ready("a")
    actions = world.end("a")

    assert [(act.child, act.is_tree_limit) for act in actions if isinstance(act, Escalate)] == [("a", False)]


def test_the_tree_remembers_what_all_its_children_spent_before() -> None:
    limit = RestartLimit(restarts=2, within_s=60.0)
    world = World(
        {"a": 0, "b": 0},
        limit=limit,
        special={"a": {"limit": limit}, "b": {"limit": limit}},
        past={"a": (990.0,), "b": (980.0,)},
    ).up()

    actions = world.end("a")

    assert [(act.child, act.is_tree_limit) for act in actions if isinstance(act, Escalate)] == [("a", True)]


def test_what_was_spent_long_ago_is_forgotten_and_only_what_a_limit_counts_is_kept() -> None:
    past = {"a": tuple(float(at) for at in range(900, 1000))}
    limit = RestartLimit(restarts=3, within_s=10.0)
    world = World({"a": 0}, limit=limit, special={"a": {"limit": limit}}, past=past)
    assert world.tree.child("a").spent == world.tree.spent == (997.0, 998.0, 999.0)

    world.now = 1010.0

    assert names(world.up().end("a"), Start) == ["a"]


# --- what is refused -------------------------------------------------------------------------------------------------

EVENTS: dict[str, Any] = {
    "start all": StartAll(),
    "stop": StopRequested(),
    "tick": Tick(child="a"),
    "spawned": Spawned(child="a", incarnation=Incarnation("boot.1"), pid=5),
    "start failed": StartFailed(child="a", incarnation=Incarnation("boot.1"), error="EAGAIN"),
    "ready": Ready(child="a", incarnation=Incarnation("boot.1")),
    "ended": Ended(child="a", incarnation=Incarnation("boot.1"), reason=CRASH),
    "hung": Hung(child="a", incarnation=Incarnation("boot.1"), silent_s=30.0),
    "overgrown": Overgrown(child="a", incarnation=Incarnation("boot.1"), reason=OVERGROWN),
    "restart": RestartRequested(child="a"),
}


def absent(world: Any) -> None:
    pass


def asked_for(world: Any) -> None:
    world.feed(StartAll())


def spawned(world: Any) -> None:
    asked_for(world)
    world.spawned("a")


def running(world: Any) -> None:
    spawned(world)
    world.ready("a")


def stopping(world: Any) -> None:
    running(world)
    world.feed(StopRequested())


def replaced(world: Any) -> None:
    running(world)
    world.feed(RestartRequested(child="a"))


def backing_off(world: Any) -> None:
    running(world)
    world.end("a")
    world.end("a")


TAKEN = {
    absent: {"start all", "stop"},
    asked_for: {"stop", "spawned", "start failed", "ready", "ended", "restart"},
    spawned: {"stop", "ready", "ended", "restart"},
    running: {"stop", "ended", "hung", "overgrown", "restart"},
    stopping: {"ended"},
    replaced: {"stop", "ended"},
    backing_off: {"stop", "restart"},
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("reach", TAKEN, ids=lambda reach: reach.__name__)
def test_an_event_is_taken_or_changes_nothing(reach: Any, event: str) -> None:
    world = World({"a": 0})
    reach(world)
    before = world.tree

    actions = world.feed(EVENTS[event])

    if event in TAKEN[reach]:
        assert actions or world.tree is not before
    else:
        assert (actions, world.tree is before) == ([], True)


@pytest.mark.parametrize("event", ["spawned", "start failed", "ready", "ended", "hung", "overgrown"])
@pytest.mark.parametrize(
    "stale", [{"incarnation": Incarnation("boot.0")}, {"child": "stranger"}], ids=["older life", "stranger"]
)
@pytest.mark.parametrize("reach", TAKEN, ids=lambda reach: reach.__name__)
def test_news_of_an_older_life_or_a_stranger_change_nothing(reach: Any, event: str, stale: Any) -> None:
    world = World({"a": 0})
    reach(world)
    before = world.tree
    fields = {name: getattr(EVENTS[event], name) for name in EVENTS[event].__struct_fields__}

    assert world.feed(type(EVENTS[event])(**{**fields, **stale})) == []

    assert world.tree is before


def test_a_tick_for_a_stranger_changes_nothing() -> None:
    world = World({"a": 0}).up()
    before = world.tree

    assert world.feed(Tick(child="stranger")) == []

    assert world.tree is before


def test_an_earlier_state_is_still_what_it_was() -> None:
    world = World({"a": 0}).up()
    before = world.tree

    world.end("a")

    assert isinstance(before.child("a").phase, Running)
    assert facts(decide(before, Ready(child="a", incarnation=Incarnation("x")), 0.0)[1], ChildReady) == []


# --- cost ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 1024, 1025, 40_000])
def test_a_roster_holds_what_was_put_whatever_its_size(size: int) -> None:
    roster, expected = Roster(range(size)), list(range(size))
    for place in {0, size // 2, size - 1} & set(range(size)):
        roster, expected[place] = roster.put(place, -place), -place

    assert list(roster) == expected
    assert len(roster) == size
    assert roster == Roster(expected)
    for outside in (-1, size):
        with pytest.raises(IndexError):
            roster[outside]
        with pytest.raises(IndexError):
            roster.put(outside, 0)


def test_an_exit_costs_the_same_among_ten_and_among_ten_thousand_siblings() -> None:
    """Counted in function calls, because a clock would measure the machine."""

    def calls(size: int) -> int:
        world, counted = World({f"c{number}": 0 for number in range(size)}).up(), 0

        def count(*_: Any) -> None:
            nonlocal counted
            counted += 1

        event = Ended(child="c5", incarnation=world.life("c5"), reason=CRASH)
        sys.setprofile(count)
        decide(world.tree, event, world.now)
        sys.setprofile(None)
        return counted

    assert calls(10_000) < 2 * calls(10)
