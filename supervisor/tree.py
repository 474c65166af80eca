"""A supervisor's whole state: its children, the course they are on together, and what has been spent on restarts.

Pure types. `strategy.decide` is the only one that makes a new state from an old one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from .exits import ExitReason
from .lifecycle import Absent, Complete, Escalate, Phase
from .restarts import Spent, newest
from .roster import Roster
from .spec import Plan

_NO_PAST: Final[Mapping[str, Spent]] = MappingProxyType({})


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of one child."""

    phase: Phase = Absent()
    lives: int = 0
    """Starts since the tree was last brought up."""
    attempt: int = 0
    """Restarts since it was last stable."""
    spent: Spent = ()
    last_end: ExitReason | None = None
    """How its life before this one ended."""

    @property
    def restarts(self) -> int:
        """How often it came back since the tree was brought up."""
        return max(0, self.lives - 1)


class Down(msgspec.Struct, frozen=True, tag="down"):
    """No process is left, and none is due. `why` says so if nobody asked for that."""

    why: Escalate | Complete | None = None


class Rising(msgspec.Struct, frozen=True, tag="rising", kw_only=True):
    """Level `level` starts; `waiting` children of this and lower levels are not ready.

    From level `floor` upwards everybody starts; below it only those that failed.
    """

    level: int
    waiting: int
    floor: int = 0


class Up(msgspec.Struct, frozen=True, tag="up"):
    """Every level was ready; children come and go one by one."""


class Falling(msgspec.Struct, frozen=True, tag="falling", kw_only=True):
    """Levels from `level` upwards stop; `waiting` of them are alive. Below `floor` nobody is stopped.

    Then the tree is down (`rise_from` is None, `why` goes with it), or it rises from there.
    """

    level: int
    waiting: int
    floor: int = 0
    rise_from: int | None = None
    why: Escalate | Complete | None = None


Course = Down | Rising | Up | Falling


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """A supervisor's whole state. Made by `new_tree`, changed by `decide` only."""

    plan: Plan
    boot: str
    seed: int
    children: Roster[Child]
    course: Course = Down()
    starts: int = 0
    spent: Spent = ()

    def child(self, name: str) -> Child:
        """What is remembered of `name`; KeyError for a stranger."""
        return self.children[self.plan.place[name]]


def new_tree(plan: Plan, *, boot: str, seed: int, past: Mapping[str, Spent] = _NO_PAST) -> Tree:
    """A tree that is down.

    `boot` must differ between any two supervisors that ever run: it makes incarnations unique. `seed` is for jitter.
    `past` holds, by child, when an earlier supervisor restarted it, in our own time: that is spent already.
    """
    children = [Child(spent=newest(past.get(child.name, ()), child.limit)) for child in plan.spec.children]
    spent = newest([at for child in plan.spec.children for at in past.get(child.name, ())], plan.spec.limit)
    return Tree(plan=plan, boot=boot, seed=seed, children=Roster(children), spent=spent)
