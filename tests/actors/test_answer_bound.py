"""The bound on an answer's length: from the agent's spec to the provider's door, and down to the agent's children."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from covey.actors.agent import Agent
from covey.actors.calls.benches import Benches
from covey.actors.calls.environment_keys import EnvironmentKeys
from covey.actors.conversation import CUT
from covey.actors.delegation import NAME, DelegateTask
from covey.actors.http.clients import Clients
from covey.actors.surroundings import Surroundings
from covey.protocol.ids import AgentId, SessionId
from covey.protocol.messages.fleet import AgentResult, AgentSpec, AgentState
from covey.protocol.settings import ModelSettings, ProviderSettings, Settings


def spec(workspace: Path, **fields: Any) -> AgentSpec:
    agent = AgentId("ag_1")
    return AgentSpec(
        agent=agent, session=SessionId("ses_1"), goal="count", workspace=str(workspace), tree=agent, **fields
    )


@pytest.fixture
def run(serving: Callable[[], Any], new_slots: Any, ledger: Any, children: Any, tmp_path: Path) -> Any:
    """Run an agent on one reply: the request the provider saw, and how the agent ended."""

    async def run_one(reply: Any, **fields: Any) -> tuple[dict[str, Any], AgentResult]:
        ended: list[AgentResult] = []
        async with serving() as provider:
            provider.replies = [reply]
            sim = ProviderSettings(name="sim", base_url=provider.base_url)
            settings = Settings(providers={"sim": sim}, model=ModelSettings(provider="sim", name="m"))
            clients = Clients()
            around = Surroundings(
                slots=new_slots(1),
                keys=EnvironmentKeys({}),
                clients=clients,
                benches=Benches(),
                ledger=ledger,
                children=children,
                settings=settings,
                environment={},
            )
            agent = await Agent.start_ready(spec(tmp_path, **fields), around, ended.append, name="one", deadline_s=5)
            await agent.stopped(deadline_s=10)
            await clients.close()
        return provider.requests[0], ended[0]

    return run_one


async def test_the_provider_is_asked_to_cut_the_answer_where_the_spec_says(run: Any, replies: Any) -> None:
    request, _ = await run(replies.text("one two"), max_answer_tokens=7)

    assert request["max_tokens"] == 7


async def test_without_a_bound_the_provider_is_asked_for_none(run: Any, replies: Any) -> None:
    request, _ = await run(replies.text("one two"))

    assert "max_tokens" not in request


async def test_an_answer_that_was_cut_is_a_result_that_says_so(run: Any, replies: Any) -> None:
    _, result = await run(replies.text("one two", finish="length"), max_answer_tokens=2)

    assert (result.outcome, result.text) == (AgentState.DONE, "one two" + CUT)


async def test_children_have_the_bound_of_their_parent(children: Any, tmp_path: Path) -> None:
    parent = spec(tmp_path, tools=(NAME,), max_answer_tokens=7)
    delegate = DelegateTask(parent, children, max_depth=3, delegating=contextlib.nullcontext, at_once=2)

    await delegate.run("call_1", '{"tasks": [{"goal": "a"}]}')

    assert [child.max_answer_tokens for child in children.spawned] == [7]
