"""Batches: order through refusals, a few under way at once, and never one that could overtake the first."""

from __future__ import annotations

from covey.protocol.ids import SessionId
from covey.protocol.messages.ledger import Append, SessionEnded
from covey.supervisor.batches import Batches


def batches(records: int, *, most: int = 2, under_way: int = 3) -> Batches:
    made = Batches(most=most, under_way=under_way)
    for number in range(1, records + 1):
        made.add(SessionEnded(session=SessionId(str(number)), outcome="done", at_ms=number))
    return made


def numbers(append: Append | None) -> list[int]:
    assert append is not None
    got = [int(record.session) for record in append.records if isinstance(record, SessionEnded)]
    assert got == list(range(append.first, append.first + len(got)))
    return got


def known(records: int) -> Batches:
    """With the first record committed, so that the ledger knows the sender."""
    made = batches(1)
    made.next()
    made.committed(1)
    for number in range(2, records + 1):
        made.add(SessionEnded(session=SessionId(str(number)), outcome="done", at_ms=number))
    return made


def test_nothing_follows_the_first_batch_before_it_is_committed() -> None:
    made = batches(6)

    assert numbers(made.next()) == [1, 2]
    assert made.next() is None

    made.committed(2)
    assert numbers(made.next()) == [3, 4]
    assert numbers(made.next()) == [5, 6]


def test_no_more_batches_are_under_way_than_allowed() -> None:
    made = known(20)

    sent = [made.next() for _ in range(4)]

    assert [append is not None for append in sent] == [True, True, True, False]


def test_after_a_refusal_nothing_is_sent_until_all_came_back_and_then_everything_again() -> None:
    made = known(5)
    made.next()
    made.next()

    made.refused()
    is_early = made.is_to_be_resumed
    assert made.next() is None
    made.refused()
    is_time = made.is_to_be_resumed
    made.resume()

    assert (is_early, is_time) == (False, True)
    assert numbers(made.next()) == [2, 3]
    assert numbers(made.next()) == [4, 5]


def test_what_was_committed_beside_a_refusal_is_not_sent_again() -> None:
    made = known(7)
    for _ in range(3):
        made.next()

    made.committed(3)
    made.refused()
    made.refused()
    made.resume()

    assert numbers(made.next()) == [4, 5]


def test_a_batch_too_large_for_a_link_is_halved_until_it_fits_and_grows_again() -> None:
    made = batches(8, most=4)
    assert numbers(made.next()) == [1, 2, 3, 4]

    made.too_large()
    made.resume()
    assert numbers(made.next()) == [1, 2]
    made.committed(2)

    assert numbers(made.next()) == [3, 4, 5, 6]


def test_a_record_of_its_own_size_is_never_split() -> None:
    made = batches(1, most=1)
    made.next()

    made.too_large()
    made.resume()

    assert numbers(made.next()) == [1]


def test_everything_is_sent_only_when_nothing_waits() -> None:
    made = batches(3)

    made.next()
    assert not made.is_all_sent
    made.committed(2)
    made.next()

    assert made.is_all_sent
