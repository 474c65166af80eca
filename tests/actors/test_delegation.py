"""delegate_task: children by number, all results joined, limits named, nothing left running."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from covey.actors.delegation import ALL_CHARS, NAME, DelegateTask, child_ids
from covey.actors.tools.base import ToolError
from covey.protocol.errors import FleetLost, RemoteError
from covey.protocol.ids import AgentId, SessionId
from covey.protocol.messages.broker import Priority
from covey.protocol.messages.fleet import AgentResult, AgentSpec, AgentState

PARENT = AgentSpec(
    agent=AgentId("ag_1"),
    session=SessionId("ses_1"),
    goal="all of it",
    workspace="/w",
    tools=("terminal", NAME),
    tree=AgentId("ag_1"),
)


@contextmanager
def unseen() -> Iterator[None]:
    yield


def tool(children: Any, *, parent: AgentSpec = PARENT, max_depth: int = 3, at_once: int = 10) -> DelegateTask:
    return DelegateTask(parent, children, max_depth=max_depth, delegating=unseen, at_once=at_once)


def tasks(*goals: str) -> str:
    return json.dumps({"tasks": [{"goal": goal} for goal in goals]})


def result(spec: AgentSpec, **fields: Any) -> AgentResult:
    made = AgentResult(agent=spec.agent, session=spec.session, outcome=AgentState.DONE, text=f"did {spec.goal}")
    return msgspec.structs.replace(made, **fields)


async def reports(delegate: DelegateTask, arguments: str, call_id: str = "call_1") -> list[dict[str, Any]]:
    return json.loads(await delegate.run(call_id, arguments))["results"]


async def test_all_results_come_back_in_the_order_of_the_tasks(children: Any) -> None:
    found = await reports(tool(children), tasks("a", "b", "c"))

    assert [(one["task"], one["outcome"], one["text"]) for one in found] == [
        (0, "done", "did a"),
        (1, "done", "did b"),
        (2, "done", "did c"),
    ]


async def test_a_child_is_one_level_deeper_in_the_same_tree(children: Any) -> None:
    await tool(children).run("call_1", json.dumps({"tasks": [{"goal": "a", "context": "known"}]}))

    [child] = children.spawned
    assert (child.depth, child.tree, child.parent, child.parent_session) == (1, "ag_1", "ag_1", "ses_1")
    assert (child.goal, child.context, child.workspace, child.tools) == ("a", "known", "/w", ("terminal", NAME))
    assert child.priority is Priority.SUBAGENT


async def test_a_child_at_the_deepest_level_is_not_offered_the_tool(children: Any) -> None:
    await tool(children, max_depth=1).run("call_1", tasks("a"))

    assert children.spawned[0].tools == ("terminal",)


async def test_the_same_call_asks_for_the_same_children_again(children: Any) -> None:
    await tool(children).run("call_1", tasks("a", "b"))
    await tool(children).run("call_1", tasks("a", "b"))

    assert len(children.spawned) == 2


def test_ids_differ_by_session_call_and_number() -> None:
    ids = {child_ids(SessionId(s), c, n) for s in ("ses_1", "ses_2") for c in ("c", "c2") for n in (0, 1)}

    assert len(ids) == 8
    assert all(len(agent) == 15 and len(session) == 16 for agent, session in ids)


async def test_a_failed_child_does_not_lose_the_others(children: Any) -> None:
    children.answer = lambda spec: (
        result(spec, outcome=AgentState.FAILED, text="", error="no balance") if spec.goal == "b" else result(spec)
    )

    found = await reports(tool(children), tasks("a", "b", "c"))

    assert [one["outcome"] for one in found] == ["done", "failed", "done"]
    assert found[1]["error"] == "no balance"


async def test_a_refused_spawn_is_reported_with_the_fleets_words(children: Any) -> None:
    limit = RemoteError("LimitError", "1000 agents are alive (fleet.max_agents)")
    children.refuse = lambda spec: limit if spec.goal == "b" else None

    found = await reports(tool(children), tasks("a", "b"))

    assert found[0]["outcome"] == "done"
    assert "1000 agents are alive" in found[1]["error"]


async def test_a_lost_connection_to_the_fleet_is_asked_again(children: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.actors.delegation.ASK_AGAIN_S", 0.001)
    answers: list[Any] = [FleetLost("/home", "result"), None]
    children.answer = lambda spec: answers.pop(0) or result(spec)

    assert (await reports(tool(children), tasks("a")))[0]["outcome"] == "done"


async def test_more_children_than_allowed_at_once_wait_for_their_turn(children: Any) -> None:
    await tool(children, at_once=3).run("call_1", tasks(*"abcdefgh"))

    assert children.peak == 3
    assert len(children.spawned) == 8


async def test_delegating_too_deep_names_both_numbers(children: Any) -> None:
    deep = msgspec.structs.replace(PARENT, depth=3)

    with pytest.raises(ToolError, match=r"depth 3 and fleet\.max_spawn_depth is 3"):
        await tool(children, parent=deep).run("call_1", tasks("a"))


@pytest.mark.parametrize(
    "arguments",
    ['{"tasks": []}', '{"tasks": [{"goal": " "}]}', "{}", '{"tasks": "a"}', tasks(*["a"] * 101)],
    ids=["none", "blank", "missing", "no list", "too many"],
)
async def test_wrong_tasks_start_nobody(children: Any, arguments: str) -> None:
    with pytest.raises(ToolError):
        await tool(children).run("call_1", arguments)
    assert children.spawned == []


async def test_long_answers_are_shortened_so_that_the_json_stays_whole(children: Any) -> None:
    children.answer = lambda spec: result(spec, text='"\n' * 50_000)

    text = await tool(children).run("call_1", tasks(*["a"] * 20))

    assert len(text) <= ALL_CHARS
    assert len(json.loads(text)["results"]) == 20


async def test_a_stopped_parent_stops_its_children(children: Any, until: Callable[..., Any]) -> None:
    children.answer = lambda spec: None
    running = asyncio.create_task(tool(children).run("call_1", tasks("a", "b")))
    await until(lambda: children.running == 2)

    running.cancel()
    await asyncio.wait([running])

    assert set(children.stopped) == {spec.agent for spec in children.spawned}
    assert children.running == 0
