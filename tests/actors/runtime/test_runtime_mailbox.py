"""The mailbox: bound, lanes, overflow, and that a put is drained or refused."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from covey.actors.runtime.exits import Killed, Normal, Shutdown
from covey.actors.runtime.mailbox import Envelope, Mailbox, Overflow, Put, Spill, Stop
from covey.actors.runtime.monitor import Down
from covey.actors.runtime.reply import ThreadReply

DOWN = Down(ref=None, reason=Normal())  # type: ignore[arg-type]  # the mailbox does not look at it


def asleep(limit: int = 3, overflow: Overflow = "reject", *, bytes_limit: int = 100) -> Mailbox:
    box = Mailbox(limit, overflow, bytes_limit=bytes_limit)
    assert box.take() is None
    return box


def test_first_put_into_a_sleeping_mailbox_asks_for_a_turn_and_later_ones_do_not() -> None:
    box = asleep()

    puts = [box.put(Envelope(n))[0] for n in range(3)]

    assert puts == [Put.WAKE, Put.ACCEPTED, Put.ACCEPTED]


def test_full_mailbox_refuses_the_newest() -> None:
    box = asleep(limit=1)
    box.put(Envelope("first"))
    second = Envelope("second")

    assert box.put(second) == (Put.FULL, Spill("messages", 1, (second,)))
    assert len(box) == 1


def test_drop_oldest_hands_the_displaced_envelope_back() -> None:
    box = asleep(limit=1, overflow="drop_oldest")
    oldest = Envelope("oldest")
    box.put(oldest)

    assert box.put(Envelope("newest")) == (Put.ACCEPTED, Spill("messages", 1, (oldest,)))


def test_coalesce_replaces_the_waiting_message_of_the_same_key_in_its_place() -> None:
    box = asleep(limit=2, overflow="coalesce")
    box.put(Envelope("a1", key="a"))
    box.put(Envelope("b1", key="b"))

    assert box.put(Envelope("a2", key="a")) == (Put.ACCEPTED, None)
    assert box.put(Envelope("c1", key="c"))[0] is Put.FULL
    assert [box.take().message, box.take().message] == ["a2", "b1"]  # type: ignore[union-attr]


@pytest.mark.parametrize("overflow", ["reject", "coalesce"])
def test_a_message_that_does_not_fit_by_bytes_is_handed_back_and_a_smaller_one_taken(overflow: Overflow) -> None:
    box = asleep(overflow=overflow, bytes_limit=100)
    box.put(Envelope("first", size=60))
    large = Envelope("large", size=41)

    assert box.put(large) == (Put.FULL, Spill("bytes", 100, (large,)))
    assert box.put(Envelope("fits", size=40))[0] is Put.ACCEPTED
    assert box.bytes_waiting == 100


def test_drop_oldest_drops_as_many_as_the_bytes_of_the_newest_need() -> None:
    box = asleep(limit=10, overflow="drop_oldest", bytes_limit=100)
    waiting = [Envelope(n, size=30) for n in range(3)]
    for envelope in waiting:
        box.put(envelope)

    assert box.put(Envelope("newest", size=70)) == (Put.ACCEPTED, Spill("bytes", 100, tuple(waiting[:2])))
    assert box.bytes_waiting == 100


def test_a_message_larger_than_the_mailbox_is_refused_and_nothing_is_dropped_for_it() -> None:
    box = asleep(overflow="drop_oldest", bytes_limit=100)
    box.put(Envelope("small", size=1))
    huge = Envelope("huge", size=101)

    assert box.put(huge) == (Put.FULL, Spill("bytes", 100, (huge,)))
    assert len(box) == 1


def test_coalesce_hands_a_newer_message_back_that_is_too_large_for_the_place_of_the_older() -> None:
    box = asleep(overflow="coalesce", bytes_limit=100)
    box.put(Envelope("a1", key="a", size=50))
    box.put(Envelope("b1", key="b", size=40))
    large = Envelope("a2", key="a", size=61)

    assert box.put(large) == (Put.FULL, Spill("bytes", 100, (large,)))
    assert box.put(Envelope("a3", key="a", size=60)) == (Put.ACCEPTED, None)
    assert box.take().message == "a3"  # type: ignore[union-attr]
    assert box.bytes_waiting == 40


def test_stop_overtakes_downs_and_downs_overtake_user_mail() -> None:
    box = asleep()
    box.put(Envelope("user"))
    box.put_down(DOWN)

    assert box.take() is DOWN
    box.put_down(DOWN)
    box.put_stop(Shutdown())
    assert isinstance(box.take(), Stop)


def test_room_is_made_from_asks_nobody_waits_for() -> None:
    box = asleep(limit=1, bytes_limit=100)
    reply = ThreadReply()
    box.put(Envelope("abandoned", reply, size=100))
    reply.future.cancel()
    box.note_abandoned()

    assert box.put(Envelope("wanted", size=100))[0] is Put.ACCEPTED
    assert (len(box), box.bytes_waiting) == (1, 100)


def test_mail_the_actor_ordered_itself_passes_the_bound() -> None:
    box = asleep(limit=1, bytes_limit=10)
    box.put(Envelope("user", size=10))

    assert box.put_unbounded(Envelope("timer", size=10)) is Put.ACCEPTED


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


# --- forced interleavings: another thread gets in right before the lock is taken, or right after it is released ------


class Contended:
    """A lock that lets `meanwhile` happen at one of its ends, once."""

    def __init__(self, lock: AbstractContextManager[bool], end: str, meanwhile: Callable[[], object]) -> None:
        self.lock, self.end, self.meanwhile = lock, end, meanwhile

    def __enter__(self) -> None:
        self.happen("before")
        self.lock.__enter__()

    def __exit__(self, *exc: Any) -> None:
        self.lock.__exit__(*exc)
        self.happen("after")

    def happen(self, end: str) -> None:
        if end == self.end:
            self.end = "over"
            self.meanwhile()


def contend(box: Mailbox, end: str, meanwhile: Callable[[], object]) -> None:
    box._lock = Contended(box._lock, end, meanwhile)  # type: ignore[assignment]  # all it needs of a lock


@pytest.mark.parametrize("end", ["before", "after"])
@pytest.mark.parametrize("first", ["put", "close"])
def test_a_put_that_meets_a_close_is_drained_or_refused(first: str, end: str) -> None:
    box = asleep()
    drained: list[Envelope] = []
    puts: list[Put] = []

    def close() -> None:
        drained.extend(box.close(Killed()))

    def put() -> None:
        puts.append(box.put(Envelope("mail"))[0])

    contend(box, end, close if first == "put" else put)
    if first == "put":
        put()
    else:
        close()

    assert (puts == [Put.CLOSED]) is (drained == [])
    assert box.take() is None


@pytest.mark.parametrize("end", ["before", "after"])
def test_a_put_that_meets_the_last_take_is_taken_or_wakes(end: str) -> None:
    box = Mailbox(3, "reject", bytes_limit=100)
    puts: list[Put] = []

    contend(box, end, lambda: puts.append(box.put(Envelope("mail"))[0]))
    taken = box.take()

    assert (puts == [Put.WAKE]) is (taken is None)
    if taken is None:
        assert box.put(Envelope("next"))[0] is Put.ACCEPTED


class Waiting(NamedTuple):
    key: Hashable | None
    message: int
    size: int


class MailboxModel(RuleBasedStateMachine):
    """Against a list: nothing lost, nothing invented, in order, within the bound, never asleep with mail."""

    @initialize(
        limit=st.integers(1, 4),
        bytes_limit=st.integers(5, 12),
        overflow=st.sampled_from(["reject", "drop_oldest", "coalesce"]),
    )
    def make(self, limit: int, bytes_limit: int, overflow: Overflow) -> None:
        self.box = Mailbox(limit, overflow, bytes_limit=bytes_limit)
        self.limit, self.bytes_limit, self.overflow = limit, bytes_limit, overflow
        self.user: list[Waiting] = []
        self.downs = 0
        self.is_awake, self.is_stopping, self.is_closed = True, False, False
        self.sent = 0

    def expect_woken(self, put: Put) -> None:
        assert put is (Put.ACCEPTED if self.is_awake else Put.WAKE)
        self.is_awake = True

    def lacks(self, size: int) -> str | None:
        if len(self.user) >= self.limit:
            return "messages"
        return "bytes" if sum(waiting.size for waiting in self.user) + size > self.bytes_limit else None

    @rule(key=st.sampled_from(["a", "b", None]), size=st.integers(0, 6))
    def put(self, key: str | None, size: int) -> None:
        self.sent += 1
        new = Waiting(key if self.overflow == "coalesce" else None, self.sent, size)
        put, spill = self.box.put(Envelope(new.message, key=new.key, size=size))
        same = [i for i, waiting in enumerate(self.user) if new.key is not None and waiting.key == new.key]
        spilt = [envelope.message for envelope in spill.envelopes] if spill is not None else []
        if self.is_closed:
            assert (put, spilt) == (Put.CLOSED, [])
        elif same and sum(w.size for w in self.user) - self.user[same[0]].size + size <= self.bytes_limit:
            assert (put, spilt) == (Put.ACCEPTED, [])
            self.user[same[0]] = new
        elif not same and self.lacks(size) is None:
            assert spilt == []
            self.expect_woken(put)
            self.user.append(new)
        elif self.overflow == "drop_oldest" and size <= self.bytes_limit:
            assert spill is not None
            assert spill.unit == self.lacks(size)
            displaced = []
            while self.lacks(size):
                displaced.append(self.user.pop(0).message)
            assert spilt == displaced
            self.expect_woken(put)
            self.user.append(new)
        else:
            assert spill is not None
            assert spill.unit == ("bytes" if same else self.lacks(size))
            assert (put, spilt) == (Put.FULL, [new.message])

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
            assert taken.message == self.user.pop(0).message
        else:
            assert taken is None
            self.is_awake = False

    @rule()
    def close(self) -> None:
        left = self.box.close(Killed())
        assert [envelope.message for envelope in left] == [waiting.message for waiting in self.user]
        self.user, self.downs = [], 0
        self.is_stopping, self.is_closed = False, True

    @invariant()
    def holds_no_more_than_its_bound(self) -> None:
        if hasattr(self, "box"):
            assert len(self.box) == len(self.user) <= self.limit
            assert self.box.bytes_waiting == sum(waiting.size for waiting in self.user) <= self.bytes_limit


TestMailboxModel = MailboxModel.TestCase


@pytest.mark.parametrize("overflow", ["reject", "drop_oldest", "coalesce"])
def test_an_idle_mailbox_keeps_no_lane(overflow: Overflow) -> None:
    box = asleep(overflow=overflow)
    box.put(Envelope(1, key="a"))
    box.take()

    assert box._user is None
