"""Sessions as people read them: bounded, and harmless to a terminal whatever models and tools wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.protocol.ids import AgentId, SessionId
from covey.protocol.messages.ledger import MessageRow, Place, SearchHit, SessionRow, Totals
from covey.protocol.transcript import Message, Role, ToolCall
from covey.supervisor.cli.sessions_search import hit_json, hit_text
from covey.supervisor.cli.sessions_show import head_lines, transcript_parts
from covey.supervisor.cli.sessions_words import GOAL_CHARS, LONG_CHARS, first_line, shortened, totals_words, visible

ESCAPE = "\x1b]0;owned\x07\x1b[2J"


@given(st.text())
def test_no_text_makes_a_terminal_do_anything_but_print_it(text: str) -> None:
    assert not {char for char in visible(text) if ord(char) < 32 or 127 <= ord(char) < 160} - {"\n", "\t"}


@given(st.text())
def test_a_first_line_is_one_line_of_bounded_length(text: str) -> None:
    assert len(first_line(text)) <= GOAL_CHARS
    assert "\n" not in first_line(text)


def test_a_long_message_is_shortened_unless_all_is_wanted() -> None:
    long = "x" * (LONG_CHARS + 1234)

    assert shortened(long, full=False).endswith("… 1,234 more characters (--full)")
    assert shortened(long, full=True) == long


def test_a_transcript_says_who_spoke_and_which_tool_answered() -> None:
    called = Message(role=Role.ASSISTANT, content="I look", tool_calls=(ToolCall(id="c", name="dir", arguments="{}"),))
    rows = (
        MessageRow(index=0, message=Message(role=Role.USER, content="go"), at_ms=0),
        MessageRow(index=1, message=called, at_ms=0),
        MessageRow(index=2, message=Message(role=Role.TOOL, content=f"a{ESCAPE}", tool_call_id="c"), at_ms=0),
        MessageRow(index=3, message=Message(role=Role.USER, content="hush"), at_ms=0, display_kind="hidden"),
    )

    shown = [part.plain for part in transcript_parts(rows, full=False)]

    assert shown == ["\n[0] user", "go", "\n[1] assistant", "I look", "→ dir({})", "\n[2] tool dir", "a·]0;owned··[2J"]
    assert "\n[3] user (hidden)" in [part.plain for part in transcript_parts(rows, full=True)]


def test_a_session_s_head_has_its_end_its_children_and_what_its_tree_used() -> None:
    def row(session: str, outcome: str | None, error: str | None = None) -> SessionRow:
        return SessionRow(
            place=Place(activity=1, row=1),
            session=SessionId(session),
            agent=AgentId("ag_1"),
            goal="count\ngeese",
            provider="p",
            model="m",
            outcome=outcome,
            error=error,
            opened_at_ms=0,
        )

    totals = Totals(calls=3, unknown_calls=1, refused_calls=0, prompt_tokens=1000, completion_tokens=5, sessions=2)
    lines = list(head_lines(row("ses_1", "failed", "no geese"), totals, (row("ses_2", None),), now=0.0))

    assert lines[0] == "session   ses_1, failed: no geese"
    assert lines[1] == "goal      count geese"
    assert "children  ses_2 (open)" in lines
    assert lines[-1] == "tree      2 sessions, 3 calls (1 with unknown usage), 1,000 tokens in, 5 out, cost unknown"


@pytest.mark.parametrize(
    ("known", "words"), [(3, "$0.5000"), (2, "$0.5000 for 2 of 3 calls")], ids=["all calls", "some calls"]
)
def test_a_cost_says_how_many_calls_it_is_of(known: int, words: str) -> None:
    totals = Totals(
        calls=3,
        unknown_calls=0,
        refused_calls=0,
        prompt_tokens=1,
        completion_tokens=1,
        sessions=1,
        cost_usd=0.5,
        cost_known_calls=known,
    )

    assert totals_words(totals).endswith(f", {words}")


def test_a_hit_is_one_line_for_people_and_places_for_programs() -> None:
    hit = SearchHit(
        row=7,
        session=SessionId("ses_1"),
        index=2,
        role="tool",
        at_ms=0,
        snippet="…seven\n\x02geese\x03 and\x1b a \x02goose\x03",
    )

    assert hit_text(hit, now=0.0).plain.endswith("…seven geese and· a goose")
    said = hit_json(hit)
    assert [said["snippet"][begin:end] for begin, end in said["matches"]] == ["geese", "goose"]
