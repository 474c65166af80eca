"""Every stream of the corpus gives its expected answer, however its bytes are sliced."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.protocol.dialects.base import Answer, Finish, ReasoningDelta, StreamEvent, TextDelta, ToolCallDelta
from covey.protocol.dialects.chat_reader import ChatReader
from covey.protocol.transcript import ToolCall
from covey.protocol.usage import Usage

CORPUS = Path(__file__).parent / "corpus" / "chat"
NAMES = sorted(path.stem for path in CORPUS.glob("*.sse"))
BODIES = {name: (CORPUS / f"{name}.sse").read_bytes() for name in NAMES}


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a corpus file promises."""

    situation: str
    text: str
    tool_calls: tuple[ToolCall, ...]
    finish: Finish
    complete: bool
    usage: Usage | None
    model: str | None
    response_id: str | None
    fault: str | None
    code: str | None
    reasoning: str
    is_over: bool


def expected(name: str) -> Expected:
    return msgspec.json.decode((CORPUS / f"{name}.json").read_bytes(), type=Expected)


def read(*slices: bytes) -> tuple[list[StreamEvent], bool, Answer]:
    reader = ChatReader()
    events = [event for piece in slices for event in reader.feed(piece)]
    return events, reader.is_over, reader.close()


def test_the_corpus_has_an_expectation_for_every_stream() -> None:
    assert len(NAMES) >= 60
    assert {path.stem for path in CORPUS.glob("*.json")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_gives_its_answer(name: str) -> None:
    wanted = expected(name)

    events, is_over, answer = read(BODIES[name])

    assert answer.text == wanted.text
    assert answer.tool_calls == wanted.tool_calls
    assert answer.finish is wanted.finish
    assert answer.complete is wanted.complete
    assert answer.usage == wanted.usage
    assert (answer.model, answer.response_id) == (wanted.model, wanted.response_id)
    assert (answer.fault.kind if answer.fault else None) == wanted.fault
    assert (answer.fault.code if answer.fault else None) == wanted.code
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == wanted.reasoning
    assert is_over is wanted.is_over


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_byte_by_byte_gives_the_same(name: str) -> None:
    body = BODIES[name]

    assert read(*(body[i : i + 1] for i in range(len(body)))) == read(body)


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_cut_in_two_anywhere_gives_the_same(name: str) -> None:
    body = BODIES[name]
    whole = read(body)

    assert all(read(body[:cut], body[cut:]) == whole for cut in range(0, len(body), 7))


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(NAMES), cuts=st.lists(st.integers(0, 4000), max_size=30))
def test_a_stream_in_any_slices_gives_the_same(name: str, cuts: list[int]) -> None:
    body = BODIES[name]
    edges = sorted({0, *(min(cut, len(body)) for cut in cuts), len(body)})

    sliced = read(*(body[start:end] for start, end in pairwise(edges)), b"")

    assert sliced == read(body)


@settings(max_examples=200, deadline=None)
@given(name=st.sampled_from(NAMES), cut=st.floats(0, 1))
def test_a_stream_cut_off_anywhere_is_complete_only_with_its_terminal_fact(name: str, cut: float) -> None:
    body = BODIES[name][: int(len(BODIES[name]) * cut)]

    _, _, answer = read(body)

    if not answer.complete:
        assert answer.tool_calls == ()
        assert answer.usage is None
        assert answer.finish is Finish.UNKNOWN
    elif not body.lstrip().startswith(b"{"):
        assert b"[DONE]" in body or b"finish_reason" in body
        assert answer.fault is None


# A body that is no stream, and events that only the end completes, show nothing before it: by design.
@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(("body_", "no_blank_lines"))])
def test_the_shown_deltas_are_the_answer(name: str) -> None:
    events, _, answer = read(BODIES[name])

    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == answer.text
    for index, call in enumerate(answer.tool_calls):
        pieces = [event for event in events if isinstance(event, ToolCallDelta) and event.index == index]
        assert ("".join(piece.arguments for piece in pieces) or "{}") == call.arguments


@settings(max_examples=200, deadline=None)
@given(slices=st.lists(st.binary(max_size=60), max_size=10))
def test_arbitrary_bytes_never_raise_and_are_never_complete_by_chance(slices: list[bytes]) -> None:
    _, _, answer = read(*slices)

    assert not answer.complete or b"[DONE]" in b"".join(slices)


@settings(max_examples=200, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    at=st.floats(0, 1),
    junk=st.sampled_from([b"\x00", b"}", b'"', b"\n", b"\xff", b"[", b"null", b"\\ud800", b"[" * 2000, b"1e999"]),
)
def test_a_damaged_stream_never_raises(name: str, at: float, junk: bytes) -> None:
    body = BODIES[name]
    place = int(len(body) * at)

    read(body[:place] + junk + body[place:])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 100])
def test_a_blank_before_a_byte_order_mark_reads_the_same_in_any_pieces(size: int) -> None:
    body = b' \xef\xbb\xbf{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}'

    def complete(pieces: list[bytes]) -> bool:
        reader = ChatReader()
        for piece in pieces:
            reader.feed(piece)
        return reader.close().complete

    assert complete([body[at : at + size] for at in range(0, len(body), size)]) == complete([body])


def test_a_piece_that_is_cut_by_the_next_line_at_the_very_end_is_not_whole() -> None:
    reader = ChatReader()
    reader.feed(b'data: {"choices":[{"delta":{"content":"a\n')
    reader.feed(b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}')

    assert not reader.close().complete
