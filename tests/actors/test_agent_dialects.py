"""Agents whose provider speaks another dialect than chat completions: over real HTTP, from the goal to the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from covey.actors.agent import Agent
from covey.actors.calls.benches import Benches
from covey.actors.calls.environment_keys import EnvironmentKeys
from covey.actors.equipment import TOOLS
from covey.actors.http.clients import Clients
from covey.actors.surroundings import Surroundings
from covey.bench.provider_moods import Moods
from covey.bench.provider_options import ProviderOptions
from covey.bench.provider_process import ProviderProcess
from covey.protocol.ids import AgentId, SessionId
from covey.protocol.messages.fleet import AgentResult, AgentSpec, AgentState
from covey.protocol.messages.ledger import CallStatus
from covey.protocol.settings import Dialect, ModelSettings, ProviderSettings, Settings
from covey.protocol.transcript import Role

GOAL = """Write it down.
use: write_file {"path": "sheep.txt", "content": "sieben 羊"} && list_files {"path": "."}
use: read_file {"path": "sheep.txt"}
say: seven sheep
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ProviderProcess]:
    with ProviderProcess(ProviderOptions(limit=4, think_s=0, chunk_pace_s=0, chunks=5)) as running:
        yield running


@pytest.fixture
def simulated(server: ProviderProcess) -> ProviderProcess:
    server.clear()
    server.reset()
    return server


@pytest.fixture
def carry_out(new_slots: type[Any], ledger: Any, children: Any, tmp_path: Path) -> Callable[..., Any]:
    """`await carry_out(goal, base_url, dialect)`: one agent from its start to its result."""

    async def ran(goal: str, base_url: str, dialect: Dialect) -> AgentResult:
        results: list[AgentResult] = []
        provider = ProviderSettings(name="sim", base_url=base_url, dialect=dialect, api_key_env="SIM_KEY")
        environment = {"SIM_KEY": "sk-sim", "PATH": "/usr/bin:/bin"}
        clients = Clients()
        around = Surroundings(
            slots=new_slots(1),
            keys=EnvironmentKeys(environment),
            clients=clients,
            benches=Benches(),
            ledger=ledger,
            children=children,
            settings=Settings(providers={"sim": provider}, model=ModelSettings(provider="sim", name="glm-5")),
            environment=environment,
            chance=lambda: 0.0,
        )
        spec = AgentSpec(
            agent=AgentId("ag_1"),
            session=SessionId("ses_1"),
            goal=goal,
            workspace=str(tmp_path),
            tools=TOOLS,
            tree=AgentId("ag_1"),
            max_turns=8,
        )
        ref = await Agent.start_ready(spec, around, results.append, name="one", deadline_s=5)
        await ref.stopped(deadline_s=10)
        await clients.close()
        [result] = results
        return result

    return ran


async def test_an_agent_reaches_its_goal_in_anthropic_messages(
    carry_out: Any, simulated: ProviderProcess, ledger: Any, tmp_path: Path
) -> None:
    result = await carry_out(GOAL, anthropic(simulated), Dialect.ANTHROPIC)

    assert (result.outcome, result.text) == (AgentState.DONE, "seven sheep")
    assert (tmp_path / "sheep.txt").read_text() == "sieben 羊"
    messages = ledger.transcript("ses_1").messages
    assert [len(message.tool_calls) for message in messages if message.role is Role.ASSISTANT] == [2, 1, 0]
    asked = simulated.calls()
    assert [call.status for call in ledger.calls] == [CallStatus.COMPLETED] * 3
    assert [(call.usage.prompt_tokens, call.usage.completion_tokens) for call in ledger.calls] == [
        (call.prompt_tokens, call.completion_tokens) for call in asked
    ]
    assert [call.client_request_id for call in asked] == [call.call for call in ledger.calls]


@pytest.mark.parametrize(("code", "told"), [(529, "overloaded_error"), (1302, "1302")], ids=["by status", "in band"])
async def test_a_refusal_in_anthropic_messages_is_understood_and_the_call_made_again(
    carry_out: Any, simulated: ProviderProcess, ledger: Any, code: int, told: str
) -> None:
    simulated.set_moods(msgspec.convert({"overload": {"answers": 1, "code": code}, "in_band": [1302]}, Moods))

    result = await carry_out("say: all is well", anthropic(simulated), Dialect.ANTHROPIC)

    assert (result.outcome, result.text) == (AgentState.DONE, "all is well")
    assert [call.status for call in ledger.calls] == [CallStatus.REFUSED, CallStatus.COMPLETED]
    assert ledger.calls[0].fault_code == told


@pytest.mark.parametrize("death", ["cut", "torn", "half_json"])
async def test_a_tool_call_of_an_answer_that_died_is_never_carried_out(
    carry_out: Any, simulated: ProviderProcess, ledger: Any, tmp_path: Path, death: str
) -> None:
    simulated.set_moods(msgspec.convert({"bodies": {"dies": death, "after_chunks": 3}}, Moods))

    result = await carry_out(GOAL, anthropic(simulated), Dialect.ANTHROPIC)

    assert result.outcome is AgentState.FAILED
    assert not (tmp_path / "sheep.txt").exists()
    assert all(call.status is not CallStatus.COMPLETED and call.usage is None for call in ledger.calls)
    assert all(message.role is not Role.ASSISTANT for message in ledger.transcript("ses_1").messages)


async def test_an_answer_of_which_only_the_last_line_end_is_missing_is_whole(
    carry_out: Any, simulated: ProviderProcess, ledger: Any
) -> None:
    simulated.set_moods(msgspec.convert({"bodies": {"dies": "no_newline"}}, Moods))

    result = await carry_out("say: all is well", anthropic(simulated), Dialect.ANTHROPIC)

    assert (result.outcome, result.text) == (AgentState.DONE, "all is well")
    assert [call.status for call in ledger.calls] == [CallStatus.COMPLETED]


async def test_an_agent_reaches_its_goal_in_responses(
    carry_out: Any, serving: Any, ledger: Any, replies: Any, tmp_path: Path
) -> None:
    arguments = '{"path": "sheep.txt", "content": "7"}'
    item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "write_file", "arguments": ""}
    writing = answered(
        replies,
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": arguments[:9]},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": arguments[9:]},
    )
    saying = answered(replies, {"type": "response.output_text.delta", "output_index": 0, "delta": "seven"})
    async with serving() as provider:
        provider.replies = [writing, saying]

        result = await carry_out("count the sheep", provider.base_url, Dialect.RESPONSES)

    assert (result.outcome, result.text) == (AgentState.DONE, "seven")
    assert (tmp_path / "sheep.txt").read_text() == "7"
    sent = provider.requests[1]["input"]
    assert [item["type"] for item in sent] == ["message", "function_call", "function_call_output"]
    assert sent[1] == {"type": "function_call", "call_id": "call_1", "name": "write_file", "arguments": arguments}
    assert [(call.status, call.usage.total_tokens, call.response_id) for call in ledger.calls] == [
        (CallStatus.COMPLETED, 15, "resp_1")
    ] * 2


def anthropic(simulated: ProviderProcess) -> str:
    return f"{simulated.root_url}/api/anthropic"


def answered(replies: Any, *events: object) -> Any:
    """A stream in Responses with these events in its middle."""
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    head = {"type": "response.created", "response": {"id": "resp_1", "model": "m", "status": "in_progress"}}
    end = {"id": "resp_1", "model": "m", "status": "completed", "output": [], "usage": usage}
    return replies.events(head, *events, {"type": "response.completed", "response": end})
