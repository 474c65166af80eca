"""Whoever is heard last ends last."""

from __future__ import annotations

from covey.actors.limits.distant import Distant
from covey.protocol.peer import REMOTE, Owner


def owner(number: int) -> Owner:
    return Owner(pid=number, start_ticks=1, boot_id=f"{REMOTE}key:boot")


def test_nobody_ends_where_nobody_is() -> None:
    distant = Distant(ttl_s=10.0)

    assert distant.next_at() is None
    assert distant.pop_due(1e9) == []


def test_owners_end_in_the_order_in_which_they_were_heard_last() -> None:
    distant = Distant(ttl_s=10.0)
    for number in (1, 2, 3):
        distant.hear(owner(number), float(number))

    distant.hear(owner(1), 4.0)

    assert distant.next_at() == 12.0
    assert distant.pop_due(12.9) == [owner(2)]
    assert distant.pop_due(14.0) == [owner(3), owner(1)]
    assert len(distant) == 0


def test_an_owner_that_was_forgotten_does_not_end() -> None:
    distant = Distant(ttl_s=10.0)
    distant.hear(owner(1), 0.0)

    distant.forget(owner(1))
    distant.forget(owner(1))

    assert owner(1) not in distant
    assert distant.next_at() is None
