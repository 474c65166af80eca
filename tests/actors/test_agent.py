"""An agent against a real provider: stores before it acts, ends once, stops at once, goes on where it was."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from covey.actors.agent import Agent, StopAgent
from covey.actors.calls.benches import Benches
from covey.actors.calls.environment_keys import EnvironmentKeys
from covey.actors.equipment import TOOLS
from covey.actors.http.clients import Clients
from covey.actors.runtime.ref import ActorDown, ActorRef
from covey.actors.surroundings import Surroundings
from covey.protocol.ids import AgentId, SessionId
from covey.protocol.messages.fleet import AgentResult, AgentSpec, AgentState
from covey.protocol.messages.ledger import CallStatus, MessageAppended, SessionEnded, SessionOpened, Transcript
from covey.protocol.settings import Fallback, ModelSettings, ProviderSettings, Settings
from covey.protocol.transcript import INTERRUPTED_RESULT, Message, Role, ToolCall

AGENT, SESSION = AgentId("ag_1"), SessionId("ses_1")


class Stage:
    """A worker's surroundings and the agents on it."""

    def __init__(self, provider: Any, slots: Any, ledger: Any, children: Any, workspace: Path) -> None:
        self.provider, self.slots, self.ledger, self.children = provider, slots, ledger, children
        self.workspace = workspace
        self.results: list[AgentResult] = []
        self.flushed_at_result: list[bool] = []
        self.environment = {"SIM_KEY": "sk-sim", "PATH": "/usr/bin:/bin"}
        self.fallbacks: tuple[ProviderSettings, ...] = ()
        self.clients = Clients()

    async def start(self, name: str = "one", **fields: Any) -> ActorRef:
        spec = AgentSpec(
            **{
                "agent": AGENT,
                "session": SESSION,
                "goal": "count the sheep",
                "workspace": str(self.workspace),
                "tools": TOOLS,
                "tree": AGENT,
                "max_turns": 5,
                **fields,
            }
        )
        sim = ProviderSettings(
            name="sim", base_url=self.provider.base_url, api_key_env="SIM_KEY", session_affinity_header="x-scope"
        )
        around = Surroundings(
            slots=self.slots,
            keys=EnvironmentKeys(self.environment),
            clients=self.clients,
            benches=Benches(),
            ledger=self.ledger,
            children=self.children,
            settings=Settings(
                providers={"sim": sim, **{one.name: one for one in self.fallbacks}},
                model=ModelSettings(
                    provider="sim",
                    name="m",
                    fallbacks=tuple(Fallback(provider=one.name, name="n") for one in self.fallbacks),
                ),
            ),
            environment=self.environment,
            chance=lambda: 0.0,
        )
        return await Agent.start_ready(spec, around, self._finished, name=name, deadline_s=5)

    async def run(self, **fields: Any) -> AgentResult:
        ref = await self.start(**fields)
        await ref.stopped(deadline_s=10)
        assert len(self.results) == 1
        return self.results[0]

    def _finished(self, result: AgentResult) -> None:
        self.flushed_at_result.append(self.ledger.flushed == len(self.ledger.records))
        self.results.append(result)

    @property
    def states(self) -> list[AgentState]:
        return [view.state for view in self.children.views]

    @property
    def messages(self) -> tuple[Message, ...]:
        stored: Transcript = self.ledger.transcript(SESSION)
        return stored.messages

    @property
    def results_of_tools(self) -> list[str]:
        return [message.content for message in self.messages if message.role is Role.TOOL]

    def is_alive(self, pid: int) -> bool:
        return Path(f"/proc/{pid}").exists()

    def read(self, name: str) -> str | None:
        path = self.workspace / name
        return path.read_text() if path.exists() else None

    def store(self, *messages: Message) -> None:
        for index, message in enumerate(messages):
            self.ledger.record(MessageAppended(session=SESSION, index=index, message=message, at_ms=0))


