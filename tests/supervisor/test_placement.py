"""Where agents run: each on one worker at a time, whatever happens to workers, and each ends exactly once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from covey.protocol.ids import AgentId, Incarnation, SessionId
from covey.protocol.messages.fleet import AgentResult, AgentSpec, AgentState, AgentView
from covey.supervisor import placement
from covey.supervisor.placement import Action, Place, Placement, Resolve, Standing, StopAt, Worker

ONE = Worker("worker-1", Incarnation("1"))
TWO = Worker("worker-2", Incarnation("1"))


def spec(name: str, parent: str | None = None, *, depth: int = 0) -> AgentSpec:
    return AgentSpec(
        agent=AgentId(name),
        session=SessionId(f"s-{name}"),
        goal="g",
        workspace="/",
        tree=AgentId(name),
        parent=AgentId(parent) if parent else None,
        depth=depth,
    )


def done(name: str, outcome: AgentState = AgentState.DONE) -> AgentResult:
    return AgentResult(agent=AgentId(name), session=SessionId(f"s-{name}"), outcome=outcome, text="t")


def placed(actions: list[Action]) -> list[tuple[str, str]]:
    return [(action.spec.agent, action.worker.name) for action in actions if isinstance(action, Place)]


def table(*workers: Worker, max_agents: int = 100) -> Placement:
    found = Placement(max_agents=max_agents)
    for worker in workers:
        found.worker_ready(worker)
    return found


def test_agents_wait_until_there_is_a_worker() -> None:
    agents = table()

    refused, actions = agents.spawn(spec("a"), 0.0)

    assert (refused, actions) == (None, [])
    assert agents.views(1.0)[0].state is AgentState.QUEUED
    assert placed(agents.worker_ready(ONE)) == [("a", "worker-1")]


def test_the_worker_with_fewest_agents_is_chosen() -> None:
    agents = table(ONE, TWO)

    where = [placed(agents.spawn(spec(name), 0.0)[1])[0][1] for name in "abcd"]

    assert sorted(where) == ["worker-1", "worker-1", "worker-2", "worker-2"]


def test_the_same_agent_is_started_once() -> None:
    agents = table(ONE)
    agents.spawn(spec("a"), 0.0)

    assert agents.spawn(spec("a"), 1.0) == (None, [])
    assert agents.alive == 1


def test_at_the_bound_an_agent_is_refused_and_told_the_number() -> None:
    agents = table(ONE, max_agents=1)
    agents.spawn(spec("a"), 0.0)

    refused, actions = agents.spawn(spec("b"), 0.0)

    assert refused is not None
    assert "fleet.max_agents is 1" in refused
    assert actions == []


def test_a_lost_workers_agents_go_to_another_and_its_word_counts_no_more() -> None:
    agents = table(ONE)
    agents.spawn(spec("a"), 0.0)
    agents.worker_ready(TWO)

    moved = agents.worker_lost("worker-1")

    assert placed(moved) == [("a", "worker-2")]
    assert agents.finished(done("a"), ONE) == []
    assert agents.finished(done("a"), TWO) == [Resolve(done("a"))]


def test_a_new_life_of_a_worker_takes_over_what_the_old_one_had() -> None:
    agents = table(ONE)
    agents.spawn(spec("a"), 0.0)

    again = agents.worker_ready(Worker("worker-1", Incarnation("2")))

    assert placed(again) == [("a", "worker-1")]


def test_an_end_is_told_once() -> None:
    agents = table(ONE)
    agents.spawn(spec("a"), 0.0)

    assert agents.finished(done("a"), ONE) == [Resolve(done("a"))]
    assert agents.finished(done("a"), ONE) == []
    assert agents.result(AgentId("a")) == done("a")


def test_a_stop_reaches_everybody_below_and_ends_the_queued_at_once() -> None:
    agents = table(ONE)
    agents.spawn(spec("a"), 0.0)
    agents.spawn(spec("b", "a"), 0.0)
    agents.worker_lost("worker-1")
    agents.worker_ready(TWO)
    agents.spawn(spec("c", "b"), 0.0)

    actions = agents.stop([AgentId("a")])

    assert [action.agents for action in actions if isinstance(action, StopAt)] == [("a", "b", "c")]
    refused, _ = agents.spawn(spec("d", "c"), 0.0)
    assert refused is not None
    assert "was stopped" in refused


def test_a_stopped_agent_whose_worker_dies_is_not_started_again() -> None:
    agents = table(ONE, TWO)
    [(_, name)] = placed(agents.spawn(spec("a"), 0.0)[1])
    agents.stop([AgentId("a")])

    actions = agents.worker_lost(name)

    assert placed(actions) == []
    assert [action.result.outcome for action in actions if isinstance(action, Resolve)] == [AgentState.STOPPED]


def test_only_so_many_ended_agents_are_remembered() -> None:
    agents = table(ONE)
    for number in range(placement.MAX_REMEMBERED + 10):
        agents.spawn(spec(f"a{number}"), 0.0)
        agents.finished(done(f"a{number}"), ONE)

    assert len(agents.views(0.0)) == placement.MAX_REMEMBERED
    assert agents.alive == 0


# --- workers that are full -------------------------------------------------------------------------------------------


def waits(agents: Placement) -> dict[str, str | None]:
    """What each queued agent waits for."""
    return {view.id: view.waits_for for view in agents.views(0.0) if view.state is AgentState.QUEUED}


def test_a_full_worker_gets_no_new_agents_while_another_is_open() -> None:
    agents = table(ONE, TWO)
    agents.set_standing(ONE, Standing.FULL)

    where = [placed(agents.spawn(spec(name), 0.0)[1])[0][1] for name in "abc"]

    assert where == ["worker-2"] * 3


def test_while_all_are_full_new_agents_wait_and_say_so() -> None:
    agents = table(ONE)
    agents.set_standing(ONE, Standing.FULL)

    assert placed(agents.spawn(spec("a"), 0.0)[1]) == []
    assert waits(agents) == {"a": "room in a worker"}
    assert placed(agents.set_standing(ONE, Standing.OPEN)) == [("a", "worker-1")]
    assert waits(agents) == {}


def test_a_child_goes_to_a_full_worker_if_there_is_no_other() -> None:
    agents = table(ONE)
    agents.spawn(spec("a"), 0.0)
    agents.set_standing(ONE, Standing.FULL)
    agents.spawn(spec("b"), 0.0)

    assert placed(agents.spawn(spec("c", "a"), 0.0)[1]) == [("c", "worker-1")]
    assert waits(agents) == {"b": "room in a worker"}


def test_a_worker_that_leaves_gets_nothing_and_its_agents_move_when_it_is_gone() -> None:
    agents = table(ONE)
    agents.spawn(spec("a"), 0.0)
    agents.set_standing(ONE, Standing.LEAVING)

    assert placed(agents.spawn(spec("b", "a"), 0.0)[1]) == []
    assert waits(agents) == {"b": "worker"}
    again = agents.worker_ready(Worker("worker-1", Incarnation("2")))
    assert placed(again) == [("b", "worker-1"), ("a", "worker-1")], "children first"


def test_a_word_about_a_life_that_is_over_changes_nothing() -> None:
    agents = table(ONE)
    agents.worker_ready(Worker("worker-1", Incarnation("2")))

    assert agents.set_standing(ONE, Standing.LEAVING) == []
    assert placed(agents.spawn(spec("a"), 0.0)[1]) == [("a", "worker-1")]
    assert not agents.has_agents(ONE)
    assert agents.has_agents(Worker("worker-1", Incarnation("2")))


# --- memory ----------------------------------------------------------------------------------------------------------


def test_while_memory_is_short_one_agent_runs_at_a_time_and_the_others_say_why() -> None:
    agents = table(ONE, TWO)
    agents.set_room(0)

    started = [placed(agents.spawn(spec(name), 0.0)[1]) for name in "abc"]

    assert [len(found) for found in started] == [1, 0, 0]
    assert waits(agents) == {"b": "memory", "c": "memory"}
    [(_, where)] = started[0]
    following = agents.finished(done("a"), ONE if where == "worker-1" else TWO)
    assert [agent for agent, _ in placed(following)] == ["b"]


def test_with_room_for_two_two_are_placed_until_the_next_word() -> None:
    agents = table(ONE)
    agents.set_room(2)

    started = [agent for name in "abcd" for agent, _ in placed(agents.spawn(spec(name), 0.0)[1])]

    assert started == ["a", "b"]
    assert [agent for agent, _ in placed(agents.set_room(1))] == ["c"]
    assert [agent for agent, _ in placed(agents.set_room(5))] == ["d"]


def test_while_memory_is_short_a_parent_that_waits_lets_its_children_run() -> None:
    agents = table(ONE)
    agents.set_room(0)
    agents.spawn(spec("a"), 0.0)
    agents.spawn(spec("b"), 0.0)

    first = agents.spawn(spec("a1", "a"), 0.0)[1]
    second = agents.spawn(spec("a2", "a"), 0.0)[1]

    assert (placed(first), placed(second)) == ([("a1", "worker-1")], [])
    assert placed(agents.finished(done("a1"), ONE)) == [("a2", "worker-1")], "before b, which came earlier"
    assert placed(agents.finished(done("a2"), ONE)) == [], "a goes on"
    assert placed(agents.finished(done("a"), ONE)) == [("b", "worker-1")]


def test_while_memory_is_short_the_deepest_go_first() -> None:
    agents = table(ONE)
    agents.set_room(0)
    agents.spawn(spec("a"), 0.0)
    agents.spawn(spec("a1", "a", depth=1), 0.0)
    agents.spawn(spec("a2", "a", depth=1), 0.0)
    agents.spawn(spec("a11", "a1", depth=2), 0.0)
    agents.spawn(spec("a12", "a1", depth=2), 0.0)

    assert [agent for agent, _ in placed(agents.finished(done("a11"), ONE))] == ["a12"]


# --- what it costs ---------------------------------------------------------------------------------------------------


class Counted(str):
    """An id that counts how often it is looked at."""

    __slots__ = ()
    looks = 0

    def __hash__(self) -> int:
        Counted.looks += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        Counted.looks += 1
        return str.__eq__(self, other)

    def __lt__(self, other: str) -> bool:
        Counted.looks += 1
        return str.__lt__(self, other)


def steps(work: Callable[[], object]) -> int:
    """Lines that ran and ids that were looked at: loops in Python show in the first, loops in C in the second."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    Counted.looks = 0
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines + Counted.looks


