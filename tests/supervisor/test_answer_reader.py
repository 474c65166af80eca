"""Reading an answer in passing: its tokens, its names, its end, in all dialects and however its bytes were cut."""

from __future__ import annotations

import gzip
import itertools
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.protocol.faults import FaultKind
from covey.protocol.usage import Usage
from covey.supervisor.answer_reader import MAX_BODY_BYTES, AnswerReader

STREAM = "text/event-stream; charset=utf-8"


def events(*pairs: tuple[str | None, Any]) -> bytes:
    """A stream of named and unnamed events."""
    return b"".join(
        (f"event: {name}\n" if name else "").encode()
        + b"data: "
        + (data.encode() if isinstance(data, str) else json.dumps(data).encode())
        + b"\n\n"
        for name, data in pairs
    )


CHAT = events(
    (None, {"id": "c1", "model": "m-1", "choices": [{"index": 0, "delta": {"content": "hé"}}]}),
    (None, {"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    (None, {"id": "c1", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}),
    (None, "[DONE]"),
)
MESSAGES = events(
    (
        "message_start",
        {
            "type": "message_start",
            "message": {
                "id": "c1",
                "model": "m-1",
                "usage": {"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 1},
            },
        },
    ),
    ("ping", {"type": "ping"}),
    ("content_block_delta", {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hé"}}),
    ("message_delta", {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 2}}),
    ("message_stop", {"type": "message_stop"}),
)
RESPONSES = events(
    ("response.created", {"type": "response.created", "response": {"id": "c1", "model": "m-1", "error": None}}),
    ("response.output_text.delta", {"type": "response.output_text.delta", "delta": "hé"}),
    (
        "response.completed",
        {
            "type": "response.completed",
            "response": {
                "id": "c1",
                "model": "m-1",
                "usage": {
                    "input_tokens": 7,
                    "input_tokens_details": {"cached_tokens": 2},
                    "output_tokens": 2,
                    "total_tokens": 9,
                },
            },
        },
    ),
)
PLAIN, CACHED = Usage(input=7, output=2), Usage(input=5, output=2, cache_read=2)


def read(body: bytes, *, content_type: str = STREAM, encoding: str = "", cuts: tuple[int, ...] = ()) -> AnswerReader:
    reader = AnswerReader(content_type=content_type, content_encoding=encoding)
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    for start, end in itertools.pairwise(edges):
        reader.feed(body[start:end])
    reader.close()
    return reader


@pytest.mark.parametrize(
    ("body", "usage"),
    [
        pytest.param(CHAT, PLAIN, id="chat completions"),
        pytest.param(MESSAGES, CACHED, id="Anthropic messages"),
        pytest.param(RESPONSES, CACHED, id="Responses"),
    ],
)
@given(cuts=st.lists(st.integers(0, 900), max_size=12).map(tuple))
def test_a_stream_is_read_the_same_however_it_is_cut(body: bytes, usage: Usage, cuts: tuple[int, ...]) -> None:
    reader = read(body, cuts=cuts)

    assert (reader.usage, reader.model, reader.response_id) == (usage, "m-1", "c1")
    assert (reader.is_over, reader.fault) == (True, None)


@pytest.mark.parametrize(
    ("body", "usage"),
    [
        pytest.param({"choices": [{}], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}, PLAIN, id="chat"),
        pytest.param(
            {
                "type": "message",
                "usage": {"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 2},
            },
            CACHED,
            id="Anthropic messages",
        ),
        pytest.param(
            {
                "object": "response",
                "error": None,
                "usage": {"input_tokens": 7, "input_tokens_details": {"cached_tokens": 2}, "output_tokens": 2},
            },
            CACHED,
            id="Responses",
        ),
        pytest.param({"object": "list", "data": []}, None, id="something else"),
        pytest.param([1, 2], None, id="no object"),
    ],
)
def test_a_whole_body_is_read_at_its_end(body: object, usage: Usage | None) -> None:
    reader = read(json.dumps(body).encode(), content_type="application/json", cuts=(3, 20))

    assert (reader.usage, reader.fault, reader.is_over) == (usage, None, True)


@pytest.mark.parametrize(
    ("name", "event", "kind"),
    [
        pytest.param(None, {"error": {"code": "1302", "message": "High"}}, FaultKind.CONCURRENCY, id="chat"),
        pytest.param(
            "error",
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            FaultKind.OVERLOADED,
            id="Anthropic messages",
        ),
        pytest.param(
            "response.failed",
            {"type": "response.failed", "response": {"id": "r", "error": {"code": "server_error", "message": "no"}}},
            FaultKind.SERVER_ERROR,
            id="Responses",
        ),
    ],
)
@given(cuts=st.lists(st.integers(0, 120), max_size=6).map(tuple))
def test_an_error_in_a_stream_that_began_as_a_success_is_named(
    name: str | None, event: dict[str, Any], kind: FaultKind, cuts: tuple[int, ...]
) -> None:
    reader = read(events((name, event)), cuts=cuts)

    assert reader.fault is not None
    assert (reader.fault.kind, reader.is_over) == (kind, True)


@pytest.mark.parametrize(
    ("encoding", "encode"),
    [
        pytest.param("gzip", gzip.compress, id="gzip"),
        pytest.param("deflate", zlib.compress, id="deflate"),
        pytest.param("identity", bytes, id="identity"),
    ],
)
def test_an_encoded_stream_is_read_as_well(encoding: str, encode: Any) -> None:
    assert read(encode(CHAT), encoding=encoding, cuts=(1, 5, 40)).usage == PLAIN


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        pytest.param(b"\x1f\x8bgarbage", "gzip", id="broken gzip"),
        pytest.param(CHAT, "br", id="an encoding we do not know"),
        pytest.param(gzip.compress(b" " * (MAX_BODY_BYTES + 9)), "gzip", id="a bomb"),
    ],
)
def test_what_cannot_be_read_leaves_everything_unknown(body: bytes, encoding: str) -> None:
    reader = read(body, content_type="application/json", encoding=encoding)

    assert (reader.usage, reader.fault) == (None, None)


def test_a_stream_that_stops_before_its_end_has_no_tokens_and_is_not_over() -> None:
    reader = read(MESSAGES[: MESSAGES.index(b"event: message_delta")])

    assert (reader.usage, reader.is_over, reader.model) == (None, False, "m-1")


@given(body=st.binary(max_size=300), content_type=st.sampled_from([STREAM, "application/json", ""]))
def test_no_bytes_make_it_raise(body: bytes, content_type: str) -> None:
    read(body, content_type=content_type, cuts=(7, 50))