@pytest.fixture
def stage(
    serving: Callable[[], Any], new_slots: type[Any], ledger: Any, children: Any, tmp_path: Path
) -> Callable[..., Any]:
    """`async with stage(*replies) as scene`; afterwards no slot is held and no connection is open."""

    @asynccontextmanager
    async def opened(*replies: Any, limit: int = 1) -> AsyncIterator[Stage]:
        ledger.records.clear()
        children.views.clear()
        async with serving() as provider:
            provider.replies = list(replies)
            made = Stage(provider, new_slots(limit), ledger, children, tmp_path)
            try:
                yield made
            finally:
                await made.clients.close()
            assert made.slots.held == set()

    return opened


def call(name: str, id_: str = "t1", **arguments: Any) -> tuple[str, str, str]:
    return (id_, name, json.dumps(arguments))


async def test_agents_of_one_conversation_are_one_to_the_provider_until_it_is_begun_anew(
    stage: Any, replies: Any
) -> None:
    async with stage(*[replies.text("x")] * 6) as scene:
        for session, source, conversation, generation in (
            ("ses_1", "chat", "room 7", 0),
            ("ses_2", "chat", "room 7", 0),
            ("ses_3", "chat", "room 7", 1),
            ("ses_4", "mail", "room 7", 0),
            ("ses_5", "chat", None, 0),
            ("ses_6", "chat", None, 0),
        ):
            scene.ledger.generations[source, "room 7"] = generation
            await scene.run(session=SessionId(session), source=source, conversation=conversation)
            scene.results.clear()

    scopes = [headers["x-scope"] for headers in scene.provider.headers]
    assert scopes[0] == scopes[1]
    assert len(set(scopes)) == 5
    assert not any("room" in scope or "ses" in scope for scope in scopes)
    opened = [record.conversation for record in scene.ledger.records if isinstance(record, SessionOpened)]
    assert opened == ["room 7"] * 4 + [None] * 2


# --- the ordinary course ---------------------------------------------------------------------------------------------


async def test_a_goal_with_a_tool_is_carried_out_and_stored(stage: Any, replies: Any, tmp_path: Path) -> None:
    writing = replies.tools(call("write_file", path="sheep.txt", content="7"))
    async with stage(writing, replies.text("seven")) as scene:
        result = await scene.run(context="a meadow")

    assert result == AgentResult(
        agent=AGENT,
        session=SESSION,
        outcome=AgentState.DONE,
        text="seven",
        turns=2,
        calls=2,
        prompt_tokens=20,
        completion_tokens=10,
    )
    assert (tmp_path / "sheep.txt").read_text() == "7"
    assert [message.role for message in scene.messages] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert scene.messages[0].content == "count the sheep\n\nContext:\na meadow"
    assert isinstance(scene.ledger.records[0], SessionOpened)
    assert isinstance(scene.ledger.records[-1], SessionEnded)


async def test_the_end_is_reported_only_after_the_commit(stage: Any, replies: Any) -> None:
    async with stage(replies.text("seven")) as scene:
        await scene.run()

    assert scene.flushed_at_result == [True]


async def test_the_model_gets_the_prompt_the_tools_and_the_history(stage: Any, replies: Any) -> None:
    async with stage(replies.tools(call("list_files")), replies.text("x")) as scene:
        await scene.run()

    first, second = scene.provider.requests
    assert [tool["function"]["name"] for tool in first["tools"]] == list(TOOLS)
    assert first["messages"][0]["role"] == "system"
    assert first["messages"][0] == second["messages"][0]
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool"]


async def test_an_agent_shows_what_it_does(stage: Any, replies: Any) -> None:
    async with stage(replies.tools(call("terminal", command="true")), replies.text("x")) as scene:
        await scene.run()

    assert scene.states == ["starting", "waiting", "calling", "tool", "waiting", "calling", "done"]
    assert (scene.children.views[-1].turn, scene.children.views[-1].tokens) == (2, 30)


