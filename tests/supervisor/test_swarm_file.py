"""A swarm file: what it says, and where it says something that cannot be meant."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from covey.protocol.errors import ConfigError, RemoteError
from covey.protocol.messages.broker import CapView
from covey.protocol.messages.ledger import LedgerRecord, SwarmEnded, SwarmOpened, TaskEnded
from covey.supervisor.client import DEFAULT_TOOLS, AsyncFleet
from covey.supervisor.swarm import Budget, Swarm, Task, run_swarm
from covey.supervisor.swarm_file import MAX_TASKS, read_swarm

GOAL = "tasks:\n  - goal: a\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "swarm.yaml"


def test_everything_that_can_be_said_is_read(file: Path) -> None:
    file.write_text(
        "model: other/large\n"
        "max_children: 3\n"
        "tools: [read_file, list_files]\n"
        "max_answer_tokens: 100\n"
        "budget: {max_tokens: 5000, max_cost_usd: 0.5}\n"
        "tasks:\n"
        "  - goal: a\n"
        "    context: known\n"
        "    model: small\n"
        '  - goal: "2"\n'
    )

    assert read_swarm(file) == Swarm(
        tasks=(Task("a", context="known", model="small"), Task("2")),
        model="other/large",
        max_children=3,
        tools=("read_file", "list_files"),
        max_answer_tokens=100,
        budget=Budget(max_tokens=5000, max_cost_usd=0.5),
    )


def test_what_is_not_said_is_left_to_the_fleet(file: Path) -> None:
    file.write_text(GOAL)

    swarm = read_swarm(file)

    assert swarm == Swarm(tasks=(Task("a"),))
    assert (swarm.tools, swarm.max_answer_tokens, swarm.max_children) == (DEFAULT_TOOLS, None, None)


def test_an_empty_list_of_tools_means_none(file: Path) -> None:
    file.write_text("tools: []\n" + GOAL)

    assert read_swarm(file).tools == ()


def test_text_over_several_lines_is_one_goal(file: Path) -> None:
    file.write_text("tasks:\n  - goal: |\n      first\n      second\n")

    assert read_swarm(file).tasks == (Task("first\nsecond\n"),)


@pytest.mark.parametrize(
    ("text", "line", "key", "problem"),
    [
        pytest.param("", None, "tasks", "empty or missing", id="nothing"),
        pytest.param("# a note\n", None, "tasks", "empty or missing", id="only a comment"),
        pytest.param("- goal: a\n", 1, None, "a list", id="a list at the top"),
        pytest.param("max_children: 2\n", 1, "tasks", "no tasks", id="no tasks"),
        pytest.param("tasks:\n", 1, "tasks", "a single value", id="tasks without a value"),
        pytest.param("tasks: []\n", 1, "tasks", "a list", id="an empty list of tasks"),
        pytest.param("tasks:\n  goal: a\n", 2, "tasks", "a mapping", id="one task without its dash"),
        pytest.param("tasks:\n  - a\n", 2, "tasks[0]", "a single value", id="a task that is only text"),
        pytest.param("tasks:\n  - context: a\n", 2, "tasks[0].goal", "missing", id="a task without a goal"),
        pytest.param(GOAL + "  - goal:\n", 3, "tasks[1].goal", "no text", id="a goal without a value"),
        pytest.param(GOAL + "  - goal: ' '\n", 3, "tasks[1].goal", "no text", id="a goal of spaces"),
        pytest.param(GOAL + "  - goal: 3\n", 3, "tasks[1].goal", "no text", id="a goal that is a number"),
        pytest.param(GOAL + "  - goal: [a]\n", 3, "tasks[1].goal", "no text", id="a goal that is a list"),
        pytest.param(
            GOAL + "    context: yes\n", 3, "tasks[0].context", "no text", id="a context that is a truth value"
        ),
        pytest.param(GOAL + "    model: 5\n", 3, "tasks[0].model", "no text", id="a task's model that is a number"),
        pytest.param(GOAL + "    gaol: b\n", 3, "tasks[0].gaol", "unknown", id="a task's key that is unknown"),
        pytest.param(GOAL + "    goal: b\n", 3, "tasks[0].goal", "twice", id="a task's key twice"),
        pytest.param(GOAL + "model:\n", 3, "model", "no text", id="a model without a value"),
        pytest.param(GOAL + "modle: x\n", 3, "modle", "unknown", id="a key that is unknown"),
        pytest.param(GOAL + "model: x\nmodel: y\n", 4, "model", "twice", id="a key twice"),
        pytest.param(
            "tasks:\n  - {goal: a, [b]: c}\n", 2, "tasks[0]", "a list is used", id="a task's key that is a list"
        ),
        pytest.param(GOAL + "? [a, b]\n: c\n", 3, None, "a list is used as a key", id="a key that is a list"),
        pytest.param(GOAL + "max_children: 0\n", 3, "max_children", "no count", id="no children at once"),
        pytest.param(GOAL + "max_children: -1\n", 3, "max_children", "no count", id="less than no children"),
        pytest.param(GOAL + "max_children: true\n", 3, "max_children", "no count", id="a count that is a truth value"),
        pytest.param(GOAL + "max_children: '3'\n", 3, "max_children", "no count", id="a count in quotes"),
        pytest.param(GOAL + "max_children: 1.5\n", 3, "max_children", "no count", id="half a child"),
        pytest.param(GOAL + "max_children: [1]\n", 3, "max_children", "no count", id="a count that is a list"),
        pytest.param(GOAL + "max_answer_tokens: 0\n", 3, "max_answer_tokens", "no count", id="answers of no tokens"),
        pytest.param(GOAL + "max_answer_tokens:\n", 3, "max_answer_tokens", "no count", id="a bound without a value"),
        pytest.param(GOAL + "tools: terminal\n", 3, "tools", "a single value", id="one tool that is no list"),
        pytest.param(GOAL + "tools:\n", 3, "tools", "a single value", id="tools without a value"),
        pytest.param(GOAL + "tools:\n  - terminal\n  - axe\n", 5, "tools[1]", "no tool 'axe'", id="no such tool"),
        pytest.param(GOAL + "tools: [terminal, terminal]\n", 3, "tools[1]", "twice", id="a tool twice"),
        pytest.param(GOAL + "tools: [[terminal]]\n", 3, "tools[0]", "no text", id="a tool that is a list"),
        pytest.param(GOAL + "budget: 5\n", 3, "budget", "a single value", id="a budget that is a number"),
        pytest.param(GOAL + "budget: {}\n", 3, "budget", "empty", id="a budget of nothing"),
        pytest.param(GOAL + "budget: {tokens: 5}\n", 3, "budget.tokens", "unknown", id="no such bound"),
        pytest.param(GOAL + "budget: {max_tokens: 0}\n", 3, "budget.max_tokens", "no count", id="no tokens"),
        pytest.param(GOAL + "budget: {max_cost_usd: 0}\n", 3, "budget.max_cost_usd", "no amount", id="no money"),
        pytest.param(GOAL + "budget: {max_cost_usd: .inf}\n", 3, "budget.max_cost_usd", "no amount", id="endless"),
        pytest.param(GOAL + "budget: {max_cost_usd: 'x'}\n", 3, "budget.max_cost_usd", "no amount", id="text"),
        pytest.param("tasks:\n\t- goal: a\n", 2, None, "a tab", id="a tab"),
        pytest.param("tasks: [\n", 1, None, "not YAML", id="a list without an end"),
        pytest.param("tasks: &a\n  - goal: a\n", 1, None, "anchors", id="an anchor"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(
    file: Path, text: str, line: int | None, key: str | None, problem: str
) -> None:
    file.write_text(text)

    with pytest.raises(ConfigError) as refused:
        read_swarm(file)

    error = refused.value
    assert (error.file, error.line, error.key) == (str(file), line, key)
    assert problem in error.problem
    assert error.valid


def test_a_file_that_is_not_there_is_refused_by_name(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"swarm\.yaml.*empty or missing"):
        read_swarm(file)


def test_more_tasks_than_a_fleet_takes_are_refused(file: Path) -> None:
    file.write_text("tasks: [" + "a," * (MAX_TASKS + 1) + "]\n")

    with pytest.raises(ConfigError, match=f"a list of 1 to {MAX_TASKS} tasks"):
        read_swarm(file)


class Refusing:
    """A fleet that takes no agent, and remembers what was asked for."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.told: list[LedgerRecord] = []

    @property
    def records(self) -> Refusing:
        return self

    def record(self, record: LedgerRecord) -> None:
        self.told.append(record)

    async def spawn(self, goal: str, **how: Any) -> None:
        self.asked.append({"goal": goal, **how})
        raise RemoteError("TooManyAgents", "no more today")


