"""Credit: a sender never gets ahead of what the receiver granted, and never waits for a receiver that keeps up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.protocol.credit import Allowance, Window
from covey.protocol.errors import ProtocolError


def test_nothing_may_be_sent_before_the_session_is_open() -> None:
    assert not Allowance().take()


def test_as_much_as_the_window_may_be_sent_and_no_more() -> None:
    allowance = Allowance()
    allowance.begin(2)

    assert [allowance.take() for _ in range(3)] == [True, True, False]


def test_a_grant_opens_the_way_again_and_an_older_one_does_not_close_it() -> None:
    allowance = Allowance()
    allowance.begin(1)
    allowance.take()

    allowance.grant(3)
    allowance.grant(2)

    assert allowance.left == 2


def test_a_new_session_begins_with_a_whole_window() -> None:
    allowance = Allowance()
    allowance.begin(2)
    allowance.take()

    allowance.begin(2)

    assert allowance.left == 2


def test_the_grant_is_said_once_for_half_a_window() -> None:
    window = Window(8)
    window.begin()

    said = [window.take() for _ in range(8)]

    assert said == [None, None, None, 12, None, None, None, 16]


def test_more_than_was_granted_is_refused_and_not_counted() -> None:
    window = Window(1)

    with pytest.raises(ProtocolError, match="granted"):
        window.take()
    window.begin()

    assert window.take() == 2


@given(st.integers(1, 50), st.lists(st.booleans(), max_size=400))
def test_sender_and_receiver_agree_in_every_order(size: int, sends: list[bool]) -> None:
    """True: the sender sends if it may. False: the receiver takes one in, and its grant arrives at once."""
    allowance, window, under_way = Allowance(), Window(size), 0
    allowance.begin(size)
    window.begin()

    for is_send in sends:
        if is_send and allowance.take():
            under_way += 1
        elif not is_send and under_way:
            under_way -= 1
            grant = window.take()
            if grant is not None:
                allowance.grant(grant)
        assert under_way <= size
        assert under_way or allowance.left > 0