def crowd(count: int) -> Placement:
    """`count` agents on one worker, as many in the queue, and five on another worker."""
    agents = table(ONE, max_agents=10**6)
    for number in range(count):
        agents.spawn(spec(Counted(f"placed-{number}")), 0.0)
    agents.worker_ready(TWO)
    for number in range(5):
        agents.spawn(spec(Counted(f"two-{number}")), 0.0)
    agents.set_standing(ONE, Standing.FULL)
    agents.set_standing(TWO, Standing.FULL)
    for number in range(count):
        agents.spawn(spec(Counted(f"queued-{number}")), 0.0)
    return agents


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda agents: agents.worker_lost("worker-2"), id="a worker with few agents is lost"),
        pytest.param(lambda agents: agents.stop([AgentId(Counted("queued-50"))]), id="a queued agent is stopped"),
        pytest.param(lambda agents: agents.finished(done(Counted("placed-50")), ONE), id="an agent ends"),
        pytest.param(lambda agents: agents.spawn(spec(Counted("new")), 0.0), id="an agent comes"),
        pytest.param(lambda agents: agents.set_room(0), id="memory is short"),
    ],
)
def test_the_cost_does_not_grow_with_the_agents_that_are_not_touched(work: Callable[[Placement], object]) -> None:
    few, many = crowd(100), crowd(10_000)

    cost_of_few, cost_of_many = steps(lambda: work(few)), steps(lambda: work(many))

    assert cost_of_many < 2 * cost_of_few + 20, "a hundred times as many agents"


