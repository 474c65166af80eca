"""How a kept session goes on: as itself while it is open, else in a new one with a history that a provider takes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from covey.protocol.errors import UsageError
from covey.protocol.ids import AgentId, SessionId
from covey.protocol.messages.ledger import Place, SessionRow, Transcript
from covey.protocol.transcript import INTERRUPTED_RESULT, Message, Role, ToolCall, repair
from covey.supervisor.home import Home
from covey.supervisor.resume import BeginAnew, GoOn, left_spools, plan, taken_in

ASKED = Message(role=Role.USER, content="count geese")
CALLED = Message(role=Role.ASSISTANT, tool_calls=(ToolCall(id="c1", name="terminal", arguments="{}"),))
COUNTED = Message(role=Role.TOOL, content="seven", tool_call_id="c1")
ANSWERED = Message(role=Role.ASSISTANT, content="seven geese")


def row(*, outcome: str | None, agent: str | None = "ag_1") -> SessionRow:
    return SessionRow(
        place=Place(activity=1, row=1),
        session=SessionId("ses_1"),
        agent=AgentId(agent) if agent else None,
        outcome=outcome,
    )


def said(text: str) -> Message:
    return Message(role=Role.USER, content=text)


def test_an_open_session_goes_on_as_itself() -> None:
    assert plan(row(outcome=None), Transcript(messages=(ASKED, CALLED)), None) == GoOn(2, None)


def test_a_new_word_takes_the_next_place_also_behind_a_summary() -> None:
    compacted = Transcript(messages=(ASKED, ANSWERED), next_index=9)

    assert plan(row(outcome=None), compacted, "and swans") == GoOn(9, said("and swans"))


def test_before_its_first_message_a_session_still_begins_with_its_goal() -> None:
    assert plan(row(outcome=None), Transcript(), "and swans") == GoOn(0, None)


@pytest.mark.parametrize("outcome", ["done", "failed", "stopped", "cap_reached"])
def test_a_session_that_ended_begins_anew_with_what_was_said(outcome: str) -> None:
    history = (ASKED, CALLED, COUNTED, ANSWERED)

    assert plan(row(outcome=outcome), Transcript(messages=history), "and swans") == BeginAnew(
        (*history, said("and swans"))
    )


def test_one_that_failed_among_its_tools_goes_on_without_a_word() -> None:
    found = plan(row(outcome="failed"), Transcript(messages=(ASKED, CALLED, COUNTED)), None)

    assert found == BeginAnew((ASKED, CALLED, COUNTED))


def test_what_is_copied_is_a_history_that_a_provider_takes() -> None:
    system = Message(role=Role.SYSTEM, content="be kind")

    found = plan(row(outcome="failed"), Transcript(messages=(system, ASKED, CALLED)), "again")

    assert isinstance(found, BeginAnew)
    assert repair(found.messages) == found.messages
    assert [message.content for message in found.messages] == ["count geese", "", INTERRUPTED_RESULT, "again"]


def test_a_session_of_another_program_is_copied_even_while_it_is_open() -> None:
    found = plan(row(outcome=None, agent=None), Transcript(messages=(ASKED, ANSWERED)), "and swans")

    assert found == BeginAnew((ASKED, ANSWERED, said("and swans")))


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        pytest.param((), "go", id="no transcript"),
        pytest.param((ASKED, ANSWERED), None, id="the last word was said"),
        pytest.param((ASKED, ANSWERED), "  ", id="a word that says nothing"),
    ],
)
def test_where_there_is_nothing_to_go_on_with_it_is_refused(messages: tuple[Message, ...], text: str | None) -> None:
    with pytest.raises(UsageError, match="ses_1"):
        plan(row(outcome="done"), Transcript(messages=messages), text)


def test_what_an_earlier_fleet_left_is_waited_for_until_the_ledger_took_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.prepare()
    spool = home.outbox / "worker.spool"
    spool.touch()

    async def watch() -> None:
        waiting = asyncio.ensure_future(taken_in(left_spools(home), timeout_s=20))
        done, _ = await asyncio.wait([waiting], timeout=0.1)
        assert not done
        spool.unlink()
        await asyncio.wait_for(waiting, 5)

    asyncio.run(watch())


def test_a_spool_whose_owner_lives_is_not_waited_for_without_end(tmp_path: Path) -> None:
    (tmp_path / "client.spool").touch()

    asyncio.run(asyncio.wait_for(taken_in([tmp_path / "client.spool"], timeout_s=0.1), 5))