def test_every_child_is_asked_for_with_what_the_file_says_and_a_refused_one_is_a_failed_child(tmp_path: Path) -> None:
    fleet = Refusing()
    swarm = Swarm((Task("a"), Task("b", model="own")), model="common", tools=("read_file",), max_answer_tokens=9)

    children, _ = asyncio.run(run_swarm(cast(AsyncFleet, fleet), swarm, workspace=tmp_path))

    wanted = [(how["goal"], how["model"], how["tools"], how["max_answer_tokens"]) for how in fleet.asked]
    assert wanted == [("a", "common", ("read_file",), 9), ("b", "own", ("read_file",), 9)]
    assert [(child.ok, child.result.error) for child in children] == [(False, "TooManyAgents: no more today")] * 2


def test_the_ledger_is_told_how_the_swarm_went(tmp_path: Path) -> None:
    fleet = Refusing()

    asyncio.run(run_swarm(cast(AsyncFleet, fleet), Swarm((Task("a"), Task("b"))), workspace=tmp_path))

    opened, *ended, over = fleet.told
    assert isinstance(opened, SwarmOpened)
    assert opened.tasks == 2
    assert [(task.index, task.outcome, task.error) for task in ended if isinstance(task, TaskEnded)] == [
        (0, "failed", "TooManyAgents: no more today"),
        (1, "failed", "TooManyAgents: no more today"),
    ]
    assert isinstance(over, SwarmEnded)
    assert (over.swarm, over.outcome) == (opened.swarm, "failed")


