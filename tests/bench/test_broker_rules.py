"""The rules' own cost, measured without a process: the queue is really there, and nobody in it is dear."""

from __future__ import annotations

from covey.bench.broker_rules import rules_with


def test_each_decision_is_timed_and_a_waiter_takes_less_than_a_kibibyte() -> None:
    rules = rules_with(2_000, rounds=20)

    assert len(rules.ask) == len(rules.hand_over) == 20
    assert min(*rules.ask, *rules.hand_over) > 0
    assert 100 < rules.waiter_bytes <= 1024


def test_a_slot_changes_hands_as_fast_with_ten_thousand_waiters_of_one_process_as_with_ten() -> None:
    few, many = rules_with(10, rounds=200), rules_with(10_000, rounds=200)

    # The fastest of many: what it takes when nobody else has the processor.
    assert min(many.hand_over) < 2 * min(few.hand_over)
    assert min(many.ask) < 2 * min(few.ask)
