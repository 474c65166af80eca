"""Anthropic Messages, read: complete only with `message_stop`, the same however the bytes are sliced, never raising."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.protocol.dialects.anthropic_reader import AnthropicReader
from covey.protocol.dialects.base import Answer, Finish, ReasoningDelta, StreamEvent, TextDelta, ToolCallDelta
from covey.protocol.faults import FaultKind
from covey.protocol.transcript import ToolCall
from covey.protocol.usage import Usage


def event(kind: str, **fields: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **fields}))


def block(index: int, content: Mapping[str, object], *deltas: Mapping[str, object]) -> bytes:
    pieces = [event("content_block_delta", index=index, delta=delta) for delta in deltas]
    opened = event("content_block_start", index=index, content_block=content)
    return opened + b"".join(pieces) + event("content_block_stop", index=index)


def use(index: int, name: str, *pieces: str, whole: object = None) -> bytes:
    content = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": whole or {}}
    return block(index, content, *({"type": "input_json_delta", "partial_json": piece} for piece in pieces))


def closing(reason: str, output: int = 20) -> bytes:
    return event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": output}) + STOP


STOP = event("message_stop")
HEAD = event(
    "message_start",
    message={
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "glm-5.3",
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 30, "cache_read_input_tokens": 10, "output_tokens": 1},
    },
)
PING = event("ping")
HELLO = block(0, {"type": "text", "text": ""}, *({"type": "text_delta", "text": text} for text in ("Grüß", " 你好 🐦")))
THOUGHT = block(
    0,
    {"type": "thinking", "thinking": ""},
    {"type": "thinking_delta", "thinking": "Let me see."},
    {"type": "signature_delta", "signature": "c2lnbmVk"},
)
TWO_CALLS = use(1, "read_file", "", '{"path":', '"a"}') + use(2, "list_files")

STREAMS = {
    "text": HEAD + PING + HELLO + closing("end_turn"),
    "thinking and calls": HEAD + THOUGHT + TWO_CALLS + closing("tool_use"),
    "CRLF": (HEAD + HELLO + closing("end_turn")).replace(b"\n", b"\r\n"),
    "CR": (HEAD + HELLO + closing("end_turn")).replace(b"\n", b"\r"),
    "no space": (HEAD + HELLO + closing("end_turn")).replace(b": ", b":"),
    "no names": (HEAD + HELLO + closing("end_turn")).replace(b"event: ", b"x: "),
    "a mark": b"\xef\xbb\xbf" + (HEAD + HELLO + closing("end_turn")).replace(b"event: message_start\n", b""),
    "blanks and a mark": b" \n\n\n\xef\xbb\xbf" + HEAD + HELLO + closing("end_turn"),
    "comments": b": keep-alive\n\n" + HEAD + b": still here\n\n" + HELLO + closing("end_turn"),
    "no last line end": (HEAD + HELLO + closing("end_turn")).rstrip(b"\n"),
    "no blank lines": (HEAD + HELLO + closing("end_turn")).replace(b"\n\n", b"\n"),
    "data over lines": (HEAD + HELLO + closing("end_turn")).replace(b',"', b',\ndata: "'),
    "error": HEAD + HELLO + event("error", error={"type": "overloaded_error", "message": "Overloaded"}) + STOP,
    "cut JSON": HEAD + b'data: {"type":"content_block_del\ndata: {"type":"ping"}\n\n' + closing("end_turn"),
    "done alone": HEAD + HELLO + b"data: [DONE]\n\n" + STOP,
    "body": b' {"id":"msg_2","type":"message","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn"}',
}
NAMES = sorted(STREAMS)


def read(*slices: bytes) -> tuple[list[StreamEvent], bool, Answer]:
    reader = AnthropicReader()
    events = [shown for piece in slices for shown in reader.feed(piece)]
    return events, reader.is_over, reader.close()


def answer_to(stream: bytes) -> Answer:
    return read(stream)[2]


def test_a_text_comes_with_its_names_and_its_usage() -> None:
    events, is_over, answer = read(STREAMS["text"])

    assert answer == Answer(
        text="Grüß 你好 🐦",
        tool_calls=(),
        finish=Finish.STOP,
        complete=True,
        usage=Usage(input=30, cache_read=10, output=20),
        model="glm-5.3",
        response_id="msg_1",
        fault=None,
    )
    assert events == [TextDelta("Grüß"), TextDelta(" 你好 🐦")]
    assert is_over


def test_what_the_head_says_of_the_answer_is_no_count() -> None:
    answer = answer_to(HEAD + HELLO + event("message_delta", delta={"stop_reason": "end_turn"}) + STOP)

    assert answer.complete
    assert answer.usage is None


def test_tool_calls_come_whole_and_thinking_is_shown_and_kept_only_where_it_is_signed() -> None:
    events, _, answer = read(STREAMS["thinking and calls"])

    assert answer.tool_calls == (
        ToolCall(id="toolu_1", name="read_file", arguments='{"path":"a"}'),
        ToolCall(id="toolu_2", name="list_files", arguments="{}"),
    )
    assert (answer.text, answer.finish) == ("", Finish.TOOL_CALLS)
    assert [shown for shown in events if isinstance(shown, ReasoningDelta)] == [ReasoningDelta("Let me see.")]
    assert "".join(shown.arguments for shown in events if isinstance(shown, ToolCallDelta)) == '{"path":"a"}'
    assert "c2lnbmVk" not in repr(events)
    [block] = answer.signed
    assert msgspec.json.decode(block.data) == {
        "type": "thinking",
        "thinking": "Let me see.",
        "signature": "c2lnbmVk",
    }


def test_arguments_told_with_the_announcement_count_where_no_pieces_follow() -> None:
    told = use(0, "a", whole={"x": 1}) + use(1, "b", '{"y":2}', whole={"y": 1})

    calls = answer_to(HEAD + told + closing("tool_use")).tool_calls

    assert [call.arguments for call in calls] == ['{"x":1}', '{"y":2}']


def test_pieces_of_a_tool_that_the_provider_runs_are_no_call() -> None:
    own = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    told = use(0, "a", "{}") + block(1, own, {"type": "input_json_delta", "partial_json": '{"q":1}'})

    assert [call.name for call in answer_to(HEAD + told + closing("tool_use")).tool_calls] == ["a"]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", Finish.STOP),
        ("stop_sequence", Finish.STOP),
        ("tool_use", Finish.TOOL_CALLS),
        ("max_tokens", Finish.LENGTH),
        ("model_context_window_exceeded", Finish.LENGTH),
        ("refusal", Finish.FILTERED),
        ("stop", Finish.STOP),
        ("something_new", Finish.UNKNOWN),
    ],
)
def test_the_reason_of_the_end_is_translated(reason: str, finish: Finish) -> None:
    answer = answer_to(HEAD + HELLO + closing(reason))

    assert (answer.complete, answer.finish) == (True, finish)


def test_a_reason_that_says_the_answer_broke_off_is_a_fault() -> None:
    answer = answer_to(HEAD + HELLO + closing("network_error"))

    assert not answer.complete
    assert answer.fault is not None
    assert answer.fault.kind is FaultKind.SERVER_ERROR


@pytest.mark.parametrize(
    "name",
    [
        "CRLF",
        "CR",
        "no space",
        "no names",
        "a mark",
        "comments",
        "no last line end",
        "no blank lines",
        "data over lines",
    ],
)
def test_the_framing_changes_nothing(name: str) -> None:
    assert answer_to(STREAMS[name]) == answer_to(STREAMS["text"])


def test_the_end_is_seen_though_the_connection_stays_open() -> None:
    reader = AnthropicReader()

    reader.feed(STREAMS["text"])

    assert reader.is_over
    assert reader.feed(HELLO) == []


def test_an_error_inside_a_success_is_named_and_nothing_after_it_counts() -> None:
    answer = answer_to(STREAMS["error"])

    assert answer.fault is not None
    assert answer.fault.kind is FaultKind.OVERLOADED
    assert (answer.complete, answer.text) == (False, "Grüß 你好 🐦")


@pytest.mark.parametrize("name", ["cut JSON", "done alone"])
def test_an_answer_that_lost_a_piece_or_its_end_is_never_complete(name: str) -> None:
    answer = answer_to(STREAMS[name])

    assert (answer.complete, answer.tool_calls, answer.usage, answer.finish) == (False, (), None, Finish.UNKNOWN)


def test_an_end_that_stands_right_behind_cut_json_completes_nothing() -> None:
    lost = b'data: {"type":"content_block_del\ndata: {"type":"message_stop"}'

    assert not answer_to(HEAD + HELLO + lost).complete


def test_a_body_that_is_no_stream_is_read_as_one() -> None:
    content = [{"type": "text", "text": "Hi"}, {"type": "tool_use", "id": "t", "name": "a", "input": {"x": 1}}]
    usage = {"input_tokens": 3, "output_tokens": 4}
    body = {"id": "msg_3", "type": "message", "content": content, "stop_reason": "tool_use", "usage": usage}

    answer = answer_to(msgspec.json.encode(body))

    assert (answer.text, answer.finish, answer.complete) == ("Hi", Finish.TOOL_CALLS, True)
    assert answer.tool_calls == (ToolCall(id="t", name="a", arguments='{"x":1}'),)
    assert answer.usage == Usage(input=3, output=4)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (
            b'{"type":"error","error":{"type":"rate_limit_error","message":"[1302][High concurrency][x]"}}',
            "concurrency",
        ),
        (b'{"code":1305,"msg":"busy"}', "overloaded"),
        (b"<html>no</html>", "invalid_response"),
        (b'{"hello":1}', "invalid_response"),
    ],
)
def test_a_body_that_is_no_answer_is_a_fault(body: bytes, kind: str) -> None:
    answer = answer_to(body)

    assert not answer.complete
    assert answer.fault is not None
    assert answer.fault.kind == kind


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_byte_by_byte_gives_the_same(name: str) -> None:
    body = STREAMS[name]

    assert read(*(body[i : i + 1] for i in range(len(body)))) == read(body)


@settings(max_examples=200, deadline=None)
@given(name=st.sampled_from(NAMES), cuts=st.lists(st.integers(0, 2500), max_size=20))
def test_a_stream_in_any_slices_gives_the_same(name: str, cuts: list[int]) -> None:
    body = STREAMS[name]
    edges = sorted({0, *(min(cut, len(body)) for cut in cuts), len(body)})

    assert read(*(body[start:end] for start, end in pairwise(edges)), b"") == read(body)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "body"])
def test_a_stream_cut_off_anywhere_before_its_end_is_never_complete(name: str) -> None:
    body = STREAMS[name]
    end = body.rfind(b"message_stop") + len(b'message_stop"')

    for cut in range(end):
        answer = answer_to(body[:cut])
        assert (answer.complete, answer.tool_calls, answer.usage, answer.finish) == (False, (), None, Finish.UNKNOWN)


@settings(max_examples=200, deadline=None)
@given(slices=st.lists(st.binary(max_size=60), max_size=10))
def test_arbitrary_bytes_never_raise_and_are_never_complete(slices: list[bytes]) -> None:
    assert not read(*slices)[2].complete


@settings(max_examples=200, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    at=st.floats(0, 1),
    junk=st.sampled_from([b"\x00", b"}", b'"', b"\n", b"\xff", b"[", b"null", b"\\ud800", b"[" * 2000, b"1e999"]),
)
def test_a_damaged_stream_never_raises(name: str, at: float, junk: bytes) -> None:
    place = int(len(STREAMS[name]) * at)

    read(STREAMS[name][:place] + junk + STREAMS[name][place:])
