"""Framing of server-sent events: the specification's rules, and no dependence on slices."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.protocol.errors import ProtocolError
from covey.protocol.sse import Event, EventReader


def read(*slices: bytes, max_event_bytes: int = 1000) -> list[Event]:
    reader = EventReader(max_event_bytes=max_event_bytes)
    return [event for piece in slices for event in reader.feed(piece)] + reader.close()


def by_the_book(body: bytes) -> list[Event]:
    """The specification, line by line; what the end leaves open counts as an event."""
    events, name, data = [], "message", None
    for line in [*re.split(rb"\r\n|\r|\n", body.removeprefix(b"\xef\xbb\xbf")), b""]:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if data is not None:
                events.append(Event(b"\n".join(data), name))
            name, data = "message", None
        elif field == b"data":
            data = [*(data or []), value]
        elif field == b"event":
            name = value.decode("utf-8", "replace")
    return events


@pytest.mark.parametrize(
    ("body", "events"),
    [
        pytest.param(b"data: a\n\n", [Event(b"a")], id="an event"),
        pytest.param(b"data:a\n\ndata:  b\n\n", [Event(b"a"), Event(b" b")], id="one space belongs to the field"),
        pytest.param(b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [Event(b"a"), Event(b"b"), Event(b"c")], id="line ends"),
        pytest.param(b"data: a\ndata: b\ndata\n\n", [Event(b"a\nb\n")], id="data of several lines"),
        pytest.param(b": ping\n\n:\n\ndata: a\n\n", [Event(b"a")], id="comments"),
        pytest.param(b": ping\ndata: a\n: ping\n\n", [Event(b"a")], id="comments within an event"),
        pytest.param(b"event: error\ndata: {}\n\ndata: a\n\n", [Event(b"{}", "error"), Event(b"a")], id="a name ends"),
        pytest.param(b"event: ping\n\ndata: a\n\n", [Event(b"a")], id="a name without data is no event"),
        pytest.param(b"id: 7\nretry: 10\ndata: a\nfoo: b\n\n", [Event(b"a")], id="other fields"),
        pytest.param(b"\xef\xbb\xbfdata: a\n\n", [Event(b"a")], id="byte order mark"),
        pytest.param(b"\n\n\n\ndata: a\n\n\n\n\ndata: b\n\n\n", [Event(b"a"), Event(b"b")], id="many blank lines"),
        pytest.param(b"data: a\n\ndata: b", [Event(b"a"), Event(b"b")], id="no line end at the end"),
        pytest.param(b"data: a\n\ndata: b\n", [Event(b"a"), Event(b"b")], id="no blank line at the end"),
        pytest.param(b"data:\n\n", [Event(b"")], id="empty data"),
        pytest.param(b"", [], id="nothing"),
        pytest.param(b"\xef\xbb", [], id="half a byte order mark"),
    ],
)
def test_a_body_gives_its_events(body: bytes, events: list[Event]) -> None:
    assert read(body) == events
    assert read(*(body[i : i + 1] for i in range(len(body)))) == events


PIECES = [
    b"data: a\n\n",
    b"event: x\ndata: a\n\n",
    b"data:",
    b"data: ",
    b"event: x",
    b":",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"a",
    "é€😀".encode(),
    b"\xff",
    b" ",
    b"\xef\xbb\xbf",
]


@settings(max_examples=500, deadline=None)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=30), cuts=st.lists(st.integers(0, 150), max_size=12))
def test_any_body_in_any_slices_is_read_by_the_book(pieces: list[bytes], cuts: list[int]) -> None:
    body = b"".join(pieces)
    edges = sorted({0, *(min(cut, len(body)) for cut in cuts), len(body)})

    events = read(*(body[start:end] for start, end in pairwise(edges)))

    assert events == by_the_book(body)


def test_an_event_is_handed_out_with_its_last_byte() -> None:
    reader = EventReader()

    assert reader.feed(b"data: a\r\n\r") == [Event(b"a")]
    assert reader.feed(b"\n") == []
    assert reader.feed(b"data: b\n") == []
    assert reader.peek() == b"data: b\n"
    assert reader.feed(b"\n") == [Event(b"b")]


@pytest.mark.parametrize("size", [1, 7, 5000])
def test_an_event_over_the_bound_raises_after_those_before_it(size: int) -> None:
    body = b"data: a\n\ndata: " + b"x" * 2000
    reader = EventReader(max_event_bytes=1000)
    events: list[Event] = []

    def read_all() -> None:
        for start in range(0, len(body), size):
            events.extend(reader.feed(body[start : start + size]))
        reader.close()

    with pytest.raises(ProtocolError, match="longer than 1000 bytes"):
        read_all()

    assert events == [Event(b"a")]
    with pytest.raises(ProtocolError):
        reader.feed(b"data: b\n\n")


def test_an_event_at_the_bound_passes() -> None:
    block = b"data: " + b"x" * 994

    assert read(block + b"\n\n\n" + block + b"\n\n", max_event_bytes=1000) == [Event(b"x" * 994)] * 2


def test_a_line_without_end_is_not_collected_beyond_the_bound() -> None:
    reader = EventReader(max_event_bytes=1000)

    for _ in range(10):
        reader.feed(b"x" * 100)
    with pytest.raises(ProtocolError):
        reader.feed(b"x")

    assert reader.peek() == b""
