"""What is to be kept alive: child specifications, and the plan they amount to.

Pure. A plan is checked once when it is made; everything after trusts it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from ..protocol.errors import UsageError
from .restarts import BackOff, RestartLimit


class RestartType(StrEnum):
    """When a child that ended without being asked comes back."""

    PERMANENT = "permanent"
    """Always."""
    TRANSIENT = "transient"
    """Unless it ended normally."""
    TEMPORARY = "temporary"
    """Never."""


class Strategy(StrEnum):
    """Who is restarted when one child fails."""

    ONE_FOR_ONE = "one_for_one"
    """That child."""
    ONE_FOR_ALL = "one_for_all"
    """All: everybody is stopped, then everybody is started in order of rank."""
    REST_FOR_ONE = "rest_for_one"
    """That child and everybody of a higher rank; siblings of its own rank do not depend on it."""


class AutoShutdown(StrEnum):
    """Whether the tree goes down by itself when significant children are done."""

    NEVER = "never"
    ANY_SIGNIFICANT = "any_significant"
    """As soon as one of them ended by itself and does not come back."""
    ALL_SIGNIFICANT = "all_significant"
    """Once the last of them did."""


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One child: what it is and how it is treated."""

    name: str
    role: str
    rank: int
    """Children start in order of rank, in parallel within one, and stop in reverse."""
    restart: RestartType = RestartType.PERMANENT
    shutdown_s: float = 5.0
    """Time between SIGTERM and SIGKILL; 0 kills at once, `inf` waits without end."""
    start_deadline_s: float = 10.0
    """Time from the start to Ready."""
    limit: RestartLimit = RestartLimit()
    back_off: BackOff = BackOff()
    is_vital: bool = True
    """Whether the tree is of no use once this child is given up. Otherwise it goes on without it."""
    is_significant: bool = False
    """Whether its end by itself counts for `TreeSpec.auto_shutdown`; not for a permanent child, which has no end."""


class TreeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A supervisor's children and its own limit over all of them."""

    children: tuple[ChildSpec, ...]
    strategy: Strategy = Strategy.ONE_FOR_ONE
    limit: RestartLimit = RestartLimit(restarts=30, within_s=60.0)
    auto_shutdown: AutoShutdown = AutoShutdown.NEVER


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A specification that was checked, with what is looked up at every event. Made by `plan`."""

    spec: TreeSpec
    place: dict[str, int]
    """Where a child stands in `spec.children`."""
    levels: tuple[tuple[int, ...], ...]
    """Places by rank, lowest rank first: level 0 starts first."""
    level_of: tuple[int, ...]
    """The level of each place."""
    significant: tuple[int, ...] = ()
    """Places of the significant children."""


def plan(spec: TreeSpec) -> Plan:
    """Check a specification and prepare it; raises `UsageError` with the first thing that cannot be meant."""
    for problem in _problems(spec):
        raise UsageError(problem)
    ranks = sorted({child.rank for child in spec.children})
    level_of = tuple(ranks.index(child.rank) for child in spec.children)
    levels = tuple(tuple(at for at, level in enumerate(level_of) if level == wanted) for wanted in range(len(ranks)))
    place = {child.name: at for at, child in enumerate(spec.children)}
    significant = tuple(at for at, child in enumerate(spec.children) if child.is_significant)
    return Plan(spec=spec, place=place, levels=levels, level_of=level_of, significant=significant)


def _problems(spec: TreeSpec) -> Iterator[str]:
    yield from _limit_problems("the tree", spec.limit)
    seen: set[str] = set()
    for child in spec.children:
        if child.name in seen:
            yield f"two children are called {child.name}"
        seen.add(child.name)
        yield from _child_problems(child)
        if child.is_significant and spec.auto_shutdown is AutoShutdown.NEVER:
            yield f"{child.name} is significant, but auto_shutdown is never"
        # Otherwise one failing child could use up the tree's restarts and take its healthy siblings down with it.
        if child.limit.restarts > spec.limit.restarts or child.limit.within_s < spec.limit.within_s:
            yield f"{child.name} may restart more often than the whole tree"


def _child_problems(child: ChildSpec) -> Iterator[str]:
    if not child.name or not child.role:
        yield "a child needs a name and a role"
    if child.is_significant and child.restart is RestartType.PERMANENT:
        yield f"{child.name} is significant and permanent; it always comes back, so its end can mean nothing"
    if not child.shutdown_s >= 0:
        yield f"shutdown_s of {child.name} is {child.shutdown_s}; it must be 0 or more"
    if not 0 < child.start_deadline_s < math.inf:
        yield f"start_deadline_s of {child.name} is {child.start_deadline_s}; it must be a positive number"
    back_off = child.back_off
    if not (0 <= back_off.base_s <= back_off.cap_s < math.inf and 0 <= back_off.jitter <= 1):
        yield f"the back-off of {child.name} is no back-off: 0 <= base_s <= cap_s, jitter from 0 to 1"
    yield from _limit_problems(child.name, child.limit)


def _limit_problems(whose: str, limit: RestartLimit) -> Iterator[str]:
    if limit.restarts < 0 or not limit.within_s > 0:
        said = f"{limit.restarts} restarts in {limit.within_s} s"
        yield f"the limit of {whose} is {said}; it must be 0 or more restarts in more than 0 s"
