"""The session between two processes: what is asked is answered, whatever happens to the transport."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from covey.protocol import frames
from covey.protocol.errors import ProtocolError
from covey.protocol.ids import Incarnation
from covey.protocol.messages.base import Done
from covey.protocol.peer import Owner, Peer
from covey.protocol.session import Answered, Asked, Left, Opened, Session, State, Told, body_of

BODY = body_of(Done())


def peer(name: str, life: int = 1) -> Peer:
    owner = Owner(pid=100 + life, start_ticks=life, boot_id="boot")
    return Peer(role=name, name=name, incarnation=Incarnation(f"{name}-{life}"), owner=owner)


def opened_pair() -> tuple[Session, Session]:
    opener, acceptor = Session(peer("client"), opens=True), Session(peer("server"), opens=False)
    [hello] = opener.connected()
    _, [welcome] = acceptor.receive(hello)
    opener.receive(welcome)
    return opener, acceptor


def frame(message: frames.Frame) -> bytes:
    return frames.encode(message)


def test_hello_and_welcome_open_both_sides() -> None:
    opener, acceptor = Session(peer("client"), opens=True), Session(peer("server"), opens=False)

    [hello] = opener.connected()
    accepted, [welcome] = acceptor.receive(hello)
    greeted, out = opener.receive(welcome)

    assert accepted == [Opened(peer("client"), is_new_life=True)]
    assert greeted == [Opened(peer("server"), is_new_life=True)]
    assert out == []
    assert opener.state is acceptor.state is State.OPEN


def test_an_ask_before_the_welcome_is_sent_once_the_session_is_open() -> None:
    opener, acceptor = Session(peer("client"), opens=True), Session(peer("server"), opens=False)
    ask_id, sent = opener.ask(BODY)
    [hello] = opener.connected()
    _, [welcome] = acceptor.receive(hello)

    _, out = opener.receive(welcome)

    assert sent == []
    assert [acceptor.receive(one)[0] for one in out] == [[Asked(ask_id, BODY)]]


def test_a_replaced_acceptor_asks_for_a_hello_and_gets_what_is_unanswered() -> None:
    opener, _ = opened_pair()
    ask_id, [_lost] = opener.ask(BODY)
    successor = Session(peer("server", life=2), opens=False)
    _, [ping] = [], opener.ping()

    _, [stranger] = successor.receive(ping)
    _, [hello] = opener.receive(stranger)
    _, [welcome] = successor.receive(hello)
    events, [again] = opener.receive(welcome)

    assert events == [Opened(peer("server", life=2), is_new_life=True)]
    assert successor.receive(again)[0] == [Asked(ask_id, BODY)]


def test_a_reconnect_to_the_same_life_repeats_what_is_unanswered_in_order() -> None:
    opener, acceptor = opened_pair()
    first, _ = opener.ask(BODY)
    second, _ = opener.ask(BODY)

    [hello] = opener.connected()
    _, [welcome] = acceptor.receive(hello)
    events, again = opener.receive(welcome)

    assert events == [Opened(peer("server"), is_new_life=False)]
    assert [frames.decode_frame(one).id for one in again] == [first, second]  # type: ignore[union-attr]


def test_a_repeated_ask_that_is_in_work_is_not_delivered_twice() -> None:
    opener, acceptor = opened_pair()
    _, [ask] = opener.ask(BODY)

    once, _ = acceptor.receive(ask)
    twice, _ = acceptor.receive(ask)

    assert len(once) == 1
    assert twice == []


def test_a_late_reply_is_counted_and_dropped() -> None:
    opener, acceptor = opened_pair()
    ask_id, [ask] = opener.ask(BODY)
    acceptor.receive(ask)
    opener.give_up(ask_id)

    [reply] = acceptor.reply(ask_id, BODY)

    assert opener.receive(reply)[0] == []
    assert opener.late_replies == 1


def test_the_acceptor_may_ask_and_repeats_after_a_hello() -> None:
    opener, acceptor = opened_pair()
    ask_id, [_lost] = acceptor.ask(BODY)

    [hello] = opener.connected()
    _, out = acceptor.receive(hello)
    delivered = [event for one in out for event in opener.receive(one)[0]]

    assert Asked(ask_id, BODY) in delivered


def test_a_tell_without_a_session_is_dropped_and_counted() -> None:
    session = Session(peer("client"), opens=True)

    assert session.tell(BODY) == []
    assert session.dropped_tells == 1


def test_a_tell_reaches_the_peer() -> None:
    opener, acceptor = opened_pair()

    [tell] = opener.tell(BODY)

    assert acceptor.receive(tell)[0] == [Told(BODY)]


def test_goodbye_closes_the_session_and_nothing_is_repeated() -> None:
    opener, acceptor = opened_pair()
    opener.ask(BODY)

    [bye] = opener.close()

    assert acceptor.receive(bye)[0] == [Left()]
    assert opener.unanswered == 0
    assert opener.connected() == []


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xc1", id="no MessagePack"),
        pytest.param(msgspec.msgpack.encode({"type": "no such frame"}), id="an unknown frame"),
        pytest.param(msgspec.msgpack.encode({"type": "ask", "id": "one", "body": None}), id="a wrong type"),
        pytest.param(b"\x91" * 100_000 + b"\xc0", id="nested a hundred thousand times"),
    ],
)
def test_bytes_that_are_no_frame_are_refused_and_change_nothing(data: bytes) -> None:
    _, acceptor = opened_pair()

    with pytest.raises(ProtocolError):
        acceptor.receive(data)

    assert acceptor.state is State.OPEN


def test_another_version_is_refused() -> None:
    acceptor = Session(peer("server"), opens=False)

    with pytest.raises(ProtocolError, match="version 99"):
        acceptor.receive(frame(frames.Hello(version=99, peer=peer("client"))))

    assert acceptor.state is State.IDLE


def test_each_side_refuses_the_other_sides_greeting() -> None:
    opener, acceptor = opened_pair()

    with pytest.raises(ProtocolError):
        opener.receive(frame(frames.Hello(version=frames.VERSION, peer=peer("x"))))
    with pytest.raises(ProtocolError):
        acceptor.receive(frame(frames.Welcome(version=frames.VERSION, peer=peer("x"))))


@given(st.binary(max_size=300))
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_no_bytes_raise_anything_but_a_protocol_error(data: bytes) -> None:
    _, acceptor = opened_pair()

    try:
        acceptor.receive(data)
    except ProtocolError:
        assert acceptor.state is State.OPEN


class FlakyLink(RuleBasedStateMachine):
    """A client, a server that is replaced at will, and a wire that loses whatever it likes when it breaks."""

    def __init__(self) -> None:
        super().__init__()
        self.client = Session(peer("client"), opens=True)
        self.life = 1
        self.server = Session(peer("server"), opens=False)
        self.up: list[bytes] = []
        self.down: list[bytes] = []
        self.asked: set[int] = set()
        self.answered: list[int] = []
        self.in_work: set[int] = set()
        self.up += self.client.connected()

    @rule()
    def ask(self) -> None:
        ask_id, out = self.client.ask(BODY)
        self.asked.add(ask_id)
        self.up += out

    @precondition(lambda self: self.up)
    @rule()
    def carry_up(self) -> None:
        events, out = self.server.receive(self.up.pop(0))
        self.down += out
        self.in_work |= {event.id for event in events if isinstance(event, Asked)}

    @precondition(lambda self: self.down)
    @rule()
    def carry_down(self) -> None:
        events, out = self.client.receive(self.down.pop(0))
        self.up += out
        self.answered += [event.id for event in events if isinstance(event, Answered)]

    @precondition(lambda self: self.in_work)
    @rule()
    def answer(self) -> None:
        ask_id = min(self.in_work)
        self.in_work.discard(ask_id)
        self.down += self.server.reply(ask_id, BODY)

    @rule()
    def break_the_wire(self) -> None:
        self.up.clear()
        self.down.clear()
        self.up += self.client.connected()

    @rule()
    def replace_the_server(self) -> None:
        self.life += 1
        self.server = Session(peer("server", self.life), opens=False)
        self.in_work.clear()
        self.down.clear()

    @rule()
    def ping(self) -> None:
        self.up += self.client.ping()

    @invariant()
    def no_answer_comes_twice(self) -> None:
        assert len(self.answered) == len(set(self.answered))
        assert set(self.answered) <= self.asked

    def teardown(self) -> None:
        """Once the wire holds, everything is answered."""
        for _ in range(3):
            self.break_the_wire()
            while self.up or self.down or self.in_work:
                if self.up:
                    self.carry_up()
                if self.down:
                    self.carry_down()
                if self.in_work:
                    self.answer()
        assert set(self.answered) == self.asked


TestFlakyLink = FlakyLink.TestCase