class Capped(Refusing):
    """The same, with caps."""

    def __init__(self) -> None:
        super().__init__()
        self.declared: dict[str, tuple[int | None, float | None]] = {}

    async def declare_cap(self, name: str, *, max_tokens: int | None, max_cost_usd: float | None) -> None:
        assert not self.asked, "declared before anybody can spend"
        self.declared[name] = max_tokens, max_cost_usd

    async def caps(self) -> tuple[CapView, ...]:
        other = CapView(name="other", tokens=1, reserved_tokens=0, cost_usd=0.0, reserved_cost_usd=0.0)
        return other, *(msgspec.structs.replace(other, name=name, tokens=42) for name in self.declared)


def test_a_budget_is_declared_first_carried_by_every_child_and_told_at_the_end(tmp_path: Path) -> None:
    fleet = Capped()
    swarm = Swarm((Task("a"), Task("b")), budget=Budget(max_tokens=100))
    spent: list[CapView] = []

    asyncio.run(run_swarm(cast(AsyncFleet, fleet), swarm, workspace=tmp_path, on_spent=spent.append))

    assert list(fleet.declared.values()) == [(100, None)]
    assert [how["cap"] for how in fleet.asked] == list(fleet.declared) * 2
    assert [one.tokens for one in spent] == [42]
