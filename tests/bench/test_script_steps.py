"""Steps in prompts: what counts as one, and what cannot be read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.bench.script_steps import Steps, ToolUse, UnreadableStep, prose, steps, tool_uses

ARGUMENTS = st.dictionaries(st.text(max_size=8), st.text(max_size=20) | st.integers() | st.none(), max_size=3)
USES = st.lists(st.tuples(st.from_regex(r"[a-z_]{1,12}", fullmatch=True), ARGUMENTS), min_size=1, max_size=4)


@given(USES)
def test_what_was_written_is_what_is_read_whatever_the_arguments_hold(
    uses: list[tuple[str, dict[str, object]]],
) -> None:
    text = " && ".join(f"{name} {json.dumps(arguments)}" for name, arguments in uses)

    assert [(use.name, json.loads(use.arguments)) for use in tool_uses(text)] == uses
    assert steps(f"Do it.\nuse: {text}\nThanks.").turns == (tool_uses(text),)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("list_files", id="no arguments"),
        pytest.param('list_files {"path": "."', id="arguments not closed"),
        pytest.param("list_files {path: .}", id="arguments no JSON"),
        pytest.param('list_files {"path": "."} read_file {}', id="no && between"),
        pytest.param('list_files {"path": "."} && ', id="nothing after &&"),
        pytest.param("", id="nothing"),
    ],
)
def test_a_tool_call_that_does_not_parse_is_an_error(text: str) -> None:
    with pytest.raises(UnreadableStep):
        tool_uses(text)


@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param("use: the force", id="prose that begins with use:"),
        pytest.param("I use: list_files {}", id="use: inside a line"),
        pytest.param("Use: list_files {}", id="upper case"),
        pytest.param("turns: a few", id="turns: without a number"),
        pytest.param("", id="nothing"),
    ],
)
def test_prose_is_no_step(prompt: str) -> None:
    assert steps(prompt) == Steps()


def test_says_are_one_text_and_turns_a_number() -> None:
    assert steps("say: a\n  say:  b \nturns: 7") == Steps(say="a\nb", calls=7)


def test_a_say_without_text_is_an_empty_answer() -> None:
    assert steps("say:").say == ""


def test_the_quoted_line_is_the_first_that_is_no_step() -> None:
    assert prose("use: f {}\n\n Find it. \nsay: x") == "Find it."
    assert prose("say: x") == "say: x"
    assert prose("  \n") == ""


def test_arguments_keep_their_own_spelling() -> None:
    assert tool_uses('f {"a" :1}') == (ToolUse(name="f", arguments='{"a" :1}'),)