async def test_the_record_of_a_call_comes_before_the_message_it_paid_for(stage: Any, replies: Any) -> None:
    async with stage(replies.text("x")) as scene:
        await scene.run()

    kinds = [type(record).__name__ for record in scene.ledger.records]
    assert kinds == ["SessionOpened", "MessageAppended", "CallRecorded", "MessageAppended", "SessionEnded"]


async def test_a_model_that_errs_reads_why_and_may_go_on(stage: Any, replies: Any) -> None:
    wrong = replies.tools(call("no_such_tool"), ("t2", "read_file", '{"path'), call("read_file", "t3", path="gone"))
    async with stage(wrong, replies.text("sorry")) as scene:
        assert (await scene.run()).outcome is AgentState.DONE

    unknown, invalid, missing = scene.results_of_tools
    assert "there is no tool 'no_such_tool'; there are: read_file" in unknown
    assert "invalid arguments" in invalid
    assert "No such file" in missing


async def test_commands_do_not_see_the_key(stage: Any, replies: Any) -> None:
    async with stage(replies.tools(call("terminal", command="env")), replies.text("x")) as scene:
        await scene.run()

    assert "PATH=" in scene.results_of_tools[0]
    assert "sk-sim" not in scene.results_of_tools[0]


async def test_children_are_delegated_to_and_their_results_read(stage: Any, replies: Any) -> None:
    async with stage(replies.tools(call("delegate_task", tasks=[{"goal": "left"}])), replies.text("both")) as scene:
        await scene.run()

    assert json.loads(scene.results_of_tools[0])["results"][0]["text"] == "did left"
    assert AgentState.DELEGATING in scene.states


async def test_two_delegations_of_one_answer_run_side_by_side(stage: Any, replies: Any) -> None:
    two = replies.tools(
        call("delegate_task", "t1", tasks=[{"goal": "left"}]), call("delegate_task", "t2", tasks=[{"goal": "right"}])
    )
    async with stage(two, replies.text("both")) as scene:
        await scene.run()

    assert scene.children.peak == 2
    assert len(scene.children.spawned) == 2


async def test_tools_with_effects_run_in_their_order(stage: Any, replies: Any) -> None:
    calls = [call("terminal", f"t{n}", command=f"sleep 0.0{3 - n}; echo {n} >> log") for n in range(3)]
    async with stage(replies.tools(*calls), replies.text("x")) as scene:
        await scene.run()

        assert scene.read("log") == "0\n1\n2\n"


async def test_a_model_that_cannot_answer_is_stood_in_for_by_the_configured_one(
    stage: Any, serving: Any, replies: Any
) -> None:
    gone = replies.refusal(404, "model_not_found", "no such model")
    async with serving() as other, stage(gone) as scene:
        other.replies = [replies.text("seven")]
        scene.fallbacks = (ProviderSettings(name="spare", base_url=other.base_url),)
        result = await scene.run()

        assert other.requests[0]["model"] == "n"
    assert result.text == "seven"
    asked = [view.waits_for for view in scene.children.views if view.state is AgentState.CALLING]
    assert asked == ["sim", "spare"]


# --- ends that are no answer -----------------------------------------------------------------------------------------


async def test_a_provider_that_refuses_for_good_fails_the_agent_with_its_words(stage: Any, replies: Any) -> None:
    async with stage(replies.refusal(429, "1113", "Insufficient balance")) as scene:
        result = await scene.run()

    assert result.outcome is AgentState.FAILED
    assert result.error is not None
    assert "1113" in result.error
    assert result.calls == 0


async def test_a_cut_answer_is_never_stored(stage: Any, replies: Any) -> None:
    async with stage(replies.cut("half of the truth"), replies.text("whole")) as scene:
        await scene.run()

    assert [record.status for record in scene.ledger.calls] == [CallStatus.TRUNCATED, CallStatus.COMPLETED]
    assert "half" not in repr(scene.messages)


