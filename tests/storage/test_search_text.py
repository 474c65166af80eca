"""What people type into a search, as an expression that FTS5 takes."""

from __future__ import annotations

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.storage.search_text import MAX_TERMS, expression


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("two words", '"two" "words"', id="words are all looked for"),
        pytest.param('say "side by side" now', '"say" "side by side" "now"', id="quoted words stand side by side"),
        pytest.param('begin* "the end"*', '"begin"* "the end"*', id="a star is a beginning"),
        pytest.param('an "open quote', '"an" "open quote"', id="a quote that nobody closed"),
        pytest.param("a AND b OR NOT c", '"a" "AND" "b" "OR" "NOT" "c"', id="operators are words"),
        pytest.param("content:x ^y (z) -w", '"content:x" "^y" "(z)" "-w"', id="syntax is text"),
        pytest.param('*** "" ++ \'', None, id="nothing but signs"),
        pytest.param("  ", None, id="nothing"),
        pytest.param("nul\0here", '"nul" "here"', id="a NUL parts words"),
        pytest.param("lone \ud800 half", '"lone" "half"', id="what is no character is left out"),
        pytest.param("Wörter 字", '"Wörter" "字"', id="letters of all scripts"),
    ],
)
def test_text_becomes_an_expression(text: str, expected: str | None) -> None:
    assert expression(text) == expected


def test_long_text_is_cut() -> None:
    assert (expression("w " * 5000) or "").count(" ") == MAX_TERMS - 1
    assert expression("x" * 5000) == f'"{"x" * 2048}"'


_fts = apsw.Connection(":memory:")
_fts.execute("CREATE VIRTUAL TABLE f USING fts5(content)")


@given(st.text(st.sampled_from("ab\"*^:-+(){}\\'\0\ud800 NEARORD字"), max_size=40) | st.text())
def test_no_text_makes_a_wrong_expression(text: str) -> None:
    found = expression(text)

    if found is not None:
        assert _fts.execute("SELECT * FROM f WHERE f MATCH ?", (found,)).fetchall() == []
