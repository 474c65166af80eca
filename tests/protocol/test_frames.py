"""Frames as bytes: what was encoded comes back, and nothing else than `ProtocolError` comes of anything else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from covey.protocol import frames
from covey.protocol.errors import ProtocolError
from covey.protocol.ids import Incarnation
from covey.protocol.messages.base import Done
from covey.protocol.messages.broker import BrokerRequest
from covey.protocol.messages.fleet import RootRequest
from covey.protocol.messages.ledger import LedgerRequest
from covey.protocol.peer import Owner, Peer
from covey.protocol.session import Session, body_of
from covey.protocol.session_events import Asked

BODY = body_of(Done())
PEER = Peer(role="r", name="n", incarnation=Incarnation("i"), owner=Owner(pid=1, start_ticks=1, boot_id="b"))
RAW = msgspec.Raw(BODY)
DEEP = 100_000

EVERY_FRAME: list[frames.Frame] = [
    frames.Hello(version=frames.VERSION, peer=PEER, attempt=1, next_seq=1, window=5),
    frames.Welcome(version=frames.VERSION, peer=PEER, attempt=1, next_seq=1, window=5),
    frames.Stranger(),
    frames.Ask(id=1, seq=1, body=RAW),
    frames.Reply(id=1, seq=1, body=RAW),
    frames.Tell(seq=1, body=RAW),
    frames.Credit(seq=1, upto=10),
    frames.Ping(seq=0),
    frames.Pong(seq=0),
    frames.Bye(),
]

UNIONS: list[Any] = [BrokerRequest, LedgerRequest, RootRequest]

HOSTILE = [
    pytest.param(b"", id="nothing"),
    pytest.param(b"\xc1", id="no MessagePack"),
    pytest.param(msgspec.msgpack.encode({"type": "no such frame"}), id="an unknown frame"),
    pytest.param(msgspec.msgpack.encode({"type": "ask", "id": "one", "seq": 1, "body": None}), id="a wrong type"),
    pytest.param(msgspec.msgpack.encode({"type": "ask", "id": 1, "body": None}), id="a missing field"),
    pytest.param(msgspec.msgpack.encode([1, 2, 3]), id="a list of numbers"),
    pytest.param(b"\x91" * DEEP + b"\xc0", id="lists nested a hundred thousand times"),
    pytest.param(b"\x81\xa1a" * DEEP + b"\xc0", id="maps nested a hundred thousand times"),
    pytest.param(
        b"\x84\xa4type\xa3ask\xa2id\x01\xa3seq\x01\xa4body" + b"\x91" * DEEP + b"\xc0", id="a body nested that deep"
    ),
    pytest.param(b"\xdf\xff\xff\xff\xff", id="a map of four thousand million fields"),
    pytest.param(frames.encode(EVERY_FRAME[3]) + b"\x00", id="a frame with something behind it"),
    pytest.param(frames.encode(EVERY_FRAME[3])[:-1], id="a frame without its end"),
]


def opened() -> Session:
    session = Session(PEER, opens=False)
    session.receive(frames.encode(EVERY_FRAME[0]), 0.0)
    return session


def read(session: Session, message: bytes) -> None:
    """As a hub does, down to the body: one of any depth passes the frame's decoder as mere bytes."""
    for frame in frames.unbundle(message):
        for event in session.receive(frame, 0.0)[0]:
            assert isinstance(event, Asked)
            frames.BodyDecoder(BrokerRequest).decode(event.body)


def feed(session: Session, message: bytes) -> None:
    """As a hub does: unbundle, then one frame after the other."""
    for frame in frames.unbundle(message):
        session.receive(frame, 0.0)


@pytest.mark.parametrize("frame", EVERY_FRAME, ids=lambda frame: type(frame).__name__)
def test_a_frame_comes_back_as_it_was(frame: frames.Frame) -> None:
    encoded = frames.encode(frame)

    assert frames.unbundle(encoded) == (encoded,)
    assert frames.encode(frames.decode_frame(encoded)) == encoded


@given(st.lists(st.sampled_from(EVERY_FRAME), min_size=1, max_size=40))
def test_a_bundle_comes_apart_as_it_was_put_together(chosen: list[frames.Frame]) -> None:
    encoded = [frames.encode(frame) for frame in chosen]

    assert [bytes(frame) for frame in frames.unbundle(frames.bundle(encoded))] == encoded


def test_a_bundle_in_a_bundle_is_refused() -> None:
    ping = frames.encode(frames.Ping(seq=0))
    nested = frames.bundle([frames.bundle([ping, ping]), ping])

    with pytest.raises(ProtocolError):
        feed(opened(), nested)


@pytest.mark.parametrize("data", HOSTILE)
def test_bytes_that_are_no_frame_are_refused_and_change_nothing(data: bytes) -> None:
    session = opened()
    expected = session._expected

    with pytest.raises(ProtocolError):
        read(session, data)

    assert session.is_open
    assert session._expected in (expected, expected + 1)


@given(st.binary(max_size=300))
@example(b"\x90")
@settings(max_examples=500, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_no_bytes_raise_anything_but_a_protocol_error(data: bytes) -> None:
    session = opened()

    try:
        feed(session, data)
    except ProtocolError:
        assert session.is_open


@given(st.sampled_from(EVERY_FRAME), st.data())
@settings(max_examples=500, deadline=None)
def test_no_damage_to_a_real_frame_raises_anything_but_a_protocol_error(
    frame: frames.Frame, data: st.DataObject
) -> None:
    encoded = bytearray(frames.encode(frame))
    for _ in range(data.draw(st.integers(1, 4), label="damages")):
        at = data.draw(st.integers(0, len(encoded) - 1), label="at")
        encoded[at] = data.draw(st.integers(0, 255), label="becomes")

    try:
        feed(opened(), bytes(encoded))
    except ProtocolError:
        return


@given(st.sampled_from(UNIONS), st.binary(max_size=200) | st.integers(1, 5000).map(lambda deep: b"\x91" * deep))
@settings(max_examples=300, deadline=None)
def test_no_body_raises_anything_but_a_protocol_error(union: Any, data: bytes) -> None:
    try:
        frames.BodyDecoder(union).decode(data)
    except ProtocolError:
        return
