"""Trees of agents, each parent waiting for its children, with one slot for all of them: they finish, whatever their
shape, and also when the broker is killed meanwhile. The seed is in the test's id."""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass

import pytest
from under_fire import MakeFleet

from covey.protocol.messages.fleet import AgentState

pytestmark = [pytest.mark.kill, pytest.mark.slow]

TREES = 6
DEEPEST = 3
MOST_CHILDREN = 3
BROKER_KILLS = 3
FINISHED_S = 90.0


@dataclass(frozen=True)
class Node:
    """One agent: how many turns of its own it takes first, and the children it then waits for."""

    name: str
    turns: int
    children: tuple[Node, ...]

    @property
    def goal(self) -> str:
        """What it is told."""
        steps = ['use: list_files {"path": "."}'] * self.turns
        if self.children:
            tasks = [{"goal": child.goal} for child in self.children]
            steps.append(f"use: delegate_task {json.dumps({'tasks': tasks})}")
        return "\n".join([*steps, f"say: {self.name}"])

    @property
    def calls(self) -> int:
        """Calls it takes, with all below it."""
        return self.turns + bool(self.children) + 1 + sum(child.calls for child in self.children)

    @property
    def size(self) -> int:
        """Agents, itself among them."""
        return 1 + sum(child.size for child in self.children)


def grown(chance: random.Random, name: str, depth: int = 0) -> Node:
    """A tree of random shape; the first agent has children in any case."""
    most = MOST_CHILDREN if depth < DEEPEST else 0
    count = chance.randint(1 if depth == 0 else 0, most)
    children = tuple(grown(chance, f"{name}.{number}", depth + 1) for number in range(count))
    return Node(name, chance.randint(0, 1), children)


@pytest.mark.parametrize("seed", range(3))
def test_trees_of_any_shape_finish_with_one_slot(seed: int, make_fleet: MakeFleet) -> None:
    chance = random.Random(seed)
    trees = [grown(chance, f"t{number}") for number in range(TREES)]
    fire = make_fleet(limit=1)
    work = str(fire.path / "work")

    agents = [fire.fleet.spawn(tree.goal, workspace=work) for tree in trees]
    for _ in range(BROKER_KILLS):
        time.sleep(chance.random() * 0.5)  # a random point of the work, not a wait for something
        fire.kill_broker()
    results = [agent.result(timeout=FINISHED_S) for agent in agents]

    assert [(result.outcome, result.text) for result in results] == [(AgentState.DONE, tree.name) for tree in trees]
    stats = fire.provider.stats()
    # The broker's death cuts no call, so none is made twice.
    assert (stats.peak_in_flight, stats.calls, stats.aborted) == (1, sum(tree.calls for tree in trees), 0)
    assert len(fire.fleet.agents()) == sum(tree.size for tree in trees)
