"""Where agents run: each on one worker at a time, whatever happens to workers, and each ends exactly once."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from covey.protocol.ids import AgentId, Incarnation, SessionId
from covey.protocol.messages.fleet import AgentResult, AgentSpec, AgentState, AgentView
from covey.supervisor import placement
from covey.supervisor.placement import Action, Place, Placement, Resolve, StopAt, Worker

ONE = Worker("worker-1", Incarnation("1"))
TWO = Worker("worker-2", Incarnation("1"))


def spec(name: str, parent: str | None = None) -> AgentSpec:
    return AgentSpec(
        agent=AgentId(name),
        session=SessionId(f"s-{name}"),
        goal="g",
        workspace="/",
        tree=AgentId(name),
        parent=AgentId(parent) if parent else None,
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


class Fleet(RuleBasedStateMachine):
    """Random spawns, deaths, ends and stops; the world carries out what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.agents = Placement(max_agents=8)
        self.running: dict[str, Worker] = {}
        self.up: dict[str, Worker] = {}
        self.ended: dict[str, AgentState] = {}
        self.known: list[str] = []
        self.stopped: set[str] = set()
        self.lives = 0

    @initialize()
    def one_worker(self) -> None:
        self.start_worker("worker-1")

    @rule(parent=st.integers(0, 30))
    def spawn(self, parent: int) -> None:
        above = self.known[parent % len(self.known)] if self.known and parent % 2 else None
        name = f"a{len(self.known)}"
        refused, actions = self.agents.spawn(spec(name, above), 0.0)
        if refused is None:
            self.known.append(name)
        self.perform(actions)

    @rule(name=st.sampled_from(["worker-1", "worker-2"]))
    def start_worker(self, name: str) -> None:
        self.lives += 1
        if name in self.up:
            self.kill_worker(name)
        self.up[name] = Worker(name, Incarnation(str(self.lives)))
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
                    self.running[known.agent] = worker
                case Resolve(result=result):
                    assert result.agent not in self.ended, "it ended before"
                    self.ended[result.agent] = result.outcome
                case StopAt(worker=worker, agents=agents):
                    assert worker in self.up.values()
                    for agent in agents:
                        assert self.running[agent] == worker

    @invariant()
    def everybody_is_somewhere(self) -> None:
        waiting = {view.id for view in self.agents.views(0.0) if view.state is AgentState.QUEUED}
        assert waiting | set(self.running) | set(self.ended) == set(self.known)
        assert not waiting or not self.up
        assert self.agents.alive == len(waiting | set(self.running))


Fleet.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestFleet = Fleet.TestCase