@pytest.mark.parametrize(
    ("fields", "environment", "words"),
    [
        pytest.param({"model": ModelSettings(provider="nope", name="m")}, None, "no provider 'nope'", id="provider"),
        pytest.param({}, {}, "SIM_KEY is not set", id="key"),
        pytest.param({"tools": ("read_file", "hammer")}, None, "there is no tool 'hammer'", id="tool"),
    ],
)
async def test_what_is_missing_is_named_and_nobody_is_called(
    stage: Any, fields: dict[str, Any], environment: dict[str, str] | None, words: str
) -> None:
    async with stage() as scene:
        scene.environment = scene.environment if environment is None else environment
        result = await scene.run(**fields)

    assert result.outcome is AgentState.FAILED
    assert words in (result.error or "")
    assert scene.provider.requests == []


async def test_a_bug_in_a_tool_ends_the_agent_and_no_call_lacks_its_result(
    stage: Any, replies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> str:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("covey.actors.tools.files._list", broken)
    async with stage(replies.tools(call("list_files"))) as scene:
        result = await scene.run()

    assert result.outcome is AgentState.FAILED
    assert "ZeroDivisionError('a bug')" in (result.error or "")
    assert len(scene.results_of_tools) == 1


# --- stop ------------------------------------------------------------------------------------------------------------


async def stop(ref: ActorRef) -> None:
    await ref.ask(StopAgent("asked to"), deadline_s=1)


async def test_a_stop_while_calling_ends_the_call_and_stores_no_half(
    stage: Any, replies: Any, until: Callable[..., Any]
) -> None:
    still = replies.cut("half of")
    still.hang = "body"
    async with stage(still) as scene:
        ref = await scene.start()
        await until(lambda: scene.provider.in_flight == 1)
        await stop(ref)
        await ref.stopped(deadline_s=5)

    [result] = scene.results
    assert (result.outcome, result.error) == (AgentState.STOPPED, "asked to")
    assert len(scene.messages) == 1
    assert [record.status for record in scene.ledger.calls] == [CallStatus.CANCELLED]


async def test_a_stop_kills_the_running_command_and_gives_its_call_a_result(
    stage: Any, replies: Any, until: Callable[..., Any]
) -> None:
    command = "echo $$ > pid; sleep 60"
    async with stage(replies.tools(call("terminal", command=command))) as scene:
        ref = await scene.start()
        await until(lambda: (scene.read("pid") or "").endswith("\n"))
        await stop(ref)
        await ref.stopped(deadline_s=5)

        assert not scene.is_alive(int(scene.read("pid")))
    assert scene.results[0].outcome is AgentState.STOPPED
    assert scene.results_of_tools == ["stopped; whether it had an effect is not known"]


async def test_a_stop_while_delegating_stops_the_children(stage: Any, replies: Any, until: Callable[..., Any]) -> None:
    async with stage(replies.tools(call("delegate_task", tasks=[{"goal": "a"}]))) as scene:
        scene.children.answer = lambda spec: None
        ref = await scene.start()
        await until(lambda: scene.children.running == 1)
        await stop(ref)
        await ref.stopped(deadline_s=5)

    assert scene.children.stopped == (scene.children.spawned[0].agent,)


async def test_no_call_starts_after_a_stop_was_accepted_in_whatever_turn(
    stage: Any, replies: Any, until: Callable[..., Any]
) -> None:
    step, outcomes = 0, set()
    while AgentState.DONE not in outcomes:
        async with stage(replies.tools(call("list_files")), replies.text("x")) as scene:
            ref = await scene.start()
            for _ in range(step):
                await asyncio.sleep(0)
            with suppress(ActorDown):  # it may reach its own end before it looks at this mail
                await stop(ref)
            begun = scene.states.count(AgentState.CALLING)
            await ref.stopped(deadline_s=5)

            assert scene.states.count(AgentState.CALLING) == begun
            assert len(scene.provider.requests) <= begun
            await until(lambda provider=scene.provider: provider.in_flight == 0)
            outcomes.add(scene.results[0].outcome)
            asked = {made.id for message in scene.messages for made in message.tool_calls}
            assert asked == {message.tool_call_id for message in scene.messages if message.role is Role.TOOL}
        step += 1

    assert step > 20
    assert outcomes == {AgentState.STOPPED, AgentState.DONE}


# --- resume ----------------------------------------------------------------------------------------------------------

ASKED = Message(
    role=Role.ASSISTANT,
    tool_calls=(
        ToolCall(id="t1", name="terminal", arguments='{"command": "touch again"}'),
        ToolCall(id="t2", name="list_files", arguments="{}"),
    ),
)
REQUEST = Message(role=Role.USER, content="count the sheep")


async def test_a_killed_agent_reports_nothing_and_leaves_nothing_open(
    stage: Any, replies: Any, until: Callable[..., Any]
) -> None:
    async with stage(replies.text("x", hang="headers")) as scene:
        ref = await scene.start()
        await until(lambda: scene.provider.in_flight == 1)
        ref.kill()
        await ref.stopped(deadline_s=5)
        await until(lambda: scene.provider.connections == 0)

    assert scene.results == []
    assert scene.ledger.transcript(SESSION).outcome is None


async def test_resumed_it_repeats_only_what_may_be_repeated(stage: Any, replies: Any) -> None:
    async with stage(replies.text("seven")) as scene:
        scene.store(REQUEST, ASKED)
        result = await scene.run()

        assert scene.read("again") is None
    assert result.text == "seven"
    assert result.turns == 2
    assert scene.results_of_tools == [INTERRUPTED_RESULT, "[the directory is empty]"]


async def test_resumed_after_its_end_it_reports_the_same_and_calls_nobody(stage: Any, replies: Any) -> None:
    async with stage(replies.text("seven")) as scene:
        first = await scene.run()
        scene.results.clear()
        again = await scene.run()

        assert again == first
        assert len(scene.provider.requests) == 1


async def test_a_resumed_parent_asks_for_the_same_children(stage: Any, replies: Any) -> None:
    asked = ToolCall(id="t1", name="delegate_task", arguments='{"tasks": [{"goal": "a"}, {"goal": "b"}]}')
    async with stage(replies.text("x"), replies.text("y")) as scene:
        scene.store(REQUEST, Message(role=Role.ASSISTANT, tool_calls=(asked,)))
        await scene.run()
        first = list(scene.children.spawned)
        scene.ledger.records.clear()
        scene.results.clear()
        scene.store(REQUEST, Message(role=Role.ASSISTANT, tool_calls=(asked,)))
        await scene.run()

        assert scene.children.spawned == first


# --- the ledger does not answer --------------------------------------------------------------------------------------


async def test_a_full_outbox_loses_nothing_and_keeps_the_order(
    stage: Any, replies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.actors.scribe.AGAIN_S", 0.001)
    async with stage(replies.tools(call("list_files")), replies.text("x")) as scene:
        scene.ledger.full_for = 5
        result = await scene.run()

    assert result.outcome is AgentState.DONE
    assert len(scene.messages) == 4
    assert scene.flushed_at_result == [True]


# --- many ------------------------------------------------------------------------------------------------------------


async def test_thirty_agents_take_no_threads_of_their_own(stage: Any, replies: Any) -> None:
    def answer(body: dict[str, Any]) -> Any:
        return replies.text("x") if len(body["messages"]) > 2 else replies.tools(call("list_files"))

    before = threading.active_count()
    async with stage(*[answer] * 60, limit=30) as scene:
        ids = [(f"a{n}", AgentId(f"ag_{n}"), SessionId(f"ses_{n}")) for n in range(30)]
        refs = [await scene.start(name=name, agent=agent, session=session) for name, agent, session in ids]
        for ref in refs:
            await ref.stopped(deadline_s=15)

    assert [result.outcome for result in scene.results] == [AgentState.DONE] * 30
    assert threading.active_count() - before <= 2
    assert len(scene.ledger.calls) == 60
    assert msgspec.json.encode(scene.results)
