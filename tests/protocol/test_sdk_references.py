"""The providers' own SDKs and httpx-sse as reference readers: each stream of the corpus is read as they read it.

Where that is not so the stream's file says what the SDK makes of it (`sdk`), and docs/dialects.md lists all of these.
"""

from __future__ import annotations

import json
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import anthropic
import httpx
import httpx2
import msgspec
import openai
import pytest
from dialect_corpus import STREAMS, Stream
from httpx_sse import EventSource

from covey.protocol.dialects.base import Answer, Finish
from covey.protocol.settings import Dialect
from covey.protocol.sse import Event, EventReader
from covey.protocol.usage import Usage

PAGE: Final = Path(__file__).parents[2] / "docs" / "dialects.md"
BEGIN: Final = "<!-- differences: tests/protocol/test_sdk_references.py -->\n"
END: Final = "<!-- end of differences -->\n"

SDK: Final = {Dialect.CHAT: "openai", Dialect.ANTHROPIC: "anthropic", Dialect.RESPONSES: "openai"}

FINISH: Final = {
    "stop": Finish.STOP,
    "end_turn": Finish.STOP,
    "stop_sequence": Finish.STOP,
    "tool_calls": Finish.TOOL_CALLS,
    "tool_use": Finish.TOOL_CALLS,
    "length": Finish.LENGTH,
    "max_tokens": Finish.LENGTH,
    "max_output_tokens": Finish.LENGTH,
    "content_filter": Finish.FILTERED,
    "refusal": Finish.FILTERED,
}
"""The words that the dialects' own documentation has, and no others."""

COMPLETE, CUT, FAILED, NOTHING = "complete", "cut", "failed", "neither an answer nor an error"


class Call(msgspec.Struct, frozen=True):
    """A tool call; its arguments parsed, if they can be."""

    id: str | None
    name: str | None
    arguments: object


class Reading(msgspec.Struct, frozen=True):
    """What a reader makes of a stream, in words for ours and for theirs. If it failed, nothing else is compared."""

    ending: str
    text: str = ""
    calls: tuple[Call, ...] = ()
    finish: str | None = None
    usage: tuple[int, ...] | None = None
    """Tokens in, out, read from a cache, put into one, and reasoned."""
    signed: tuple[dict[str, object], ...] = ()


# --- ours ------------------------------------------------------------------------------------------------------------


def ours(stream: Stream) -> Reading:
    answer = stream.read(stream.body)[2]
    if answer.fault is not None:
        return Reading(FAILED)
    return Reading(
        COMPLETE if answer.complete else CUT,
        answer.text,
        tuple(Call(call.id, call.name, parsed(call.arguments)) for call in answer.tool_calls),
        answer.finish if answer.complete else None,
        counts(answer.usage),
        signed(answer),
    )


def counts(usage: Usage | None) -> tuple[int, ...] | None:
    if usage is None:
        return None
    return (usage.prompt_tokens, usage.completion_tokens, usage.cache_read, usage.cache_write, usage.reasoning)


def signed(answer: Answer) -> tuple[dict[str, object], ...]:
    return tuple(json.loads(block.data) for block in answer.signed)


def parsed(arguments: object) -> object:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


# --- theirs ----------------------------------------------------------------------------------------------------------

# The SDKs build their objects unchecked, hence `Any`: a field may be missing, or something else than its type says.


def theirs(stream: Stream) -> Reading:
    """What the SDK makes of a stream; whatever it raises is its way of saying that the call failed."""
    read = {Dialect.CHAT: chat, Dialect.ANTHROPIC: messages, Dialect.RESPONSES: responses}[stream.dialect]
    # Its models warn of values they do not expect; here that would make errors of what it means to let pass.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return read(stream)
        except Exception:  # noqa: BLE001 - anything at all may come of a wrong stream, and it all means one thing
            return Reading(FAILED)


