"""The mailbox: bound, lanes, overflow, and that a put is drained or refused."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from covey.actors.runtime.exits import Killed, Normal, Shutdown
from covey.actors.runtime.mailbox import Envelope, Mailbox, Overflow, Put, Stop
from covey.actors.runtime.monitor import Down
from covey.actors.runtime.reply import ThreadReply

DOWN = Down(ref=None, reason=Normal())  # type: ignore[arg-type]  # the mailbox does not look at it


def asleep(limit: int = 3, overflow: Overflow = "reject") -> Mailbox:
    box = Mailbox(limit, overflow)
    assert box.take() is None
    return box


def test_first_put_into_a_sleeping_mailbox_asks_for_a_turn_and_later_ones_do_not() -> None:
    box = asleep()

    puts = [box.put(Envelope(n))[0] for n in range(3)]

    assert puts == [Put.WAKE, Put.ACCEPTED, Put.ACCEPTED]


def test_full_mailbox_refuses_the_newest() -> None:
    box = asleep(limit=1)
    box.put(Envelope("first"))

    assert box.put(Envelope("second")) == (Put.FULL, None)
    assert len(box) == 1


def test_drop_oldest_hands_the_displaced_envelope_back() -> None:
    box = asleep(limit=1, overflow="drop_oldest")
    oldest = Envelope("oldest")
    box.put(oldest)

    assert box.put(Envelope("newest")) == (Put.ACCEPTED, oldest)


def test_coalesce_replaces_the_waiting_message_of_the_same_key_in_its_place() -> None:
    box = asleep(limit=2, overflow="coalesce")
    box.put(Envelope("a1", key="a"))
    box.put(Envelope("b1", key="b"))

    assert box.put(Envelope("a2", key="a")) == (Put.ACCEPTED, None)
    assert box.put(Envelope("c1", key="c"))[0] is Put.FULL
    assert [box.take().message, box.take().message] == ["a2", "b1"]  # type: ignore[union-attr]


def test_stop_overtakes_downs_and_downs_overtake_user_mail() -> None:
    box = asleep()
    box.put(Envelope("user"))
    box.put_down(DOWN)

    assert box.take() is DOWN
    box.put_down(DOWN)
    box.put_stop(Shutdown())
    assert isinstance(box.take(), Stop)


def test_room_is_made_from_asks_nobody_waits_for() -> None:
    box = asleep(limit=1)
    reply = ThreadReply()
    box.put(Envelope("abandoned", reply))
    reply.future.cancel()
    box.note_abandoned()

    assert box.put(Envelope("wanted"))[0] is Put.ACCEPTED
    assert len(box) == 1


def test_mail_the_actor_ordered_itself_passes_the_bound() -> None:
    box = asleep(limit=1)
    box.put(Envelope("user"))

    assert box.put_unbounded(Envelope("timer")) is Put.ACCEPTED


def test_close_hands_back_what_waits_and_refuses_everything_after() -> None:
    box = asleep()
    waiting = [Envelope(1), Envelope(2)]
    for envelope in waiting:
        box.put(envelope)

    assert box.close(Killed()) == waiting
    assert box.close(Normal()) == []
    assert box.closed_by == Killed()
    puts = {box.put(Envelope(3))[0], box.put_down(DOWN), box.put_stop(Normal()), box.put_unbounded(Envelope(4))}
    assert puts == {Put.CLOSED}
    assert box.take() is None


class MailboxModel(RuleBasedStateMachine):
    """Against a list: nothing lost, nothing invented, in order, within the bound, never asleep with mail."""

    @initialize(limit=st.integers(1, 4), overflow=st.sampled_from(["reject", "drop_oldest", "coalesce"]))
    def make(self, limit: int, overflow: Overflow) -> None:
        self.box = Mailbox(limit, overflow)
        self.limit, self.overflow = limit, overflow
        self.user: list[tuple[Hashable, int]] = []
        self.downs = 0
        self.is_awake, self.is_stopping, self.is_closed = True, False, False
        self.sent = 0

    def expect_woken(self, put: Put) -> None:
        assert put is (Put.ACCEPTED if self.is_awake else Put.WAKE)
        self.is_awake = True

    @rule(key=st.sampled_from(["a", "b", None]))
    def put(self, key: str | None) -> None:
        self.sent += 1
        key = key if self.overflow == "coalesce" else None
        put, displaced = self.box.put(Envelope(self.sent, key=key))
        same = [i for i, (known, _) in enumerate(self.user) if key is not None and known == key]
        if self.is_closed:
            assert put is Put.CLOSED
        elif same:
            assert put is Put.ACCEPTED
            self.user[same[0]] = (key, self.sent)
        elif len(self.user) < self.limit:
            self.expect_woken(put)
            self.user.append((key, self.sent))
        elif self.overflow == "drop_oldest":
            assert displaced is not None
            assert displaced.message == self.user.pop(0)[1]
            self.expect_woken(put)
            self.user.append((key, self.sent))
        else:
            assert put is Put.FULL

    @rule()
    def put_down(self) -> None:
        put = self.box.put_down(DOWN)
        if self.is_closed:
            assert put is Put.CLOSED
        else:
            self.expect_woken(put)
            self.downs += 1

    @rule()
    def put_stop(self) -> None:
        put = self.box.put_stop(Shutdown())
        if self.is_closed:
            assert put is Put.CLOSED
        else:
            self.expect_woken(put)
            self.is_stopping = True

    @rule()
    def take(self) -> None:
        taken = self.box.take()
        if self.is_stopping:
            assert isinstance(taken, Stop)
        elif self.downs:
            assert taken is DOWN
            self.downs -= 1
        elif self.user:
            assert isinstance(taken, Envelope)
            assert taken.message == self.user.pop(0)[1]
        else:
            assert taken is None
            self.is_awake = False

    @rule()
    def close(self) -> None:
        left = self.box.close(Killed())
        assert [envelope.message for envelope in left] == [message for _, message in self.user]
        self.user, self.downs = [], 0
        self.is_stopping, self.is_closed = False, True

    @invariant()
    def holds_no_more_than_its_bound(self) -> None:
        if hasattr(self, "box"):
            assert len(self.box) == len(self.user) <= self.limit


TestMailboxModel = MailboxModel.TestCase


@pytest.mark.parametrize("overflow", ["reject", "drop_oldest", "coalesce"])
def test_an_idle_mailbox_keeps_no_lane(overflow: Overflow) -> None:
    box = asleep(overflow=overflow)
    box.put(Envelope(1, key="a"))
    box.take()

    assert box._user is None