class Fleet(RuleBasedStateMachine):
    """Random spawns, deaths, ends and stops; the world carries out what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.agents = Placement(max_agents=8)
        self.running: dict[str, Worker] = {}
        self.up: dict[str, Worker] = {}
        self.standing: dict[Worker, Standing] = {}
        self.room: float = 0
        self.parent: dict[str, str | None] = {}
        self.ended: dict[str, AgentState] = {}
        self.known: list[str] = []
        self.stopped: set[str] = set()
        self.lives = 0

    @initialize()
    def one_worker(self) -> None:
        self.say_room(100)
        self.start_worker("worker-1")

    @rule(room=st.sampled_from([0, 0, 1, 100]))
    def say_room(self, room: float) -> None:
        self.room = room
        self.perform(self.agents.set_room(room))

    @rule(name=st.sampled_from(["worker-1", "worker-2"]), standing=st.sampled_from(Standing))
    def say_standing(self, name: str, standing: Standing) -> None:
        if name in self.up:
            self.standing[self.up[name]] = standing
            self.perform(self.agents.set_standing(self.up[name], standing))

    @rule(parent=st.integers(0, 30))
    def spawn(self, parent: int) -> None:
        above = self.known[parent % len(self.known)] if self.known and parent % 2 else None
        name = f"a{len(self.known)}"
        refused, actions = self.agents.spawn(spec(name, above), 0.0)
        if refused is None:
            self.known.append(name)
            self.parent[name] = above
        self.perform(actions)

    @rule(name=st.sampled_from(["worker-1", "worker-2"]))
    def start_worker(self, name: str) -> None:
        self.lives += 1
        if name in self.up:
            self.kill_worker(name)
        self.up[name] = Worker(name, Incarnation(str(self.lives)))
        self.standing[self.up[name]] = Standing.OPEN
        self.perform(self.agents.worker_ready(self.up[name]))

    @rule(name=st.sampled_from(["worker-1", "worker-2"]))
    def kill_worker(self, name: str) -> None:
        dead = self.up.pop(name, None)
        self.running = {agent: worker for agent, worker in self.running.items() if worker != dead}
        self.perform(self.agents.worker_lost(name))

    @rule(which=st.integers(0, 100))
    def finish(self, which: int) -> None:
        if self.running:
            agent = sorted(self.running)[which % len(self.running)]
            self.perform(self.agents.finished(done(agent), self.running.pop(agent)))

    @rule(which=st.integers(0, 100))
    def stop(self, which: int) -> None:
        if self.known:
            agent = self.known[which % len(self.known)]
            self.stopped.add(agent)
            self.perform(self.agents.stop([AgentId(agent)]))

    @rule()
    def report(self) -> None:
        for agent, worker in self.running.items():
            view = AgentView(id=AgentId(agent), session=SessionId("s"), state=AgentState.CALLING, turn=3)
            self.agents.progress([view], worker)

    def perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Place(worker=worker, spec=known):
                    assert known.agent not in self.running, "it runs somewhere already"
                    assert known.agent not in self.ended, "it has ended"
                    assert worker in self.up.values(), "that worker is not there"
                    self.check_limits(known.agent, worker)
                    self.running[known.agent] = worker
                    self.room -= 1
                case Resolve(result=result):
                    assert result.agent not in self.ended, "it ended before"
                    self.ended[result.agent] = result.outcome
                case StopAt(worker=worker, agents=agents):
                    assert worker in self.up.values()
                    for agent in agents:
                        assert self.running[agent] == worker

    def check_limits(self, agent: str, worker: Worker) -> None:
        standing = self.standing[worker]
        assert standing is not Standing.LEAVING
        assert standing is Standing.OPEN or (self.parent.get(agent) is not None or agent not in self.known)
        assert self.room >= 1 or not self.is_anybody_busy(), "memory is short, and one runs"

    def is_anybody_busy(self) -> bool:
        waited_for = {self.parent[agent] for agent in self.known if agent not in self.ended}
        return any(agent not in waited_for for agent in self.running)

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        waiting = [view for view in self.agents.views(0.0) if view.state is AgentState.QUEUED]
        standings = {self.standing[worker] for worker in self.up.values()}
        for view in waiting:
            is_short = self.room < 1 and self.is_anybody_busy()
            has_worker = Standing.OPEN in standings or (view.parent is not None and Standing.FULL in standings)
            assert is_short or not has_worker, f"{view.id} could run"
            assert view.waits_for in ("memory", "worker", "room in a worker")

    @invariant()
    def everybody_is_somewhere(self) -> None:
        waiting = {view.id for view in self.agents.views(0.0) if view.state is AgentState.QUEUED}
        assert waiting | set(self.running) | set(self.ended) == set(self.known)
        assert self.agents.alive == len(waiting | set(self.running))


Fleet.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestFleet = Fleet.TestCase
