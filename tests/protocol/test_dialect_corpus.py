"""Every stream of the corpus gives its expected answer in its dialect, however its bytes are sliced."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise

import pytest
from dialect_corpus import ASKED, CORPUS, STREAMS, Stream
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.protocol.dialects.base import Answer, Finish, ReasoningDelta, StreamEvent, TextDelta, ToolCallDelta
from covey.protocol.dialects.registry import wire_dialect
from covey.protocol.settings import Dialect

Reading = tuple[list[StreamEvent], bool, Answer]

SHORT = 900
"""Bytes of a stream that is cut at every one of them."""

each_stream = pytest.mark.parametrize("stream", STREAMS, ids=str)
each_dialect = pytest.mark.parametrize("dialect", Dialect)


@cache
def whole(place: int) -> Reading:
    return STREAMS[place].read(STREAMS[place].body)


def whole_of(stream: Stream) -> Reading:
    return whole(STREAMS.index(stream))


def slices_of(body: bytes, cuts: list[float]) -> list[bytes]:
    edges = sorted({0, *(int(len(body) * cut) for cut in cuts), len(body)})
    return [body[start:end] for start, end in pairwise(edges)]


def test_the_corpus_has_streams_of_every_dialect_and_an_expectation_for_each() -> None:
    counts = [sum(stream.dialect is dialect for stream in STREAMS) for dialect in Dialect]

    assert min(counts) >= 60
    assert {path.with_suffix("") for path in CORPUS.glob("*/*.json")} == {
        CORPUS / stream.dialect.value / stream.name for stream in STREAMS
    }
    assert len({(stream.dialect, stream.expected.situation) for stream in STREAMS}) == len(STREAMS)


# --- what comes out --------------------------------------------------------------------------------------------------


@each_stream
def test_a_stream_gives_its_answer(stream: Stream) -> None:
    wanted = stream.expected

    events, is_over, answer = whole_of(stream)

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


@each_stream
def test_a_stream_gives_the_blocks_that_are_wanted_back_and_no_other_reasoning(stream: Stream) -> None:
    answer = whole_of(stream)[2]

    assert tuple(json.loads(block.data) for block in answer.signed) == stream.expected.signed
    assert {(block.dialect, block.model) for block in answer.signed} <= {(stream.dialect, ASKED)}
    assert not stream.expected.reasoning or stream.expected.reasoning not in answer.text


@each_stream
def test_the_shown_deltas_are_the_answer(stream: Stream) -> None:
    events, _, answer = whole_of(stream)

    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    pieces: dict[int, str] = {}
    for event in events:
        if isinstance(event, ToolCallDelta):
            pieces[event.index] = pieces.get(event.index, "") + event.arguments

    if not stream.expected.is_shown:
        assert (said, "".join(pieces.values())) == ("", "")
        return
    assert said == answer.text
    assert [pieces[index] or "{}" for index, _ in enumerate(answer.tool_calls)] == [
        call.arguments for call in answer.tool_calls
    ]


# --- slices ----------------------------------------------------------------------------------------------------------


@each_stream
def test_a_stream_byte_by_byte_gives_the_same(stream: Stream) -> None:
    body = stream.body

    assert stream.read(*(body[i : i + 1] for i in range(len(body)))) == whole_of(stream)


@settings(max_examples=500, deadline=None)
@given(stream=st.sampled_from(STREAMS), cuts=st.lists(st.floats(0, 1), max_size=30))
def test_a_stream_in_any_slices_gives_the_same(stream: Stream, cuts: list[float]) -> None:
    assert stream.read(*slices_of(stream.body, cuts), b"") == whole_of(stream)


# --- cuts ------------------------------------------------------------------------------------------------------------


def is_as_good_as_whole(stream: Stream, answer: Answer) -> bool:
    """Whether an answer that calls itself complete lacks nothing but what may follow the end in its dialect."""
    complete = whole_of(stream)[2]
    if stream.dialect is not Dialect.CHAT:
        return answer == complete
    if complete.fault is not None:
        return answer.finish is not Finish.UNKNOWN  # There was an end, and then an error.
    # A report of usage may stand behind the reason, and so may a better one.
    return (answer.text, answer.tool_calls, answer.finish) == (complete.text, complete.tool_calls, complete.finish)


@each_stream
def test_a_stream_cut_off_anywhere_is_complete_only_with_its_terminal_fact(stream: Stream) -> None:
    body = stream.body
    step = 1 if len(body) <= SHORT else 17

    for cut in range(0, len(body), step):
        _, _, answer = stream.read(body[:cut])

        if answer.complete:
            assert is_as_good_as_whole(stream, answer), cut
        else:
            assert (answer.tool_calls, answer.usage, answer.signed) == ((), None, ()), cut
            assert answer.finish is Finish.UNKNOWN


# --- anything --------------------------------------------------------------------------------------------------------


@each_dialect
@settings(max_examples=100, deadline=None)
@given(slices=st.lists(st.binary(max_size=60), max_size=10))
def test_arbitrary_bytes_never_raise_and_are_never_complete_by_chance(dialect: Dialect, slices: list[bytes]) -> None:
    reader = wire_dialect(dialect).reader()
    for piece in slices:
        reader.feed(piece)

    answer = reader.close()

    assert not answer.complete or (dialect is Dialect.CHAT and b"[DONE]" in b"".join(slices))


JUNK = [b"\x00", b"}", b'"', b"\n", b"\xff", b"[", b"null", b"\\ud800", b"[" * 2000, b"1e999"]


@settings(max_examples=400, deadline=None)
@given(stream=st.sampled_from(STREAMS), at=st.floats(0, 1), junk=st.sampled_from(JUNK), cuts=st.lists(st.floats(0, 1)))
def test_a_damaged_stream_never_raises_and_reads_the_same_in_any_slices(
    stream: Stream, at: float, junk: bytes, cuts: list[float]
) -> None:
    place = int(len(stream.body) * at)
    body = stream.body[:place] + junk + stream.body[place:]

    assert stream.read(*slices_of(body, cuts)) == stream.read(body)


# --- odd beginnings and ends -----------------------------------------------------------------------------------------


WHOLE = {
    Dialect.CHAT: b'{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}',
    Dialect.ANTHROPIC: b'{"type":"message","content":[{"type":"text","text":"a"}],"stop_reason":"end_turn"}',
    Dialect.RESPONSES: b'{"status":"completed","output":[]}',
}


@pytest.mark.parametrize("size", [1, 2, 3, 4, 100])
@pytest.mark.parametrize(
    "front", [b"\xef\xbb\xbf", b" \xef\xbb\xbf", b"\r\n\t "], ids=["mark", "blank, mark", "blanks"]
)
@each_dialect
def test_what_stands_before_a_body_reads_the_same_in_any_pieces(dialect: Dialect, front: bytes, size: int) -> None:
    body = front + WHOLE[dialect]

    def complete(pieces: list[bytes]) -> bool:
        reader = wire_dialect(dialect).reader()
        for piece in pieces:
            reader.feed(piece)
        return reader.close().complete

    assert complete([body[at : at + size] for at in range(0, len(body), size)]) == complete([body])


LOST = {
    Dialect.CHAT: (
        b'data: {"choices":[{"delta":{"content":"a\n',
        b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}',
    ),
    Dialect.ANTHROPIC: (b'data: {"type":"content_block_del\n', b'data: {"type":"message_stop"}'),
    Dialect.RESPONSES: (
        b'data: {"type":"response.output_te\n',
        b'data: {"type":"response.completed","response":{"output":[]}}',
    ),
}


@each_dialect
def test_a_piece_that_is_cut_by_the_next_line_at_the_very_end_is_not_whole(dialect: Dialect) -> None:
    reader = wire_dialect(dialect).reader()
    for line in LOST[dialect]:
        reader.feed(line)

    assert not reader.close().complete
