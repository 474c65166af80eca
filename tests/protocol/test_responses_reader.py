"""OpenAI Responses, read: complete only with its last event, the same however the bytes are sliced, never raising."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.protocol.dialects.base import Answer, Finish, ReasoningDelta, StreamEvent, TextDelta, ToolCallDelta
from covey.protocol.dialects.responses_reader import ResponsesReader
from covey.protocol.faults import FaultKind
from covey.protocol.transcript import ToolCall
from covey.protocol.usage import Usage

COUNTS = {
    "input_tokens": 40,
    "input_tokens_details": {"cached_tokens": 10},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 60,
}
USED = Usage(input=30, cache_read=10, output=15, reasoning=5)
MESSAGE = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "Grüß 你好 🐦"}]}


def event(kind: str, **fields: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **fields}))


def response(status: str, **fields: object) -> dict[str, object]:
    return {"id": "resp_1", "object": "response", "model": "gpt-5", "status": status, "error": None, **fields}


def end(status: str, **fields: object) -> bytes:
    return event(f"response.{status}", response=response(status, **{"output": [], "usage": COUNTS, **fields}))


def item(index: int, name: str, arguments: str = "") -> dict[str, object]:
    return {
        "type": "function_call",
        "id": f"fc_{index}",
        "call_id": f"call_{index}",
        "name": name,
        "arguments": arguments,
    }


def call(index: int, name: str, *pieces: str) -> bytes:
    said = {"output_index": index, "item_id": f"fc_{index}"}
    whole = "".join(pieces)
    return (
        event("response.output_item.added", output_index=index, item=item(index, name))
        + b"".join(event("response.function_call_arguments.delta", **said, delta=piece) for piece in pieces)
        + event("response.function_call_arguments.done", **said, arguments=whole)
        + event("response.output_item.done", output_index=index, item=item(index, name, whole))
    )


HEAD = event("response.created", response=response("in_progress")) + event(
    "response.in_progress", response=response("in_progress")
)
HELLO = b"".join(event("response.output_text.delta", output_index=0, delta=text) for text in ("Grüß", " 你好 🐦"))
THOUGHT = event("response.reasoning_summary_text.delta", output_index=0, delta="Let me see.") + event(
    "response.output_item.done", output_index=0, item={"type": "reasoning", "encrypted_content": "c2VjcmV0"}
)
TWO_CALLS = call(1, "read_file", '{"path":', '"a"}') + call(2, "list_files", "{}")
CUT_OFF = {"incomplete_details": {"reason": "max_output_tokens"}}

STREAMS = {
    "text": HEAD + HELLO + end("completed", output=[MESSAGE]),
    "thinking and calls": HEAD + THOUGHT + TWO_CALLS + end("completed"),
    "length": HEAD + HELLO + end("incomplete", **CUT_OFF),
    "failed": HEAD + HELLO + end("failed", error={"code": "rate_limit_exceeded", "message": "slow down"}),
    "error": HEAD + event("error", code="server_error", message="sorry", param=None) + end("completed"),
    "CRLF": (HEAD + HELLO + end("completed")).replace(b"\n", b"\r\n"),
    "CR": (HEAD + HELLO + end("completed")).replace(b"\n", b"\r"),
    "no space, no names": (HEAD + HELLO + end("completed")).replace(b"data: ", b"data:").replace(b"event: ", b"x:"),
    "comments": b": OPENROUTER PROCESSING\n\n" + HEAD + b": PROCESSING\n\n" + HELLO + end("completed"),
    "no last line end": (HEAD + HELLO + end("completed")).rstrip(b"\n"),
    "cut JSON": HEAD + b'data: {"type":"response.outp\ndata: {"type":"x"}\n\n' + end("completed"),
    "done alone": HEAD + HELLO + b"data: [DONE]\n\n" + end("completed"),
    "body": msgspec.json.encode(response("completed", output=[MESSAGE, item(1, "a", "{}")], usage=COUNTS)),
}
NAMES = sorted(STREAMS)


def read(*slices: bytes) -> tuple[list[StreamEvent], bool, Answer]:
    reader = ResponsesReader()
    events = [shown for piece in slices for shown in reader.feed(piece)]
    return events, reader.is_over, reader.close()


def answer_to(stream: bytes) -> Answer:
    return read(stream)[2]


def test_a_text_comes_with_its_names_and_its_usage_and_only_once() -> None:
    events, is_over, answer = read(STREAMS["text"])

    assert answer == Answer(
        text="Grüß 你好 🐦",
        tool_calls=(),
        finish=Finish.STOP,
        complete=True,
        usage=USED,
        model="gpt-5",
        response_id="resp_1",
        fault=None,
    )
    assert events == [TextDelta("Grüß"), TextDelta(" 你好 🐦")]
    assert is_over


def test_tool_calls_come_whole_and_once_and_reasoning_is_shown_and_kept_only_where_it_is_encrypted() -> None:
    events, _, answer = read(STREAMS["thinking and calls"])

    assert answer.tool_calls == (
        ToolCall(id="call_1", name="read_file", arguments='{"path":"a"}'),
        ToolCall(id="call_2", name="list_files", arguments="{}"),
    )
    assert (answer.text, answer.finish) == ("", Finish.TOOL_CALLS)
    assert [shown for shown in events if isinstance(shown, ReasoningDelta)] == [ReasoningDelta("Let me see.")]
    assert "".join(shown.arguments for shown in events if isinstance(shown, ToolCallDelta)) == '{"path":"a"}{}'
    assert "c2VjcmV0" not in repr(events)
    [block] = answer.signed
    assert msgspec.json.decode(block.data) == {"type": "reasoning", "summary": [], "encrypted_content": "c2VjcmV0"}


def test_calls_that_the_last_event_repeats_are_not_made_twice() -> None:
    repeated = [{**item(1, "read_file", '{"path":"a"}')}, {**item(9, "read_file", '{"path":"a"}')}]

    answer = answer_to(HEAD + call(1, "read_file", '{"path":"a"}') + end("completed", output=repeated))

    assert [made.id for made in answer.tool_calls] == ["call_1"]


@pytest.mark.parametrize(
    "told",
    [
        event("response.output_item.done", output_index=0, item=item(0, "a", '{"x":1}')),
        event("response.output_item.added", output_index=0, item=item(0, "a", '{"x":1}')),
        event("response.output_item.added", output_index=0, item=item(0, "a"))
        + event("response.function_call_arguments.done", item_id="fc_0", arguments='{"x":1}'),
    ],
    ids=["with the item's end", "with its announcement", "by themselves"],
)
def test_arguments_that_come_whole_count_where_no_pieces_do(told: bytes) -> None:
    answer = answer_to(HEAD + told + end("completed"))

    assert answer.tool_calls == (ToolCall(id="call_0", name="a", arguments='{"x":1}'),)


def test_an_item_whose_id_changes_with_each_event_is_found_by_its_number() -> None:
    told = event("response.output_item.added", output_index=0, item=item(0, "a")) + event(
        "response.function_call_arguments.delta", output_index=0, item_id="another", delta='{"x":1}'
    )

    assert [made.arguments for made in answer_to(HEAD + told + end("completed")).tool_calls] == ['{"x":1}']


def test_an_answer_only_the_last_event_tells_is_taken_from_there() -> None:
    answer = answer_to(end("completed", output=[MESSAGE, item(1, "a", '{"x":1}')]))

    assert answer.text == "Grüß 你好 🐦"
    assert answer.tool_calls == (ToolCall(id="call_1", name="a", arguments='{"x":1}'),)


@pytest.mark.parametrize(
    ("reason", "finish"), [("max_output_tokens", Finish.LENGTH), ("content_filter", Finish.FILTERED)]
)
def test_an_answer_cut_by_its_bound_or_a_filter_is_at_its_end(reason: str, finish: Finish) -> None:
    answer = answer_to(HEAD + HELLO + end("incomplete", incomplete_details={"reason": reason}))

    assert (answer.complete, answer.finish, answer.usage) == (True, finish, USED)


@pytest.mark.parametrize("details", [None, {"reason": None}, {"reason": "interrupted"}])
def test_an_answer_that_is_incomplete_for_another_reason_is_a_fault(details: object) -> None:
    answer = answer_to(HEAD + HELLO + end("incomplete", incomplete_details=details))

    assert not answer.complete
    assert answer.fault is not None
    assert answer.fault.kind is FaultKind.SERVER_ERROR


@pytest.mark.parametrize(("name", "kind"), [("failed", FaultKind.RATE), ("error", FaultKind.SERVER_ERROR)])
def test_an_error_inside_a_success_is_named_and_nothing_after_it_counts(name: str, kind: FaultKind) -> None:
    answer = answer_to(STREAMS[name])

    assert not answer.complete
    assert answer.fault is not None
    assert answer.fault.kind is kind


@pytest.mark.parametrize("name", ["CRLF", "CR", "comments", "no last line end", "no space, no names"])
def test_the_framing_changes_nothing(name: str) -> None:
    assert answer_to(STREAMS[name]) == answer_to(STREAMS["text"])


@pytest.mark.parametrize("name", ["cut JSON", "done alone"])
def test_an_answer_that_lost_a_piece_or_its_end_is_never_complete(name: str) -> None:
    answer = answer_to(STREAMS[name])

    assert (answer.complete, answer.tool_calls, answer.usage, answer.finish) == (False, (), None, Finish.UNKNOWN)


def test_a_body_that_is_no_stream_is_read_as_one() -> None:
    answer = answer_to(STREAMS["body"])

    assert (answer.text, answer.finish, answer.complete) == ("Grüß 你好 🐦", Finish.TOOL_CALLS, True)
    assert (answer.tool_calls, answer.usage) == ((ToolCall(id="call_1", name="a", arguments="{}"),), USED)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (response("failed", output=[], error={"code": "server_error", "message": "sorry"}), "server_error"),
        (response("in_progress", output=[]), "server_error"),
        ({"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}, "rate"),
        ({"hello": 1}, "invalid_response"),
    ],
)
def test_a_body_that_is_no_answer_is_a_fault(body: object, kind: str) -> None:
    answer = answer_to(msgspec.json.encode(body))

    assert not answer.complete
    assert answer.fault is not None
    assert answer.fault.kind == kind


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_byte_by_byte_gives_the_same(name: str) -> None:
    body = STREAMS[name]

    assert read(*(body[i : i + 1] for i in range(len(body)))) == read(body)


@settings(max_examples=200, deadline=None)
@given(name=st.sampled_from(NAMES), cuts=st.lists(st.integers(0, 3500), max_size=20))
def test_a_stream_in_any_slices_gives_the_same(name: str, cuts: list[int]) -> None:
    body = STREAMS[name]
    edges = sorted({0, *(min(cut, len(body)) for cut in cuts), len(body)})

    assert read(*(body[start:end] for start, end in pairwise(edges)), b"") == read(body)


@pytest.mark.parametrize("name", ["text", "thinking and calls", "length", "CRLF", "CR", "no last line end", "body"])
def test_a_stream_cut_off_anywhere_before_its_end_is_never_complete(name: str) -> None:
    body = STREAMS[name].rstrip(b"\r\n")

    for cut in range(len(body)):
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
