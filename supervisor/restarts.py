"""Restarts: how often a child may come back, and how long it waits before it does.

Pure: no clock, no randomness. The caller passes `now` (monotonic seconds) and a roll in [0, 1), and keeps the result.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import msgspec

Spent = tuple[float, ...]
"""When restarts happened, oldest first; never longer than the limit it was charged to."""


class RestartLimit(msgspec.Struct, frozen=True, kw_only=True):
    """At most `restarts` in any `within_s` seconds; 0 restarts means that the first failure is the last."""

    restarts: int = 10
    within_s: float = 60.0


class BackOff(msgspec.Struct, frozen=True, kw_only=True):
    """How the wait before a restart grows: none before the first, then `base_s`, doubled each time up to `cap_s`.

    With the default limit a child that dies at once is given up after about 50 s, so a short outage is survived.
    """

    base_s: float = 0.1
    cap_s: float = 30.0
    jitter: float = 0.25
    """Share of the wait that the roll may take away: waits never exceed `cap_s`, and siblings do not march in step."""
    stable_s: float = 30.0
    """A child that ran this long starts over with attempt 0."""


def spend(spent: Spent, limit: RestartLimit, now: float) -> Spent | None:
    """Record one restart at `now`; None once the window would hold more than the limit, and then nothing is spent."""
    recent = tuple(at for at in spent if now - at < limit.within_s)
    if len(recent) >= limit.restarts:
        return None
    return (*recent, now)


def left(spent: Spent, limit: RestartLimit, now: float) -> int:
    """How many restarts the limit would pay for at `now`."""
    return max(0, limit.restarts - sum(now - at < limit.within_s for at in spent))


def newest(spent: Iterable[float], limit: RestartLimit) -> Spent:
    """What a limit has to remember of restarts that happened, in any order."""
    ordered = sorted(spent)
    return tuple(ordered[len(ordered) - min(limit.restarts, len(ordered)) :])


def ages_to_times(stamps_ms: Iterable[int], *, wall_ms: int, now: float) -> Spent:
    """Wall-clock stamps of an earlier life as times of ours; what lies in the future by then has just happened."""
    return tuple(sorted(now - max(0, wall_ms - stamp) / 1000 for stamp in stamps_ms))


def delay_s(back_off: BackOff, attempt: int, roll: float) -> float:
    """How long to wait before restart number `attempt` (from 0) since the child was last stable."""
    if attempt == 0:
        return 0.0
    # Doubling is stopped early: 2 ** 2000 is no float any more, and a child may fail that often within a year.
    wait_s = min(back_off.cap_s, back_off.base_s * 2.0 ** min(attempt - 1, 64))
    return wait_s * (1.0 - back_off.jitter * roll)


def was_stable(back_off: BackOff, since: float, now: float) -> bool:
    """Whether a child that became ready at `since` and ends at `now` has earned a fresh back-off."""
    return now - since >= back_off.stable_s


def roll(seed: int, child: str, start: int) -> float:
    """A number in [0, 1) for jitter, after `start` starts in the tree; the same arguments give the same one."""
    return random.Random(f"{seed}:{child}:{start}").random()
