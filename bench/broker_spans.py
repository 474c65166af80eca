"""Grants and releases of many processes on one clock, and what follows from them. Pure.

All processes of a host read the same monotonic clock, so moments of different processes can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Spans(msgspec.Struct, frozen=True, kw_only=True):
    """When one process got its slots and gave them back, in the order of its grants."""

    granted: tuple[float, ...] = ()
    released: tuple[float, ...] = ()


def hand_overs(spans: Iterable[Spans]) -> list[float]:
    """Seconds from each release to the grant it made room for; for one slot that somebody always waited for."""
    every = list(spans)
    granted = sorted(moment for one in every for moment in one.granted)
    released = sorted(moment for one in every for moment in one.released)
    return [got - given for given, got in zip(released, granted[1:], strict=False)]


def finished(spans: Iterable[Spans], *, since: float, until: float) -> int:
    """How many slots were given back in that time."""
    return sum(since <= moment < until for one in spans for moment in one.released)


def held(spans: Iterable[Spans]) -> list[float]:
    """Seconds each slot was held."""
    return [end - start for one in spans for start, end in zip(one.granted, one.released, strict=False)]
