"""What the zygote owes."""

from __future__ import annotations

from covey.protocol.ids import Incarnation
from covey.supervisor.debts import Debts

ONE, OTHER = Incarnation("one"), Incarnation("other")


def test_the_first_word_counts_and_each_debt_is_paid_by_itself() -> None:
    debts = Debts(patience_s=10.0)
    debts.owe(ONE, 0.0)
    debts.owe(ONE, 8.0)
    debts.owe(OTHER, 5.0)

    assert debts.next_at() == 10.0
    assert not debts.is_overdue(9.9)
    assert debts.is_overdue(10.0)
    debts.pay(ONE)
    assert not debts.is_overdue(14.9)
    assert debts.is_overdue(15.0)


def test_nobody_owes_anything_to_begin_with_and_another_zygote_owes_nothing() -> None:
    debts = Debts()
    assert debts.next_at() is None
    assert not debts.is_overdue(1e9)

    debts.owe(ONE, 0.0)
    debts.pay(OTHER)
    debts.clear()

    assert not debts.is_overdue(1e9)