def served(stream: Stream) -> httpx2.Client:
    """A client to which every server answers with the stream."""
    kind = "text/event-stream"
    if stream.is_body:
        kind = "text/html" if stream.body.startswith(b"<") else "application/json"

    def serve(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": kind}, content=stream.body)

    return httpx2.Client(transport=httpx2.MockTransport(serve))


def chat(stream: Stream) -> Reading:
    with (
        served(stream) as http,
        openai.OpenAI(api_key="k", base_url="http://sdk.test", max_retries=0, http_client=http) as client,
    ):
        asked: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        if stream.is_body:
            return of_completion(client.chat.completions.create(**asked))
        with client.chat.completions.stream(**asked) as events:
            if not sum(1 for _ in events):
                return Reading(CUT)
            try:
                return of_completion(events.get_final_completion())
            except openai.LengthFinishReasonError as error:  # how it says that the bound was reached
                return of_completion(error.completion)


def of_completion(completion: Any) -> Reading:
    if not getattr(completion, "choices", None):
        return Reading(NOTHING)
    choice, usage = completion.choices[0], completion.usage
    into, out = (usage.prompt_tokens_details, usage.completion_tokens_details) if usage else (None, None)
    return Reading(
        COMPLETE if choice.finish_reason else CUT,
        choice.message.content or choice.message.refusal or "",
        tuple(
            Call(call.id, call.function.name, parsed(call.function.arguments))
            for call in choice.message.tool_calls or ()
            if call.type == "function"
        ),
        FINISH.get(choice.finish_reason, choice.finish_reason),
        (
            usage.prompt_tokens,
            usage.completion_tokens,
            (into and into.cached_tokens) or 0,
            0,
            (out and out.reasoning_tokens) or 0,
        )
        if usage
        else None,
    )


def messages(stream: Stream) -> Reading:
    with served(stream) as http:
        client = anthropic.Anthropic(api_key="k", base_url="http://sdk.test", max_retries=0, http_client=http)
        asked: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        if stream.is_body:
            return of_message(client.messages.create(**asked))
        with client.messages.stream(**asked) as events:
            return of_message(events.get_final_message()) if sum(1 for _ in events) else Reading(CUT)


def of_message(message: Any) -> Reading:
    if not getattr(message, "content", None) and not getattr(message, "usage", None):
        return Reading(NOTHING)
    usage = message.usage
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    kept = [block for block in message.content if block.type in ("thinking", "redacted_thinking")]
    return Reading(
        COMPLETE if message.stop_reason else CUT,
        "".join(block.text for block in message.content if block.type == "text"),
        tuple(Call(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"),
        FINISH.get(message.stop_reason or "", message.stop_reason),
        (usage.input_tokens + read + written, usage.output_tokens, read, written, 0),
        tuple(block.to_dict() for block in kept if getattr(block, "signature", "") or getattr(block, "data", "")),
    )


def responses(stream: Stream) -> Reading:
    with (
        served(stream) as http,
        openai.OpenAI(api_key="k", base_url="http://sdk.test", max_retries=0, http_client=http) as client,
    ):
        if stream.is_body:
            return of_response(client.responses.create(model="m", input="hi"))
        text = ""
        with client.responses.stream(model="m", input="hi") as events:
            for event in events:
                match event.type:
                    case "response.output_text.delta" | "response.refusal.delta":
                        text += event.delta
                    case "response.completed" | "response.incomplete" | "response.failed":
                        return of_response(event.response)
                    case "error":
                        return Reading(FAILED)
        return Reading(CUT, text)


def of_response(response: Any) -> Reading:
    if not getattr(response, "output", None) and not getattr(response, "status", None):
        return Reading(NOTHING)
    reason = response.incomplete_details.reason if response.incomplete_details else None
    if response.status not in ("completed", "incomplete") or (response.status == "incomplete" and not reason):
        return Reading(FAILED)
    calls = tuple(
        Call(item.call_id, item.name, parsed(item.arguments))
        for item in response.output
        if item.type == "function_call"
    )
    parts = [part for item in response.output if item.type == "message" for part in item.content]
    usage = response.usage
    return Reading(
        COMPLETE,
        "".join(part.text if part.type == "output_text" else part.refusal for part in parts),
        calls,
        FINISH.get(reason, reason) if reason else Finish.TOOL_CALLS if calls else Finish.STOP,
        (
            usage.input_tokens,
            usage.output_tokens,
            usage.input_tokens_details.cached_tokens,
            0,
            usage.output_tokens_details.reasoning_tokens,
        )
        if usage
        else None,
        tuple(
            {
                key: value
                for key, value in item.to_dict().items()
                if key in ("type", "summary", "encrypted_content", "id")
            }
            for item in response.output
            if item.type == "reasoning" and item.encrypted_content
        ),
    )


# --- the comparison --------------------------------------------------------------------------------------------------

each_stream = pytest.mark.parametrize("stream", STREAMS, ids=str)


@each_stream
def test_a_stream_is_read_as_its_sdk_reads_it_or_its_file_says_what_that_makes_of_it(stream: Stream) -> None:
    if stream.expected.sdk is None:
        assert ours(stream) == theirs(stream)
    elif f"{SDK[stream.dialect]} {version(SDK[stream.dialect])}" in PAGE.read_text(encoding="utf-8"):
        # Another version may have learned it.
        assert ours(stream) != theirs(stream)


def differences() -> str:
    """The table of the page: what an SDK makes of which streams."""
    told: dict[tuple[str, str], list[str]] = {}
    for stream in STREAMS:
        if stream.expected.sdk is not None:
            row = told.setdefault((SDK[stream.dialect], stream.expected.sdk), [])
            row.append(f"`{stream.dialect.value}/{stream.name}`")
    rows = [f"| {sdk} | {what} | {', '.join(streams)} |\n" for (sdk, what), streams in sorted(told.items())]
    return "".join(["| SDK | what it does | streams |\n", "|---|---|---|\n", *rows])


def test_the_page_lists_every_difference() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page.partition(BEGIN)[2].partition(END)[0] == differences()


# --- framing ---------------------------------------------------------------------------------------------------------


def by_httpx_sse(body: bytes) -> list[Event]:
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=body)
    return [Event(event.data.encode(), event.event or "message") for event in EventSource(response).iter_sse()]


def by_us(body: bytes) -> list[Event]:
    """As `httpx-sse` has it: what the end leaves open is no event, and bytes that are not UTF-8 are replaced."""
    events = EventReader().feed(body)
    return [Event(event.data.decode("utf-8", "replace").encode(), event.name) for event in events]


FRAMED = [stream for stream in STREAMS if not stream.is_body]


@pytest.mark.parametrize("stream", FRAMED, ids=str)
def test_a_stream_has_the_events_that_httpx_sse_finds(stream: Stream) -> None:
    body = stream.body.removeprefix(b"\xef\xbb\xbf")  # which it takes for a part of the first line

    assert by_us(stream.body) == [event for event in by_httpx_sse(body) if event.data]
