"""The session between two processes: what is asked is answered, whatever happens to the transport."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from covey.protocol import frames, session
from covey.protocol.errors import LinkClosed, LinkFull, MessageTooLarge, ProtocolError
from covey.protocol.ids import Incarnation
from covey.protocol.messages.base import Done, Failed
from covey.protocol.peer import Owner, Peer
from covey.protocol.session import Session, body_of
from covey.protocol.session_asks import MAX_ANSWER_BYTES, MAX_ANSWERS, Asks
from covey.protocol.session_events import Answered, Asked, Event, Left, Opened, Told
from covey.protocol.session_states import State

BODY = body_of(Done())
LARGE = b"\xc4\xff" + bytes(255)
NOW = 0.0


def peer(name: str, life: int = 1) -> Peer:
    owner = Owner(pid=100 + life, start_ticks=life, boot_id="boot")
    return Peer(role=name, name=name, incarnation=Incarnation(f"{name}-{life}"), owner=owner)


def take(side: Session, *data: bytes) -> tuple[list[Event], list[bytes]]:
    """Everything in `data` at once: what happened, and what is to be sent."""
    events: list[Event] = []
    out: list[bytes] = []
    for one in data:
        happened, sent = side.receive(one, NOW)
        events += happened
        out += sent
    return events, out


def greet(opener: Session, acceptor: Session) -> tuple[list[Event], list[Event]]:
    """A hello and all that follows from it; what happened to the opener and to the acceptor."""
    up = opener.connected()
    happened: tuple[list[Event], list[Event]] = ([], [])
    while up:
        events, down = take(acceptor, *up)
        happened[1].extend(events)
        events, up = take(opener, *down)
        happened[0].extend(events)
    return happened


def opened_pair(*, window: int = 100, opener: Session | None = None) -> tuple[Session, Session]:
    opener = opener or Session(peer("client"), opens=True, window=window)
    acceptor = Session(peer("server"), opens=False, window=window)
    greet(opener, acceptor)
    return opener, acceptor


def frame(message: frames.Frame) -> bytes:
    return frames.encode(message)


def answer(opener: Session, acceptor: Session, body: bytes = BODY) -> int:
    """One ask all the way; its id."""
    ask_id, out = opener.ask(BODY)
    _, credit = take(acceptor, *out)
    take(opener, *credit, *acceptor.reply(ask_id, body))
    return ask_id


# --- opening ---------------------------------------------------------------------------------------------------------


def test_hello_and_welcome_open_both_sides() -> None:
    opener, acceptor = Session(peer("client"), opens=True), Session(peer("server"), opens=False)

    greeted, accepted = greet(opener, acceptor)

    assert accepted == [Opened(peer("client"), is_new_life=True)]
    assert greeted == [Opened(peer("server"), is_new_life=True)]
    assert opener.state is acceptor.state is State.OPEN


def test_an_ask_before_the_welcome_is_sent_once_the_session_is_open() -> None:
    opener, acceptor = Session(peer("client"), opens=True), Session(peer("server"), opens=False)
    ask_id, sent = opener.ask(BODY)

    _, accepted = greet(opener, acceptor)

    assert sent == []
    assert accepted[1:] == [Asked(ask_id, BODY)]


def test_a_welcome_that_answers_an_older_hello_does_not_open() -> None:
    opener, acceptor = Session(peer("client"), opens=True), Session(peer("server"), opens=False)
    _, late = take(acceptor, *opener.connected())
    second = opener.connected()

    events, _ = take(opener, *late)
    opened, _ = take(opener, *take(acceptor, *second)[1])

    assert events == []
    assert opened == [Opened(peer("server"), is_new_life=True)]


def test_a_copy_of_a_hello_changes_nothing() -> None:
    opener, acceptor = Session(peer("client"), opens=True), Session(peer("server"), opens=False)
    [hello] = opener.connected()
    take(opener, *take(acceptor, hello)[1])
    answer(opener, acceptor)

    again = take(acceptor, hello)

    assert again == ([], [])
    assert answer(opener, acceptor) == 2


def test_a_second_link_of_the_same_process_is_a_peer_of_its_own_although_the_first_never_said_goodbye() -> None:
    opener, acceptor = opened_pair()
    answer(opener, acceptor)
    later = Session(peer("client"), opens=True, link=1)

    _, accepted = greet(later, acceptor)
    ask_id, out = later.ask(BODY)
    events, _ = take(acceptor, *out)

    assert accepted == [Opened(peer("client"), is_new_life=True)]
    # The first link had used that id as well, and its answer is remembered: it is not given to the second one.
    assert events == [Asked(ask_id, BODY)]


def test_another_version_is_refused() -> None:
    acceptor = Session(peer("server"), opens=False)

    with pytest.raises(ProtocolError, match="version 99"):
        take(acceptor, frame(frames.Hello(version=99, peer=peer("client"))))

    assert acceptor.state is State.IDLE


def test_a_hello_of_version_1_is_refused_by_its_version() -> None:
    old = msgspec.msgpack.encode({"type": "hello", "version": 1, "peer": peer("client")})

    with pytest.raises(ProtocolError, match="version 1"):
        take(Session(peer("server"), opens=False), old)


# --- repetition ------------------------------------------------------------------------------------------------------


def test_a_replaced_acceptor_asks_for_a_hello_and_gets_what_is_unanswered() -> None:
    opener, _ = opened_pair()
    ask_id, [_lost] = opener.ask(BODY)
    successor = Session(peer("server", life=2), opens=False)

    _, stranger = take(successor, *opener.beat())
    _, hello = take(opener, *stranger)
    _, welcome = take(successor, *hello)
    events, again = take(opener, *welcome)

    assert events == [Opened(peer("server", life=2), is_new_life=True)]
    assert take(successor, *again)[0] == [Asked(ask_id, BODY)]


def test_a_hundred_asks_to_a_replaced_acceptor_are_answered_by_one_stranger() -> None:
    opener, _ = opened_pair()
    out = [one for _ in range(100) for one in opener.ask(BODY)[1]]

    _, answers = take(Session(peer("server", life=2), opens=False), *out)

    assert answers == [frame(frames.Stranger())]


def test_a_reconnect_to_the_same_life_repeats_what_is_unanswered_in_order() -> None:
    opener, acceptor = opened_pair()
    asked = [opener.ask(BODY)[0] for _ in range(3)]

    greeted, accepted = greet(opener, acceptor)

    assert greeted == [Opened(peer("server"), is_new_life=False)]
    assert accepted == [Opened(peer("client"), is_new_life=False), *(Asked(ask_id, BODY) for ask_id in asked)]


def test_a_repeated_ask_that_is_in_work_is_not_delivered_twice() -> None:
    opener, acceptor = opened_pair()
    take(acceptor, *opener.ask(BODY)[1])

    _, accepted = greet(opener, acceptor)

    assert accepted == [Opened(peer("client"), is_new_life=False)]


def test_what_was_in_work_before_a_reconnect_is_answered_after_it() -> None:
    opener, acceptor = opened_pair()
    ask_id, out = opener.ask(BODY)
    take(acceptor, *out)
    greet(opener, acceptor)

    events, _ = take(opener, *acceptor.reply(ask_id, BODY))

    assert events == [Answered(ask_id, BODY)]


def test_a_lost_small_answer_is_given_again_and_the_request_is_not_carried_out_twice() -> None:
    opener, acceptor = opened_pair()
    ask_id, out = opener.ask(BODY)
    take(acceptor, *out)
    acceptor.reply(ask_id, BODY)  # lost

    greeted, accepted = greet(opener, acceptor)

    assert accepted == [Opened(peer("client"), is_new_life=False)]
    assert greeted[1:] == [Answered(ask_id, BODY)]


def test_a_lost_large_answer_is_worked_out_anew() -> None:
    opener, acceptor = opened_pair()
    ask_id, out = opener.ask(BODY)
    take(acceptor, *out)
    acceptor.reply(ask_id, bytes(MAX_ANSWER_BYTES + 1))

    _, accepted = greet(opener, acceptor)

    assert accepted[1:] == [Asked(ask_id, BODY)]


def test_an_answer_that_was_forgotten_is_worked_out_anew() -> None:
    opener, acceptor = opened_pair(window=2 * MAX_ANSWERS)
    ask_id, out = opener.ask(BODY)
    take(acceptor, *out)
    acceptor.reply(ask_id, BODY)
    # The lost answer cannot be missed yet: the later ones are lost as well.
    for _ in range(MAX_ANSWERS):
        later, sent = opener.ask(BODY)
        take(acceptor, *sent)
        acceptor.reply(later, BODY)

    _, accepted = greet(opener, acceptor)

    assert accepted[1:] == [Asked(ask_id, BODY)]


def test_an_answer_of_the_last_life_is_not_taken_for_one_of_this() -> None:
    opener, acceptor = opened_pair()
    asked, out = acceptor.ask(BODY)
    take(opener, *out)
    opener.reply(asked, BODY)
    successor = Session(peer("server", life=2), opens=False)
    greet(opener, successor)

    again, out = successor.ask(BODY)

    assert again == asked
    assert take(opener, *out)[0] == [Asked(again, BODY)]


def test_the_acceptor_may_ask_and_repeats_after_a_hello() -> None:
    opener, acceptor = opened_pair()
    ask_id, [_lost] = acceptor.ask(BODY)

    greeted, _ = greet(opener, acceptor)

    assert greeted[1:] == [Asked(ask_id, BODY)]


def test_a_late_reply_is_counted_and_dropped() -> None:
    opener, acceptor = opened_pair()
    ask_id, out = opener.ask(BODY)
    take(acceptor, *out)
    opener.give_up(ask_id)

    events, _ = take(opener, *acceptor.reply(ask_id, BODY))

    assert events == []
    assert opener.late_replies == 1


def test_a_second_answer_to_one_ask_is_dropped() -> None:
    opener, acceptor = opened_pair()
    ask_id, out = opener.ask(BODY)
    take(acceptor, *out)

    first, second = acceptor.reply(ask_id, BODY), acceptor.reply(ask_id, BODY)

    assert len(first) == 1
    assert second == []


# --- sequence --------------------------------------------------------------------------------------------------------


def test_a_lost_ask_is_missed_by_the_next_one_and_both_come_in_order() -> None:
    opener, acceptor = opened_pair()
    first, _lost = opener.ask(BODY)
    second, out = opener.ask(BODY)

    events, stranger = take(acceptor, *out)
    _, hello = take(opener, *stranger)
    _, again = take(opener, *take(acceptor, *hello)[1])
    repeated, _ = take(acceptor, *again)

    assert events == []
    assert repeated == [Asked(first, BODY), Asked(second, BODY)]
    assert acceptor.losses == 1


def test_a_lost_last_ask_is_missed_by_the_ping() -> None:
    opener, acceptor = opened_pair()
    ask_id, _lost = opener.ask(BODY)

    _, stranger = take(acceptor, *opener.beat())
    _, hello = take(opener, *stranger)
    _, again = take(opener, *take(acceptor, *hello)[1])

    assert take(acceptor, *again)[0] == [Asked(ask_id, BODY)]


def test_a_lost_last_answer_is_missed_by_the_pong() -> None:
    opener, acceptor = opened_pair()
    ask_id, out = opener.ask(BODY)
    take(acceptor, *out)
    acceptor.reply(ask_id, BODY)

    _, pong = take(acceptor, *opener.beat())
    _, hello = take(opener, *pong)
    _, again = take(opener, *take(acceptor, *hello)[1])
    events, _ = take(opener, *take(acceptor, *again)[1])

    assert opener.losses == 1
    assert events == [Answered(ask_id, BODY)]


def test_a_copy_of_an_ask_or_tell_is_dropped() -> None:
    opener, acceptor = opened_pair()
    _, ask = opener.ask(BODY)
    tell = opener.tell(BODY)

    events, _ = take(acceptor, *ask, *tell, *ask, *tell)

    assert len(events) == 2


def test_an_answer_that_overtakes_another_counts_although_the_other_is_missed() -> None:
    opener, acceptor = opened_pair()
    asked = [opener.ask(BODY) for _ in range(2)]
    take(acceptor, *(one for _, out in asked for one in out))
    acceptor.reply(asked[0][0], BODY)
    second = acceptor.reply(asked[1][0], BODY)

    events, hello = take(opener, *second)

    assert events == [Answered(asked[1][0], BODY)]
    assert isinstance(frames.decode_frame(hello[0]), frames.Hello)


# --- tells -----------------------------------------------------------------------------------------------------------


def test_a_tell_without_a_session_is_dropped_and_counted() -> None:
    session = Session(peer("client"), opens=True)

    assert session.tell(BODY) == []
    assert session.dropped_tells == 1


def test_a_tell_reaches_the_peer() -> None:
    opener, acceptor = opened_pair()

    assert take(acceptor, *opener.tell(BODY))[0] == [Told(BODY)]


def test_a_tell_is_not_repeated() -> None:
    opener, acceptor = opened_pair()
    opener.tell(BODY)

    _, accepted = greet(opener, acceptor)

    assert accepted == [Opened(peer("client"), is_new_life=False)]


# --- credit ----------------------------------------------------------------------------------------------------------


def test_without_credit_asks_wait_and_go_in_order_when_it_comes() -> None:
    opener, acceptor = opened_pair(window=2)
    asked = [opener.ask(BODY) for _ in range(5)]
    up = [one for _, out in asked for one in out]
    assert len(up) == 2

    delivered: list[Event] = []
    while up:
        events, down = take(acceptor, *up)
        delivered += events
        _, up = take(opener, *down)

    assert delivered == [Asked(ask_id, BODY) for ask_id, _ in asked]


def test_answers_need_no_credit() -> None:
    opener, acceptor = opened_pair(window=1)
    ask_id, out = opener.ask(BODY)
    take(acceptor, *out)
    acceptor.ask(BODY)
    acceptor.ask(BODY)  # more than the opener has granted

    assert len(acceptor.reply(ask_id, BODY)) == 1


def test_a_peer_that_sends_more_than_it_was_granted_is_refused_and_nothing_changes() -> None:
    acceptor = Session(peer("server"), opens=False, window=1)
    take(acceptor, *Session(peer("client"), opens=True).connected())
    granted = [frame(frames.Tell(seq=1, body=msgspec.Raw(BODY)))]
    take(acceptor, *granted)
    acceptor._window._granted = 1  # as if the second grant had not been said yet

    with pytest.raises(ProtocolError, match="granted"):
        take(acceptor, frame(frames.Tell(seq=2, body=msgspec.Raw(BODY))))

    assert acceptor.state is State.OPEN
    assert acceptor._expected == 2


def test_too_many_open_asks_are_refused_and_the_next_is_taken_when_one_has_ended() -> None:
    opener, acceptor = opened_pair(opener=Session(peer("client"), opens=True, asks=Asks(most=4)))
    asked = [opener.ask(BODY) for _ in range(4)]

    with pytest.raises(LinkFull, match="4 requests wait for server"):
        opener.ask(BODY)

    take(acceptor, *asked[0][1])
    take(opener, *acceptor.reply(asked[0][0], BODY))
    assert opener.ask(BODY)[0] == 5


def test_what_gives_something_back_finds_room_where_others_do_not() -> None:
    opener, _ = opened_pair(opener=Session(peer("client"), opens=True, asks=Asks(most=4)))
    for _ in range(4):
        opener.ask(BODY)

    assert opener.ask(BODY, may_use_reserve=True)[0] == 5
    with pytest.raises(LinkFull):
        opener.ask(BODY, may_use_reserve=True)


def test_asks_that_are_open_are_bounded_by_bytes_as_well() -> None:
    opener, _ = opened_pair(opener=Session(peer("client"), opens=True, asks=Asks(most_bytes=len(LARGE))))
    ask_id, _ = opener.ask(LARGE)

    with pytest.raises(LinkFull):
        opener.ask(LARGE)

    opener.give_up(ask_id)
    assert opener.ask(LARGE)[0] == ask_id + 1


def test_tells_beyond_the_bound_are_dropped_and_counted() -> None:
    opener = Session(peer("client"), opens=True, asks=Asks(most_tells=2))
    greet(opener, Session(peer("server"), opens=False, window=1))
    for _ in range(5):
        opener.tell(BODY)

    assert opener.dropped_tells == 2


def test_an_ask_that_was_given_up_while_it_waited_is_never_sent() -> None:
    opener, acceptor = opened_pair(window=1)
    _, out = opener.ask(BODY)
    waiting, _ = opener.ask(BODY)
    opener.give_up(waiting)

    _, credit = take(acceptor, *out)

    assert take(opener, *credit)[1] == []


# --- size ------------------------------------------------------------------------------------------------------------


def test_a_request_too_large_for_a_link_is_refused_before_it_costs_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "MAX_BODY_BYTES", 100)
    opener, _ = opened_pair()

    with pytest.raises(MessageTooLarge, match="257 bytes"):
        opener.ask(LARGE)
    with pytest.raises(MessageTooLarge):
        opener.tell(LARGE)

    assert opener.unanswered == 0


def test_an_answer_too_large_for_a_link_is_answered_by_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MAX_BODY_BYTES", 100)
    opener, acceptor = opened_pair()
    ask_id, out = opener.ask(BODY)
    take(acceptor, *out)

    [got], _ = take(opener, *acceptor.reply(ask_id, LARGE))

    assert isinstance(got, Answered)
    assert msgspec.msgpack.decode(got.body, type=Failed).kind == "MessageTooLarge"


# --- signs of life ---------------------------------------------------------------------------------------------------


def test_silence_is_measured_from_whatever_was_heard_last() -> None:
    opener, acceptor = opened_pair()

    acceptor.receive(opener.tell(BODY)[0], 10.0)

    assert acceptor.silent_s(12.5) == 2.5


def test_bytes_that_are_no_frame_are_no_sign_of_life() -> None:
    _, acceptor = opened_pair()

    with pytest.raises(ProtocolError):
        acceptor.receive(b"\xc1", 10.0)

    assert acceptor.silent_s(12.0) == 12.0


def test_an_excuse_starts_the_silence_anew() -> None:
    _, acceptor = opened_pair()

    acceptor.excuse(100.0)

    assert acceptor.silent_s(101.0) == 1.0


def test_a_ping_is_answered_by_a_pong() -> None:
    opener, acceptor = opened_pair()

    assert take(acceptor, *opener.beat()) == ([], [frame(frames.Pong(seq=0))])


def test_the_beat_of_an_opener_that_waits_for_its_welcome_is_another_hello() -> None:
    opener = Session(peer("client"), opens=True)
    opener.connected()

    [again] = opener.beat()

    assert isinstance(frames.decode_frame(again), frames.Hello)


# --- the end ---------------------------------------------------------------------------------------------------------


def test_goodbye_closes_the_session_and_nothing_is_repeated() -> None:
    opener, acceptor = opened_pair()
    opener.ask(BODY)

    bye = opener.close()

    assert take(acceptor, *bye)[0] == [Left()]
    assert opener.unanswered == 0
    assert opener.connected() == []


def test_a_closed_session_refuses_asks() -> None:
    opener, _ = opened_pair()
    opener.close()

    with pytest.raises(LinkClosed):
        opener.ask(BODY)


def test_draining_takes_no_new_asks_finishes_the_old_ones_and_says_goodbye() -> None:
    opener, acceptor = opened_pair()
    ask_id, out = opener.ask(BODY)
    take(acceptor, *out)
    assert opener.drain() == []

    with pytest.raises(LinkClosed):
        opener.ask(BODY)
    events, bye = take(opener, *acceptor.reply(ask_id, BODY))

    assert events == [Answered(ask_id, BODY)]
    assert opener.state is State.CLOSED
    assert take(acceptor, *bye)[0] == [Left()]


def test_draining_answers_what_the_peer_has_asked_before_it_says_goodbye() -> None:
    opener, acceptor = opened_pair()
    ask_id, out = acceptor.ask(BODY)
    take(opener, *out)
    assert opener.drain() == []

    out = opener.reply(ask_id, BODY)

    assert take(acceptor, *out)[0] == [Answered(ask_id, BODY), Left()]


def test_draining_with_nothing_to_finish_ends_at_once() -> None:
    opener, acceptor = opened_pair()

    assert take(acceptor, *opener.drain())[0] == [Left()]
    assert opener.state is State.CLOSED


def test_giving_up_the_last_ask_ends_the_draining() -> None:
    opener, acceptor = opened_pair()
    ask_id, _ = opener.ask(BODY)
    opener.drain()

    assert take(acceptor, *opener.give_up(ask_id))[0] == [Left()]


def test_draining_goes_on_over_a_reconnect() -> None:
    opener, acceptor = opened_pair()
    ask_id, _lost = opener.ask(BODY)
    opener.drain()

    _, accepted = greet(opener, acceptor)
    events, bye = take(opener, *acceptor.reply(ask_id, BODY))

    assert accepted[1:] == [Asked(ask_id, BODY)]
    assert events == [Answered(ask_id, BODY)]
    assert take(acceptor, *bye)[0] == [Left()]


class BreakingWire(RuleBasedStateMachine):
    """A client, a server that is replaced at will, and a wire that loses everything when it breaks."""

    def __init__(self) -> None:
        super().__init__()
        self.client = Session(peer("client"), opens=True, window=5)
        self.life = 1
        self.server = Session(peer("server"), opens=False, window=5)
        self.up: list[bytes] = []
        self.down: list[bytes] = []
        self.asked: set[int] = set()
        self.answered: list[int] = []
        self.in_work: set[int] = set()
        self.carried_out: list[tuple[int, int]] = []
        self.up += self.client.connected()

    @rule()
    def ask(self) -> None:
        ask_id, out = self.client.ask(BODY)
        self.asked.add(ask_id)
        self.up += out

    @precondition(lambda self: self.up)
    @rule()
    def carry_up(self) -> None:
        events, out = self.server.receive(self.up.pop(0), NOW)
        self.down += out
        new = [event.id for event in events if isinstance(event, Asked)]
        self.in_work.update(new)
        self.carried_out += [(self.life, ask_id) for ask_id in new]

    @precondition(lambda self: self.down)
    @rule()
    def carry_down(self) -> None:
        events, out = self.client.receive(self.down.pop(0), NOW)
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
        self.server = Session(peer("server", self.life), opens=False, window=5)
        self.in_work.clear()
        self.down.clear()

    @rule()
    def beat(self) -> None:
        self.up += self.client.beat()

    @invariant()
    def no_answer_comes_twice(self) -> None:
        assert len(self.answered) == len(set(self.answered))
        assert set(self.answered) <= self.asked

    @invariant()
    def no_life_carries_out_an_ask_twice(self) -> None:
        assert len(self.carried_out) == len(set(self.carried_out))

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


TestBreakingWire = BreakingWire.TestCase
