"""Quantiles of waits."""

from __future__ import annotations

from covey.actors.limits.waits import KEPT, Waits


def test_nothing_is_known_before_the_first_grant() -> None:
    assert Waits().quantile_ms(0.5) is None


def test_quantiles_are_waits_that_were_seen() -> None:
    waits = Waits()
    for n in range(1, 101):
        waits.add(n / 1000)

    assert waits.quantile_ms(0.5) == 50
    assert waits.quantile_ms(0.99) == 99
    assert waits.quantile_ms(1.0) == 100
    assert waits.quantile_ms(0.0) == 1


def test_only_the_latest_are_kept() -> None:
    waits = Waits()
    for _ in range(KEPT):
        waits.add(100.0)

    for _ in range(KEPT):
        waits.add(1.0)

    assert waits.quantile_ms(1.0) == 1000
